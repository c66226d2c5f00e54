// For programs and libraries that take the place of the C library's functions.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdarg>
#include <string>

namespace etr::test {

// The function whose place is taken.
template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The path of an open file; "" if it has none.
inline std::string path_of(int file) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t n = ::readlink(link.c_str(), path, sizeof path);
  return n < 0 ? "" : std::string(path, static_cast<size_t>(n));
}

// The path that openat() and the like are given.
inline std::string path_at(int folder, const char* path) {
  return *path == '/' || folder == AT_FDCWD ? path : path_of(folder) + "/" + path;
}

// The last argument of open(), if it has one.
inline mode_t mode_of(int flags, va_list list) {
  return flags & (O_CREAT | O_TMPFILE) ? static_cast<mode_t>(va_arg(list, int)) : 0;
}

}  // namespace etr::test
