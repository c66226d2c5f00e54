#include "core/platform_windows.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "core/error.h"
#include "core/platform.h"
#include "core/platform_files.h"

namespace etr::platform {

std::wstring wide(std::string_view utf8) {
  const auto size = static_cast<int>(utf8.size());
  std::wstring out(
      static_cast<size_t>(::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), size, nullptr, 0)), L'\0');
  ::MultiByteToWideChar(CP_UTF8, 0, utf8.data(), size, out.data(), static_cast<int>(out.size()));
  return out;
}

std::string narrow(std::wstring_view text) {
  const auto size = static_cast<int>(text.size());
  std::string out(static_cast<size_t>(::WideCharToMultiByte(CP_UTF8, 0, text.data(), size, nullptr,
                                                            0, nullptr, nullptr)),
                  '\0');
  ::WideCharToMultiByte(CP_UTF8, 0, text.data(), size, out.data(), static_cast<int>(out.size()),
                        nullptr, nullptr);
  return out;
}

std::string system_text(DWORD error) {
  wchar_t text[512];
  const DWORD size = ::FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS,
                                      nullptr, error, 0, text, 512, nullptr);
  std::string out = narrow({text, size});
  while (!out.empty() && (out.back() == '\n' || out.back() == '\r')) out.pop_back();
  return out.empty() ? cat("error ", error) : out;
}

void set_errno() {
  switch (::GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME:
    case ERROR_BAD_NETPATH: errno = ENOENT; break;
    case ERROR_ACCESS_DENIED:
    case ERROR_WRITE_PROTECT: errno = EACCES; break;
    case ERROR_SHARING_VIOLATION:
    case ERROR_LOCK_VIOLATION: errno = EBUSY; break;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS: errno = EEXIST; break;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL: errno = ENOSPC; break;
    case ERROR_TOO_MANY_OPEN_FILES: errno = EMFILE; break;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY: errno = ENOMEM; break;
    case ERROR_NOT_SUPPORTED:
    case ERROR_INVALID_FUNCTION: errno = ENOTSUP; break;
    default: errno = EIO;
  }
}

Library::Library(std::span<const char* const> names) : handle_(nullptr) {
  std::string reasons;
  for (const char* name : names) {
    handle_ = ::LoadLibraryW(wide(name).c_str());
    if (handle_) return;
    reasons += cat("\n  ", name, ": ", system_text(::GetLastError()));
  }
  fail(Code::not_found, "no library could be opened; tried:", reasons);
}

Library::~Library() { ::FreeLibrary(static_cast<HMODULE>(handle_)); }

void* Library::symbol(const char* name) const {
  return std::bit_cast<void*>(::GetProcAddress(static_cast<HMODULE>(handle_), name));
}

std::byte* map_memory(size_t size) {
  return static_cast<std::byte*>(
      ::VirtualAlloc(nullptr, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
}

void unmap_memory(std::byte* memory, size_t) { ::VirtualFree(memory, 0, MEM_RELEASE); }

// Large pages need a privilege that programs do not have.
std::byte* map_huge_memory(size_t) { return nullptr; }

unsigned usable_threads() {
  DWORD_PTR process = 0, system = 0;
  if (!::GetProcessAffinityMask(::GetCurrentProcess(), &process, &system) || process == 0) return 1;
  return static_cast<unsigned>(std::popcount(static_cast<uint64_t>(process)));
}

DWORD thread_slot(void(NTAPI* destroy)(void*)) {
  HMODULE self = nullptr;
  ::GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                       reinterpret_cast<LPCWSTR>(destroy), &self);
  const DWORD slot = ::FlsAlloc(destroy);
  if (slot == FLS_OUT_OF_INDEXES)
    fail(Code::out_of_memory, "the process has no slot for data of threads left");
  return slot;
}

std::string processor_name() {
  char name[256] = "";
  DWORD size = sizeof name;
  const LSTATUS status =
      ::RegGetValueA(HKEY_LOCAL_MACHINE, "HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0",
                     "ProcessorNameString", RRF_RT_REG_SZ, nullptr, name, &size);
  std::string out = status == ERROR_SUCCESS ? name : "";
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

int print_in_c_locale(char* to, size_t size, const char* format, std::va_list arguments) {
  const int mode = ::_configthreadlocale(_ENABLE_PER_THREAD_LOCALE);
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  std::setlocale(LC_NUMERIC, "C");  // of this thread alone
  const int length = std::vsnprintf(to, size, format, arguments);
  std::setlocale(LC_NUMERIC, before.c_str());
  ::_configthreadlocale(mode);
  return length;
}

int64_t process_id() { return ::GetCurrentProcessId(); }

bool set_cancellable(bool) noexcept { return true; }  // Windows does not cancel threads

std::string utc_text(std::chrono::system_clock::time_point time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  ::gmtime_s(&utc, &seconds);
  char text[64];
  return {text, std::strftime(text, sizeof text, format, &utc)};
}

// std::getenv() would give the code page's bytes.
std::string variable(const char* name) {
  const wchar_t* const value = ::_wgetenv(wide(name).c_str());
  return value ? narrow(value) : "";
}

std::string home_directory() { return variable("USERPROFILE"); }

namespace {
constexpr const char* kLavapipeVectors = "LP_NATIVE_VECTOR_WIDTH";
}

std::string cache_directory() {
  const std::string local = variable("LOCALAPPDATA");
  return local.empty() ? "" : local + "\\echotrain\\cache";
}

bool may_widen_cpu_vectors() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         variable(kLavapipeVectors).empty();
}

void widen_cpu_vectors() { ::_putenv_s(kLavapipeVectors, "512"); }

std::vector<FolderEntry> list_folder(const std::filesystem::path& folder, std::error_code& error) {
  namespace fs = std::filesystem;
  std::vector<FolderEntry> out;
  std::error_code unknown;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    out.push_back({it->path().filename().string(), it->symlink_status(unknown).type()});
  if (error) out.clear();
  return out;
}

}  // namespace etr::platform
