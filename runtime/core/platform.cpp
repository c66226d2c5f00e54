#include "core/platform.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/memory.h"

namespace etr::platform {
namespace {

class File {
 public:
  File(const std::string& path, int flags, mode_t mode = 0)
      : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
    if (fd_ < 0)
      fail(errno == ENOENT ? Code::not_found : Code::io, "cannot open '", path,
           "': ", errno_text(errno));
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  size_t size() const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) throw_errno("cannot stat");
    if (!S_ISREG(info.st_mode)) fail(Code::io, "'", path_, "' is not a regular file");
    return static_cast<size_t>(info.st_size);
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_errno("cannot write");
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }

  // As much as there is, at most `out`.
  size_t read(std::span<std::byte> out) {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::read(fd_, out.data() + done, out.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_errno("cannot read");
      if (n == 0) break;  // it was shortened meanwhile
      done += static_cast<size_t>(n);
    }
    return done;
  }

  void sync() {
    if (::fsync(fd_) != 0) throw_errno("cannot flush");
  }

  void close() {
    if (::close(std::exchange(fd_, -1)) != 0) throw_errno("cannot close");
  }

  int fd() const { return fd_; }

 private:
  [[noreturn]] void throw_errno(const char* what) const {
    fail(Code::io, what, " '", path_, "': ", errno_text(errno));
  }

  std::string path_;
  int fd_;
};

}  // namespace

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
  // All pages at once: whoever asks is about to fill them, and a fault for each takes twice as long.
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void unmap_memory(std::byte* memory, size_t size) { ::munmap(memory, size); }

std::byte* map_huge_memory(size_t size) {
  const size_t whole = size + kHugePage;  // somewhere in it an aligned part begins
  void* memory = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(memory);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before) ::munmap(begin, before);
  ::munmap(begin + before + size, whole - before - size);
#ifdef MADV_HUGEPAGE
  ::madvise(begin + before, size, MADV_HUGEPAGE);  // a wish: small pages do as well
#endif
  return begin + before;
}

std::shared_ptr<const std::byte> map_file(const std::string& path, size_t& size_bytes) {
  File file(path, O_RDONLY);
  size_bytes = file.size();
  if (size_bytes == 0) return std::make_shared<const std::byte>();
  const size_t size = size_bytes;
  // Mapping a file of an image's size costs more than reading it: page faults, and taking the map out of every
  // core. What was read also stays when somebody shortens the file.
  constexpr size_t kSmall = size_t{8} << 20;
  if (size <= kSmall) {
    const auto bytes = allocate_bytes(size);
    size_bytes = file.read({bytes.get(), size});
    return bytes;
  }
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (address == MAP_FAILED) fail(Code::io, "cannot map '", path, "': ", errno_text(errno));
  return {static_cast<const std::byte*>(address),
          [size](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), size); }};
}

std::string read_file(const std::string& path) {
  size_t size = 0;
  const auto bytes = map_file(path, size);
  return {reinterpret_cast<const char*>(bytes.get()), size};
}

void write_file_synced(const std::string& path, std::span<const std::byte> bytes) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  file.write(bytes);
  file.sync();
  file.close();
}

void sync_directory(const std::string& path) {
  File directory(path, O_RDONLY | O_DIRECTORY);
  directory.sync();
}

void write_file_atomic(const std::string& path, std::span<const std::byte> bytes) {
  const std::string temporary = cat(path, ".", process_id(), ".tmp");
  write_file_synced(temporary, bytes);
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) fail(Code::io, "cannot rename '", temporary, "' to '", path, "': ", error.message());
  const auto parent = std::filesystem::path(path).parent_path();
  sync_directory(parent.empty() ? "." : parent.string());
}

ScratchFile::ScratchFile(const std::string& directory) : directory_(directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  std::string name = directory + "/scratch-XXXXXX";
  file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) fail(Code::io, "cannot make a file in '", directory, "': ", errno_text(errno));
  ::unlink(name.c_str());
}

ScratchFile::~ScratchFile() { ::close(file_); }

void ScratchFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      fail(Code::io, "cannot write to the scratch file in '", directory_, "': ", errno_text(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void ScratchFile::read(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail(Code::io, "cannot read the scratch file in '", directory_,
           "': ", n < 0 ? errno_text(errno) : "it is shorter than expected");
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

namespace {

// The numbers in a control group's file; fewer where it is absent or says "max".
std::vector<double> group_numbers(const std::string& name) {
  std::ifstream in("/sys/fs/cgroup/" + name);
  std::vector<double> numbers;
  for (double n = 0; in >> n;) numbers.push_back(n);
  return numbers;
}

// Cores' worth of time that the control group (version 2, or 1) grants.
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

int64_t process_id() { return ::getpid(); }

std::string cache_directory() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg)
    return std::string(xdg) + "/echotrain";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::string(home) + "/.cache/echotrain";
  return "";
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

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

}  // namespace etr::platform
