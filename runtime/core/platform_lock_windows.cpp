#include <fcntl.h>
#include <io.h>

#include <array>
#include <cerrno>

#include "core/error.h"
#include "core/platform.h"
#include "core/platform_calls.h"
#include "core/platform_files.h"
#include "core/platform_lock.h"
#include "core/platform_windows.h"

namespace etr::platform {
namespace {

std::string host_name() {
  std::array<wchar_t, 256> name{};
  auto size = static_cast<DWORD>(name.size());
  return ::GetComputerNameExW(ComputerNameDnsHostname, name.data(), &size)
             ? narrow({name.data(), size})
             : "an unnamed host";
}

// The name that the holder wrote. The file is empty if the holder has not written it yet.
std::string holder_of(const std::string& path) {
  const int file = open_file(path, OpenFor::reading);
  if (file < 0) return "another process";
  std::array<char, 300> text{};
  const int64_t size = read_some(file, std::as_writable_bytes(std::span(text)), 0);
  close_file(file);
  if (size <= 0) return "another process";
  const std::string holder(text.data(), static_cast<size_t>(size));
  return holder == process_name() ? "this process" : holder;
}

}  // namespace

std::string process_name() { return cat("process ", process_id(), " on ", host_name()); }

// The process that has the file open for writing holds the lock: others may only read. The system
// closes the file when its process ends, and then removes it.
std::unique_ptr<FileLock> FileLock::take(const std::string& path, std::string& holder, bool) {
  holder.clear();
  const HANDLE handle = ::CreateFileW(wide(path).c_str(), GENERIC_READ | GENERIC_WRITE | DELETE,
                                      FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr, OPEN_ALWAYS,
                                      FILE_ATTRIBUTE_NORMAL | FILE_FLAG_DELETE_ON_CLOSE, nullptr);
  if (handle == INVALID_HANDLE_VALUE) {
    // ACCESS_DENIED: the file of a lock that ends is about to disappear.
    const DWORD error = ::GetLastError();
    const bool locked = error == ERROR_SHARING_VIOLATION ||
                        (error == ERROR_ACCESS_DENIED && info_of(path).has_value());
    if (locked) {
      holder = holder_of(path);
      return nullptr;
    }
    ::SetLastError(error);
    set_errno();
    fail(errno == ENOENT ? Code::not_found : Code::io, "cannot create '", path,
         "': ", system_text(error));
  }
  std::unique_ptr<FileLock> out(new FileLock(path));
  out->file_ = ::_open_osfhandle(reinterpret_cast<intptr_t>(handle), _O_RDWR | _O_BINARY);
  const std::string text = process_name();
  DWORD wrote = 0;
  ::WriteFile(handle, text.data(), static_cast<DWORD>(text.size()), &wrote, nullptr);
  return out;
}

FileLock::~FileLock() { close_file(file_); }

}  // namespace etr::platform
