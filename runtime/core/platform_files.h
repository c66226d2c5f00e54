// File system calls, kept in one place. Failures are Error(not_found / io) that names the file and
// the reason. Files are never mapped: truncating a mapped file would kill the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace etr {
class Interrupt;
}

namespace etr::platform {

// A waitable event for poll(). Thread safe.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void signal();
  int descriptor() const { return descriptor_; }  // readable after signal()

 private:
  int descriptor_;
  int signals_;  // what signal() writes to; the same descriptor where the system has such
};

// A file's size and last modification time. state_of() returns nothing if there is no file.
struct FileState {
  uint64_t bytes = 0;
  int64_t changed_ns = 0;  // system clock

  bool operator==(const FileState&) const = default;
};
std::optional<FileState> state_of(const std::string& path);

// An entry of a folder. `type` is that of a link itself.
struct FolderEntry {
  std::string name;
  std::filesystem::file_type type;
};
// Lists a folder, without "." and "..", in no order. If that fails, sets `error` and returns
// nothing. (std::filesystem::directory_iterator ends the process if the memory runs out.)
std::vector<FolderEntry> list_folder(const std::filesystem::path& folder, std::error_code& error);

// A file open for reading: a regular file, or a pipe or terminal, which can only be read once,
// front to back.
class InputFile {
 public:
  // Does not block, not even on a pipe without a writer. Reading throws Error(cancelled) once
  // `interrupt` is stopped.
  explicit InputFile(const std::string& path, const Interrupt* interrupt = nullptr);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  bool is_regular() const { return regular_; }
  // The size and state of a regular file at the time when it was opened.
  uint64_t size() const { return state_.bytes; }
  const FileState& state() const { return state_; }

  // Continues after the previous read. Returns less than asked only at the end. One thread at a
  // time.
  size_t read(std::span<std::byte> out);

  // Reads all of `out` from an offset in a regular file. Throws Error(io) if the file has become
  // too short. Thread safe.
  void read_at(uint64_t offset, std::span<std::byte> out) const;

  // Throws Error(io) if the file was written to since it was opened. Readers of data call it after
  // reading: the bytes may be from before, from after, or a mixture.
  void require_unchanged() const;

 private:
  size_t read_some(std::span<std::byte> out) const;
  void wait_for_bytes() const;
  void check_interrupt() const;

  const std::string path_;
  const Interrupt* const interrupt_;
  int file_;
  bool regular_ = false;
  FileState state_;
};

// Reads a whole regular file into memory. Throws Error(unsupported) before allocating if it is
// larger than `limit_bytes`; errors call that limit `limit`.
std::shared_ptr<const std::byte> read_bytes(const std::string& path, size_t& size_bytes,
                                            uint64_t limit_bytes, const char* limit,
                                            const Interrupt* interrupt);
std::string read_file(const std::string& path);

// Reads a whole text document that will be parsed, such as a job, settings or a list. Throws
// Error(unsupported) beyond kMostOfDocument.
constexpr uint64_t kMostOfDocument = uint64_t{64} << 20;
std::string read_document(const std::string& path);

// Returns whether `path` is a regular file or does not exist. Opening anything else may block for
// ever (a pipe), or reading it may never end (a device). /dev/null counts as an empty file.
bool is_file_or_free(const std::string& path);

// Shortens a file to its first `bytes` bytes. Error(io).
void shorten_file(const std::string& path, uint64_t bytes);

// Removes the last line of a file of JSON objects if it has no newline: a killed process or a full
// disk may have left only a part of it. Leaves a line that does not begin with '{', because the
// file is of another kind then. Does nothing if there is no regular file. Error(io).
void cut_unfinished_line(const std::string& path);

// A buffered file, written front to back. Exceeding the process's file size limit (RLIMIT_FSIZE) is
// an Error(io); by default the system would end the process with a signal.
class OutputFile {
 public:
  enum class Mode { replace, append };
  OutputFile(const std::string& path, Mode mode) : OutputFile(path, mode, path) {}
  // `name`: the file's name in errors
  OutputFile(const std::string& path, Mode mode, std::string name);
  ~OutputFile();  // closes; ignores write errors
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  void flush();  // passes buffered bytes to the system
  void sync();   // flushes to the disk too
  void close();

  // Returns whether the path still refers to this file: neither the file nor a folder on its path
  // was removed, renamed or replaced.
  bool is_in_place() const;

 private:
  std::string path_, name_;
  int file_;
  std::vector<std::byte> waiting_;
};

// Writes a temporary file next to `path`, flushes it to the disk and renames it over `path`.
// Readers see either the old or the new file.
void write_file_atomic(const std::string& path, std::span<const std::byte> bytes);

// Returns whether `name` is that of such a temporary file. A killed process may leave one behind.
bool is_unfinished_file(const std::string& name);

void write_file_synced(const std::string& path, std::span<const std::byte> bytes);
void sync_directory(const std::string& path);
void sync_directory_of(const std::string& path);  // the folder that the file or folder lies in

// Creates a folder and its missing parents, and flushes their names to the disk: what is flushed
// within them would be lost with its folder otherwise. Error(io).
void create_directories_synced(const std::string& path);

// An unnamed file that disappears when it is closed or the process ends. Thread safe.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& directory);  // creates a missing directory; Error(io)
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  void write(uint64_t offset, std::span<const std::byte> bytes);  // Error(io)
  void read(uint64_t offset, std::span<std::byte> bytes) const;   // Error(io)

 private:
  const std::string directory_;
  int file_;
};

// A file that one process writes while others read it. A reader may see the size before the bytes.
// Thread safe.
class SharedFile {
 public:
  enum class Mode { read, write };
  // Mode::write creates the file if it is missing. Throws Error(not_found / io).
  SharedFile(const std::string& path, Mode mode);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const;                                           // current size; Error(io)
  size_t read(uint64_t offset, std::span<std::byte> bytes) const;  // fewer at the end; Error(io)
  void write(uint64_t offset, std::span<const std::byte> bytes);   // Error(io)
  void resize(uint64_t size);                                      // Error(io)

 private:
  const std::string path_;
  int file_;
};

// Writes all of `bytes` at the file's position, or at `offset` if it is not negative. Returns false
// with the reason in errno. Exceeding the file size limit is such a failure, not a signal.
bool write_all(int file, std::span<const std::byte> bytes, int64_t offset = -1);

std::string errno_text(int error_number);

// Ends an error about a missing path: says where a relative path was resolved, and what to do.
std::string missing_hint(const std::string& path);

}  // namespace etr::platform
