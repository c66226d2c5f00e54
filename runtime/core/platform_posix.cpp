#include "core/platform.h"

#include <dirent.h>
#include <dlfcn.h>
#include <locale.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#include <xlocale.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/platform_files.h"

namespace etr::platform {

Library::Library(std::span<const char* const> names) : handle_(nullptr) {
  std::string reasons;
  for (const char* name : names) {
    handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_) return;
    reasons += cat("\n  ", name, ": ", ::dlerror());
  }
  fail(Code::not_found, "no library could be opened; tried:", reasons);
}

Library::~Library() { ::dlclose(handle_); }

void* Library::symbol(const char* name) const { return ::dlsym(handle_, name); }

std::byte* map_memory(size_t size) {
  // Populates all pages at once: the caller is about to fill them, and faulting each one in takes
  // twice as long.
#ifdef MAP_POPULATE
  constexpr int kPopulate = MAP_POPULATE;
#else
  constexpr int kPopulate = 0;
#endif
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | kPopulate, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void unmap_memory(std::byte* memory, size_t size) { ::munmap(memory, size); }

std::byte* map_huge_memory(size_t size) {
  const size_t whole = size + kHugePage;  // contains an aligned part of `size` bytes
  void* memory = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(memory);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before) ::munmap(begin, before);
  ::munmap(begin + before + size, whole - before - size);
#ifdef MADV_HUGEPAGE
  ::madvise(begin + before, size, MADV_HUGEPAGE);  // best effort: small pages work too
#endif
  return begin + before;
}

#ifdef __linux__
namespace {

// The numbers in a control group file; fewer if it is missing or says "max".
std::vector<double> group_numbers(const std::string& name) {
  std::ifstream in("/sys/fs/cgroup/" + name);
  in.exceptions(std::ios::badbit);  // otherwise a lack of memory would look like the end
  std::vector<double> numbers;
  try {
    for (double n = 0; in >> n;) numbers.push_back(n);
  } catch (const std::ios_base::failure&) {  // it cannot be read
  }
  return numbers;
}

// The number of cores granted by the control group (version 2 or 1).
std::optional<double> granted_cores() {
  const auto v2 = group_numbers("cpu.max");
  if (v2.size() == 2) return v2[0] / v2[1];
  const auto quota = group_numbers("cpu/cpu.cfs_quota_us");
  const auto period = group_numbers("cpu/cpu.cfs_period_us");
  if (quota.empty() || period.empty() || quota[0] <= 0) return std::nullopt;
  return quota[0] / period[0];
}

}  // namespace

unsigned usable_threads() {
  const double granted = std::ceil(granted_cores().value_or(1e9));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
    return static_cast<unsigned>(std::clamp<double>(granted, 1, CPU_COUNT(&set)));
  return 1;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "";
}
#else
unsigned usable_threads() { return std::max(1u, std::thread::hardware_concurrency()); }

std::string processor_name() {
#ifdef __APPLE__
  char name[256] = "";
  size_t size = sizeof name;
  if (::sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) return name;
#endif
  return "";
}
#endif

int print_in_c_locale(char* to, size_t size, const char* format, std::va_list arguments) {
  static const locale_t kC = ::newlocale(LC_ALL_MASK, "C", nullptr);
  const locale_t before = ::uselocale(kC);  // of this thread alone
  const int length = std::vsnprintf(to, size, format, arguments);
  ::uselocale(before);
  return length;
}

int64_t process_id() { return ::getpid(); }

bool set_cancellable(bool wanted) noexcept {
  int before = PTHREAD_CANCEL_ENABLE;
  ::pthread_setcancelstate(wanted ? PTHREAD_CANCEL_ENABLE : PTHREAD_CANCEL_DISABLE, &before);
  return before == PTHREAD_CANCEL_ENABLE;
}

std::string utc_text(std::chrono::system_clock::time_point time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[64];
  return {text, std::strftime(text, sizeof text, format, &utc)};
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

std::string home_directory() { return variable("HOME"); }

std::string cache_directory() {
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/echotrain";
  const std::string home = home_directory();
  return home.empty() ? "" : home + "/.cache/echotrain";
}

namespace {
constexpr const char* kLavapipeVectors = "LP_NATIVE_VECTOR_WIDTH";
}

bool may_widen_cpu_vectors() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         !std::getenv(kLavapipeVectors);
#else
  return false;
#endif
}

void widen_cpu_vectors() { ::setenv(kLavapipeVectors, "512", /*overwrite=*/1); }

namespace {

std::filesystem::file_type type_of(const std::filesystem::path& folder, const dirent& entry) {
  using std::filesystem::file_type;
  switch (entry.d_type) {
    case DT_REG: return file_type::regular;
    case DT_DIR: return file_type::directory;
    case DT_LNK: return file_type::symlink;
    case DT_FIFO: return file_type::fifo;
    default: {  // rare, or the file system does not list types
      std::error_code unknown;
      return std::filesystem::symlink_status(folder / entry.d_name, unknown).type();
    }
  }
}

struct CloseFolder {
  void operator()(DIR* list) const { ::closedir(list); }
};

}  // namespace

std::vector<FolderEntry> list_folder(const std::filesystem::path& folder, std::error_code& error) {
  error.clear();
  const std::unique_ptr<DIR, CloseFolder> list(::opendir(folder.c_str()));
  std::vector<FolderEntry> out;
  while (list) {
    errno = 0;
    const dirent* const entry = ::readdir(list.get());
    if (!entry) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") out.push_back({std::string(name), type_of(folder, *entry)});
  }
  if (errno == 0) return out;
  error.assign(errno, std::generic_category());
  return {};
}

}  // namespace etr::platform
