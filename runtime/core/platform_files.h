// Files: the operating system's calls for them, in one place. What goes wrong is Error(not_found / io) that names the file
// and the reason. No file is mapped: one that somebody shortens would end the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace etr {
class Interrupt;
}

namespace etr::platform {

// Something to wait for beside files. Thread safe.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void signal();
  int descriptor() const { return descriptor_; }  // for poll(): readable from signal() on

 private:
  int descriptor_;
};

// A file that is open for reading: a regular one, or a pipe or terminal, which can be read once, front to back.
class InputFile {
 public:
  // Does not wait, not even for the writer of a pipe. Once `interrupt` is stopped, reading throws Error(cancelled).
  explicit InputFile(const std::string& path, const Interrupt* interrupt = nullptr);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  bool is_regular() const { return regular_; }
  uint64_t size() const { return size_; }  // of a regular file, when it was opened

  // Goes on where the last call ended; less than `out` only at the end. One thread at a time.
  size_t read(std::span<std::byte> out);

  // All of `out`, from a place in a regular file; Error(io) where the file has become too short. Any thread.
  void read_at(uint64_t offset, std::span<std::byte> out) const;

 private:
  size_t read_some(std::span<std::byte> out) const;
  void wait_for_bytes() const;
  void check_interrupt() const;

  const std::string path_;
  const Interrupt* const interrupt_;
  int file_;
  bool regular_ = false;
  uint64_t size_ = 0;
};

// A regular file, read into memory. Error(unsupported) beyond `limit_bytes`, which errors call `limit`, before memory is taken.
std::shared_ptr<const std::byte> read_bytes(const std::string& path, size_t& size_bytes,
                                            uint64_t limit_bytes, const char* limit,
                                            const Interrupt* interrupt);
std::string read_file(const std::string& path);

// The same for text that is read as a whole, and parsed: a job, settings, a list. Error(unsupported) beyond kMostOfDocument.
constexpr uint64_t kMostOfDocument = uint64_t{64} << 20;
std::string read_document(const std::string& path);

// A file that is written front to back, in pieces of its own making. A limit of the process on the size of its files
// (RLIMIT_FSIZE) is an Error(io), where the system's answer would be a signal that ends the process.
class OutputFile {
 public:
  enum class Mode { replace, append };
  OutputFile(const std::string& path, Mode mode) : OutputFile(path, mode, path) {}
  OutputFile(const std::string& path, Mode mode, std::string name);  // what errors call it
  ~OutputFile();  // closes; what was not flushed may be lost
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  void flush();  // hands everything to the system
  void sync();   // and to the disk
  void close();

  // Whether the path still leads to the file: nobody has removed, renamed or replaced it, or a folder that it lies in.
  bool is_in_place() const;

 private:
  std::string path_, name_;
  int file_;
  std::vector<std::byte> waiting_;
};

// Writes beside `path`, flushes to the disk, renames over it: readers see the old or the new file.
void write_file_atomic(const std::string& path, std::span<const std::byte> bytes);

void write_file_synced(const std::string& path, std::span<const std::byte> bytes);
void sync_directory(const std::string& path);

// A file without a name, which is gone when it is closed or the process ends. Thread safe.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& directory);  // made if it is missing; Error(io)
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  void write(uint64_t offset, std::span<const std::byte> bytes);  // Error(io)
  void read(uint64_t offset, std::span<std::byte> bytes) const;   // Error(io)

 private:
  const std::string directory_;
  int file_;
};

// A file that one process writes while others read it. What size() covers of it may still be on its way. Any thread.
class SharedFile {
 public:
  enum class Mode { read, write };
  // To be written: made if it is missing. Error(not_found / io).
  SharedFile(const std::string& path, Mode mode);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const;                                           // now; Error(io)
  size_t read(uint64_t offset, std::span<std::byte> bytes) const;  // fewer at the end; Error(io)
  void write(uint64_t offset, std::span<const std::byte> bytes);   // Error(io)
  void resize(uint64_t size);                                      // Error(io)

 private:
  const std::string path_;
  int file_;
};

// A file's size and when its content was last changed; nothing where there is no file.
struct FileState {
  uint64_t bytes = 0;
  int64_t changed_ns = 0;  // of the system's clock
};
std::optional<FileState> state_of(const std::string& path);

// Writes all of `bytes` at the file's position, or where `offset` is not negative there. False leaves the reason in errno; a limit
// on the size of files is one, and no signal.
bool write_all(int file, std::span<const std::byte> bytes, int64_t offset = -1);

std::string errno_text(int error_number);

// The end of an error about a path that leads nowhere: where a relative one leads, and what to do.
std::string missing_hint(const std::string& path);

}  // namespace etr::platform
