#include "core/platform_calls.h"

#include <fcntl.h>
#include <io.h>

#include <cerrno>

#include "core/error.h"
#include "core/platform_files.h"
#include "core/platform_windows.h"

namespace etr::platform {
namespace {

constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
constexpr size_t kMostOfCall = size_t{1} << 30;  // bytes of one call

HANDLE handle_of(int file) {
  return reinterpret_cast<HANDLE>(::_get_osfhandle(file));  // NOLINT: as the C library gives it
}

int number_of(HANDLE handle, int flags) {
  if (handle == INVALID_HANDLE_VALUE) {
    set_errno();
    return -1;
  }
  const int file = ::_open_osfhandle(reinterpret_cast<intptr_t>(handle), flags | _O_BINARY);
  if (file < 0) ::CloseHandle(handle);
  return file;
}

// Folders can be opened only with FILE_FLAG_BACKUP_SEMANTICS.
HANDLE open_handle(const std::string& path, DWORD access, DWORD disposition, DWORD flags) {
  return ::CreateFileW(wide(path).c_str(), access, kShared, nullptr, disposition, flags, nullptr);
}

OVERLAPPED at(int64_t offset) {
  OVERLAPPED out{};
  out.Offset = static_cast<DWORD>(offset);
  out.OffsetHigh = static_cast<DWORD>(offset >> 32);
  return out;
}

bool checked(BOOL done) {
  if (!done) set_errno();
  return done;
}

std::optional<FileInfo> info_from(HANDLE handle) {
  FileInfo out;
  const DWORD type = ::GetFileType(handle);
  if (type == FILE_TYPE_PIPE || type == FILE_TYPE_CHAR) {
    out.kind = FileKind::stream;
    return out;
  }
  BY_HANDLE_FILE_INFORMATION info{};
  if (!checked(::GetFileInformationByHandle(handle, &info))) return std::nullopt;
  const auto joined = [](DWORD high, DWORD low) { return uint64_t{high} << 32 | low; };
  out.kind = info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? FileKind::other : FileKind::regular;
  out.size = joined(info.nFileSizeHigh, info.nFileSizeLow);
  constexpr int64_t kEpoch = 116444736000000000;  // 1970 in units of 100 ns from 1601
  const auto changed = static_cast<int64_t>(
      joined(info.ftLastWriteTime.dwHighDateTime, info.ftLastWriteTime.dwLowDateTime));
  out.changed_ns = (changed - kEpoch) * 100;
  out.volume = info.dwVolumeSerialNumber;
  out.identity = joined(info.nFileIndexHigh, info.nFileIndexLow);
  return out;
}

}  // namespace

int open_file(const std::string& path, OpenFor what) {
  constexpr DWORD kNormal = FILE_ATTRIBUTE_NORMAL;
  switch (what) {
    case OpenFor::reading:
      return number_of(
          open_handle(path, GENERIC_READ, OPEN_EXISTING, kNormal | FILE_FLAG_BACKUP_SEMANTICS),
          _O_RDONLY);
    case OpenFor::replacing:
      return number_of(open_handle(path, GENERIC_WRITE, CREATE_ALWAYS, kNormal), _O_WRONLY);
    case OpenFor::appending:  // without FILE_WRITE_DATA, the system writes at the end only
      return number_of(open_handle(path, FILE_APPEND_DATA | SYNCHRONIZE | FILE_READ_ATTRIBUTES,
                                   OPEN_ALWAYS, kNormal),
                       _O_WRONLY | _O_APPEND);
    case OpenFor::reading_and_writing:
      return number_of(open_handle(path, GENERIC_READ | GENERIC_WRITE, OPEN_ALWAYS, kNormal),
                       _O_RDWR);
  }
  return -1;
}

int open_scratch_file(const std::string& directory) {
  wchar_t name[MAX_PATH];
  if (::GetTempFileNameW(wide(directory).c_str(), L"etr", 0, name) == 0) {
    set_errno();
    return -1;
  }
  return number_of(
      ::CreateFileW(name, GENERIC_READ | GENERIC_WRITE, kShared, nullptr, CREATE_ALWAYS,
                    FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, nullptr),
      _O_RDWR);
}

bool close_file(int file) { return ::_close(file) == 0; }

int64_t read_some(int file, std::span<std::byte> out, int64_t offset) {
  OVERLAPPED place = at(offset);
  DWORD got = 0;
  const auto size = static_cast<DWORD>(std::min(out.size(), kMostOfCall));
  if (::ReadFile(handle_of(file), out.data(), size, &got, offset < 0 ? nullptr : &place))
    return got;
  const DWORD error = ::GetLastError();
  if (error == ERROR_HANDLE_EOF || error == ERROR_BROKEN_PIPE) return 0;
  set_errno();
  return -1;
}

int64_t position_of(int file) { return ::_lseeki64(file, 0, SEEK_CUR); }

bool write_all(int file, std::span<const std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    OVERLAPPED place = at(offset);
    DWORD wrote = 0;
    const auto size = static_cast<DWORD>(std::min(bytes.size(), kMostOfCall));
    if (!checked(::WriteFile(handle_of(file), bytes.data(), size, &wrote,
                             offset < 0 ? nullptr : &place)))
      return false;
    bytes = bytes.subspan(wrote);
    if (offset >= 0) offset += wrote;
  }
  return true;
}

bool resize_file(int file, uint64_t size) {
  FILE_END_OF_FILE_INFO end{};
  end.EndOfFile.QuadPart = static_cast<LONGLONG>(size);
  return checked(
      ::SetFileInformationByHandle(handle_of(file), FileEndOfFileInfo, &end, sizeof end));
}

bool flush_file(int file) { return checked(::FlushFileBuffers(handle_of(file))); }

// NTFS writes the names of a folder with the journal of the volume; there is no call for one
// folder.
bool flush_directory(const std::string&) { return true; }

// Consoles and pipes block in the read instead: Windows cannot wait for both.
bool wait_for_bytes(int, int) { return true; }

std::optional<FileInfo> info_of(int file) { return info_from(handle_of(file)); }

std::optional<FileInfo> info_of(const std::string& path) {
  const HANDLE handle =
      open_handle(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
  if (handle == INVALID_HANDLE_VALUE) {
    set_errno();
    return std::nullopt;
  }
  std::optional<FileInfo> out = info_from(handle);
  ::CloseHandle(handle);
  return out;
}

// Nothing waits for events with poll() here.
Event::Event() : descriptor_(-1), signals_(-1) {}
Event::~Event() = default;
void Event::signal() {}

}  // namespace etr::platform
