// The calls of the operating system on files that platform_files.cpp is made of; one implementation
// for each system. Files are numbers of the C library. What fails returns -1, false or nothing,
// with the reason in errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace etr::platform {

enum class OpenFor {
  reading,             // does not block, not even on a pipe without a writer
  replacing,           // creates the file or empties it
  appending,           // creates a missing file
  reading_and_writing  // creates a missing file
};
int open_file(const std::string& path, OpenFor what);
// Opens a file without a name, or one that disappears when it is closed.
int open_scratch_file(const std::string& directory);
bool close_file(int file);

// At the file's position, or at `offset` if it is not negative. Returns the bytes read; 0 at the
// end. EAGAIN: a pipe is empty.
int64_t read_some(int file, std::span<std::byte> out, int64_t offset = -1);
int64_t position_of(int file);
bool resize_file(int file, uint64_t size);
bool flush_file(int file);                      // to the disk
bool flush_directory(const std::string& path);  // the names in it
bool wait_for_bytes(int file, int event);  // returns also when the event is signalled; -1: none

enum class FileKind { regular, stream, other };  // stream: a pipe or a device such as a terminal
struct FileInfo {
  FileKind kind = FileKind::other;
  uint64_t size = 0;
  int64_t changed_ns = 0;             // system clock
  uint64_t volume = 0, identity = 0;  // together, no other file's
};
std::optional<FileInfo> info_of(int file);
std::optional<FileInfo> info_of(const std::string& path);

}  // namespace etr::platform
