#include <fnmatch.h>
#include <glob.h>

#include <cerrno>
#include <new>

#include "core/error.h"
#include "core/platform_files.h"
#include "core/platform_pattern.h"

namespace etr::platform {
namespace {

// The reason why glob() failed, which it does not report itself.
thread_local std::string unreadable;

int note_unreadable(const char* path, int error) {
  if (error == ENOENT || error == ENOTDIR || error == ELOOP) return 0;  // just no match
  unreadable = cat("cannot list '", path, "': ", errno_text(error));
  return 1;
}

}  // namespace

bool matches_pattern(const std::string& name, const std::string& pattern) {
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_PATHNAME) == 0;
}

std::vector<std::string> matching_paths(const std::string& pattern) {
  glob_t matches{};
  const int result = ::glob(pattern.c_str(), GLOB_MARK, note_unreadable, &matches);
  std::vector<std::string> out;
  if (result == 0) out.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  if (result == GLOB_ABORTED) fail(Code::io, unreadable);
  if (result == GLOB_NOSPACE) throw std::bad_alloc();
  return out;
}

}  // namespace etr::platform
