// Processes that the library starts, and what it shares with them: the operating system's calls for that, in one place.
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

// An open file of the system, closed with the object; not inherited by programs that the process starts.
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

// Memory that another process sees, too. The process that has made it maps pieces of it, one that was given it all of it.
class SharedMemory {
 public:
  static constexpr uint64_t kPage = 4096;  // what pieces are multiples of, and begin at

  SharedMemory();                              // of this process, without bytes; Error(io)
  explicit SharedMemory(Descriptor of_other);  // of the process that started this one
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int descriptor() const { return file_.number(); }

  // Of another process: the memory, of which at least `size` bytes may be used. It may move when it grows. Error(out_of_memory).
  std::byte* bytes(uint64_t size);

  // Of this process: a piece, which does not move, and stays when this object goes. Error(out_of_memory).
  std::byte* map(uint64_t begin, uint64_t size) const;
  // Takes it back, and its bytes from both processes.
  void unmap(std::byte* piece, uint64_t begin, uint64_t size) const;

 private:
  Descriptor file_;
  std::byte* memory_ = nullptr;
  uint64_t size_ = 0;
  int64_t owner_ = 0;  // the process; not that of a child of fork()
};

struct Frame {
  uint32_t kind = 0;
  std::string payload;
};

// Frames to and from another process on this machine.
class Channel {
 public:
  enum class Outcome { frame, late, closed };

  static void make(Channel& here, Descriptor& there);  // Error(io)
  Channel() = default;
  // Over a connection that does not block. A frame of more bytes than `limit` closes it.
  explicit Channel(Descriptor end, uint64_t limit = uint64_t{64} << 20)
      : end_(std::move(end)), limit_(limit) {}

  int descriptor() const { return end_.number(); }
  void set_limit(uint64_t bytes) { limit_ = bytes; }

  // Any thread. False where the other process is gone, or takes nothing for ten seconds.
  bool send(uint32_t kind, std::string_view payload);

  // One thread. `closed` also when the descriptor `watched` becomes readable, if there is one.
  Outcome receive(Frame& frame, Deadline deadline, int watched = -1);

 private:
  Outcome wait(short events, Deadline deadline, int watched) const;

  Descriptor end_;
  uint64_t limit_ = uint64_t{64} << 20;
  std::mutex sending_;
  std::string received_;  // of a frame that is not whole yet
};

// A program that this process has started.
class Child {
 public:
  // `descriptors` become 3, 4, ... there; nothing else of this process's files, signal masks and handlers does. It does not get
  // the terminal's signals. Error(not_found / io).
  Child(const std::string& program, const std::vector<std::string>& arguments,
        std::span<const int> descriptors);
  ~Child();  // ends it where it still runs
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool wait(Deadline deadline);  // whether it has ended

 private:
  void reap();

  int64_t id_ = 0;
  int64_t owner_ = 0;  // whose child it is: not that of a child of fork()
  Descriptor process_;  // readable when the program has ended
};

// In a program that a Child is: readable when the process with this id, which has started it, has ended.
Descriptor watch_process(int64_t id);

// In such a program: closes the descriptors from `first` on, which a parent without care left open.
void close_others(int first);

// The folder of the library or program that has this code; "" where the system does not tell.
std::string code_directory();

}  // namespace etr::platform
