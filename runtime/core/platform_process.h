// Child processes and what the library shares with them: the operating system calls, kept in one
// place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace etr::platform {

using Deadline = std::chrono::steady_clock::time_point;

// Owns a file descriptor. Programs that the process starts do not inherit it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int number() const { return number_; }  // -1: none
  int release();

 private:
  int number_ = -1;
};

// Memory shared with another process. The process that created it maps pieces of it; the process
// that received it maps all of it.
class SharedMemory {
 public:
  static constexpr uint64_t kPage = 4096;  // pieces begin at, and have sizes of, multiples of this

  SharedMemory();                              // creates empty memory; Error(io)
  explicit SharedMemory(Descriptor of_other);  // received from the parent process
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int descriptor() const { return file_.number(); }

  // For the receiving process: the memory, of which at least `size` bytes may be used. It may move
  // when it grows. Throws Error(out_of_memory).
  std::byte* bytes(uint64_t size);

  // For the creating process: maps a piece, which does not move and outlives this object. Throws
  // Error(out_of_memory).
  std::byte* map(uint64_t begin, uint64_t size) const;
  // Unmaps a piece and frees its bytes for both processes.
  void unmap(std::byte* piece, uint64_t begin, uint64_t size) const;

 private:
  Descriptor file_;
  // Unused where it is refused.
  [[maybe_unused]] std::byte* memory_ = nullptr;
  [[maybe_unused]] uint64_t size_ = 0;
  [[maybe_unused]] int64_t owner_ = 0;  // the creating process, as opposed to its fork() children
};

struct Frame {
  uint32_t kind = 0;
  std::string payload;
};

// Exchanges frames with another process.
class Channel {
 public:
  enum class Outcome { frame, late, closed };

  static void make(Channel& here, Descriptor& there);  // Error(io)
  Channel() = default;
  // Wraps a non-blocking connection. A received frame of more than `limit` bytes closes it.
  explicit Channel(Descriptor end, uint64_t limit = uint64_t{64} << 20)
      : end_(std::move(end)), limit_(limit) {}

  int descriptor() const { return end_.number(); }
  void set_limit(uint64_t bytes) { limit_ = bytes; }

  // Thread safe. Returns false if the other process is gone or accepts nothing for ten seconds.
  bool send(uint32_t kind, std::string_view payload);

  // For a single thread. Also returns `closed` when the descriptor `watched`, if any, becomes
  // readable.
  Outcome receive(Frame& frame, Deadline deadline, int watched = -1);

 private:
  Outcome wait(short events, Deadline deadline, int watched) const;

  Descriptor end_;
  uint64_t limit_ = uint64_t{64} << 20;
  std::mutex sending_;
  std::string received_;  // start of an incomplete frame
};

// A program that this process started.
class Child {
 public:
  // `descriptors` become 3, 4, ... in the child. It inherits no other descriptors of the library,
  // no signal mask, no signal handlers, and gets no terminal signals. Throws Error(not_found / io).
  Child(const std::string& program, const std::vector<std::string>& arguments,
        std::span<const int> descriptors);
  ~Child();  // kills it if it still runs
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool wait(Deadline deadline);  // returns whether it has ended

 private:
  void reap();

  int64_t id_ = 0;
  int64_t owner_ = 0;   // the parent process, as opposed to its fork() children
  Descriptor process_;  // readable when the program has ended
};

// For a program started as a Child: a descriptor that becomes readable when the process with this
// id, its parent, has ended.
Descriptor watch_process(int64_t id);

// For such a program: closes all descriptors from `first` on, which the parent may have leaked.
void close_others(int first);

// The folder of the library or program that contains this code, or "" if unknown.
std::string code_directory();

}  // namespace etr::platform
