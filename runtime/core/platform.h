// The calls of one operating system, in one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

// Compiles a hot loop also for AVX2 and picks at run time, where the toolchain can. (AVX-512 gains
// nothing: these loops wait for memory. Sanitizers do not bear the choice, which is made before they are up.)
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ETR_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define ETR_VECTOR_CLONES
#endif

namespace etr::platform {

// Memory straight from the system, zeroed, aligned to a page; nullptr where there is none. `size` is a multiple of 4096.
std::byte* map_memory(size_t size);
void unmap_memory(std::byte* memory, size_t size);

// Memory as map_memory(), in pages of 2 MB where the system has them: large arrays that are read at random miss fewer
// address translations. `size` is a multiple of kHugePage; unmap_memory() takes it back.
constexpr size_t kHugePage = size_t{2} << 20;
std::byte* map_huge_memory(size_t size);

// A dynamic library, opened at run time and closed on destruction.
class Library {
 public:
  // Tries each name in turn; throws Error(not_found) that lists every name and why it failed.
  explicit Library(std::span<const char* const> names);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void* symbol(const char* name) const;  // nullptr where there is none

 private:
  void* handle_;
};

// A whole file in memory: read where it is small, else mapped read-only. The bytes live as long as
// the returned pointer or any alias of it.
std::shared_ptr<const std::byte> map_file(const std::string& path, size_t& size_bytes);

std::string read_file(const std::string& path);  // Error(io) names the path and the reason

// Writes beside `path`, flushes to the disk, renames over it: readers see the old or the new file.
void write_file_atomic(const std::string& path, std::span<const std::byte> bytes);

void write_file_synced(const std::string& path, std::span<const std::byte> bytes);
void sync_directory(const std::string& path);

// A file without a name, which is gone when it is closed or the process ends. Thread safe.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& directory);  // made if it is missing; Error(io)
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  void write(uint64_t offset, std::span<const std::byte> bytes);  // Error(io)
  void read(uint64_t offset, std::span<std::byte> bytes) const;   // Error(io)

 private:
  const std::string directory_;
  int file_;
};

// Threads that this process may use (CPU affinity and control group respected), at least 1.
unsigned usable_threads();

int64_t process_id();

// Where small caches belong ($XDG_CACHE_HOME/echotrain or ~/.cache/echotrain); "" where there is
// none.
std::string cache_directory();

// Whether the processor has 512-bit vectors (AVX-512) and nobody has set LP_NATIVE_VECTOR_WIDTH, by which lavapipe chooses its own.
bool may_widen_cpu_vectors();
// Sets LP_NATIVE_VECTOR_WIDTH=512. Changes the process's environment: call it before there are other threads.
void widen_cpu_vectors();

std::string errno_text(int error_number);

}  // namespace etr::platform
