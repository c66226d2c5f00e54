// Preloaded into a program (LD_PRELOAD): a change of the disk below a folder fails.
//
//   FAILING_DISK_BELOW   the folder, whose real path this is
//   FAILING_DISK_AT      the number of the call that fails, from 1; 0: none
//   FAILING_DISK_ERRNO   what it gives
//   FAILING_DISK_FOR     how many calls fail from there on
//   FAILING_DISK_REPORT  gets a line at the end: the number of calls, and the first that failed
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "support/interposed.h"

namespace {

using etr::test::mode_of;
using etr::test::path_at;
using etr::test::path_of;
using etr::test::real;

std::string text_of(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}
long long number_of(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : 0;
}

// Made by the first call, of whichever thread, and never destroyed: threads may outlive main().
struct Disk {
  const std::string below = text_of("FAILING_DISK_BELOW");
  const long long at = number_of("FAILING_DISK_AT"), count = number_of("FAILING_DISK_FOR");
  const int error = static_cast<int>(number_of("FAILING_DISK_ERRNO"));
  std::atomic<long long> calls{0};
  std::mutex mutex;
  std::string failed;

  bool holds(const std::string& path) const {
    return !below.empty() && (path + "/").compare(0, below.size() + 1, below + "/") == 0;
  }

  // Returns true, with errno, if this call is to fail.
  bool fails(const char* what, const std::string& path) {
    if (!holds(path)) return false;
    const long long call = ++calls;
    if (at == 0 || call < at || call >= at + count) return false;
    const std::scoped_lock lock(mutex);
    if (failed.empty()) failed = std::string(what) + " " + path;
    errno = error;
    return true;
  }
};
Disk& disk() {
  static Disk* const made = new Disk;
  return *made;
}

__attribute__((destructor)) void report() {
  const char* path = std::getenv("FAILING_DISK_REPORT");
  if (!path) return;
  if (std::FILE* file = std::fopen(path, "w")) {
    std::fprintf(file, "%lld %s\n", disk().calls.load(), disk().failed.c_str());
    std::fclose(file);
  }
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
  static auto* const call = real<int(int, const char*, int, ...)>("openat");
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (writes && disk().fails("open", path_at(folder, path))) return -1;
  return call(folder, path, flags, mode);
}

}  // namespace

extern "C" {

#define OPEN(name)                               \
  int name(const char* path, int flags, ...) {   \
    va_list list;                                \
    va_start(list, flags);                       \
    const mode_t mode = mode_of(flags, list);    \
    va_end(list);                                \
    return open_at(AT_FDCWD, path, flags, mode); \
  }
#define OPENAT(name)                                       \
  int name(int folder, const char* path, int flags, ...) { \
    va_list list;                                          \
    va_start(list, flags);                                 \
    const mode_t mode = mode_of(flags, list);              \
    va_end(list);                                          \
    return open_at(folder, path, flags, mode);             \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void* bytes, size_t size) {
  static auto* const call = real<ssize_t(int, const void*, size_t)>("write");
  return disk().fails("write", path_of(file)) ? -1 : call(file, bytes, size);
}
ssize_t writev(int file, const struct iovec* parts, int count) {
  static auto* const call = real<ssize_t(int, const struct iovec*, int)>("writev");
  return disk().fails("write", path_of(file)) ? -1 : call(file, parts, count);
}
ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  static auto* const call = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return disk().fails("write", path_of(file)) ? -1 : call(file, bytes, size, offset);
}
ssize_t pwrite64(int file, const void* bytes, size_t size, off64_t offset) {
  return pwrite(file, bytes, size, offset);
}
int ftruncate(int file, off_t size) noexcept {
  static auto* const call = real<int(int, off_t)>("ftruncate");
  return disk().fails("ftruncate", path_of(file)) ? -1 : call(file, size);
}
int fsync(int file) {
  static auto* const call = real<int(int)>("fsync");
  return disk().fails("fsync", path_of(file)) ? -1 : call(file);
}
int fdatasync(int file) {
  static auto* const call = real<int(int)>("fdatasync");
  return disk().fails("fdatasync", path_of(file)) ? -1 : call(file);
}
int rename(const char* from, const char* to) noexcept {
  static auto* const call = real<int(const char*, const char*)>("rename");
  return disk().fails("rename", to) ? -1 : call(from, to);
}
int link(const char* from, const char* to) noexcept {
  static auto* const call = real<int(const char*, const char*)>("link");
  return disk().fails("link", to) ? -1 : call(from, to);
}
int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const call = real<int(const char*, mode_t)>("mkdir");
  return disk().fails("mkdir", path) ? -1 : call(path, mode);
}

}  // extern "C"
