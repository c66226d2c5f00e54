// The calls of one operating system, in one place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/platform_files.h"

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

// Threads that this process may use (CPU affinity and control group respected), at least 1.
unsigned usable_threads();

int64_t process_id();
std::string process_name();  // "process 17 on node3", for messages

// Whether pthread_cancel() may end this thread, which unwinds it by force; returns what it was before. Safe in signal handlers.
bool set_cancellable(bool wanted) noexcept;

// A time in UTC, as `format` of strftime() has it; up to 63 characters.
std::string utc_text(std::chrono::system_clock::time_point time, const char* format);

// Where small caches belong ($XDG_CACHE_HOME/echotrain or ~/.cache/echotrain); "" where there is
// none.
std::string cache_directory();

// Whether the processor has 512-bit vectors (AVX-512) and nobody has set LP_NATIVE_VECTOR_WIDTH, by which lavapipe chooses its own.
bool may_widen_cpu_vectors();
// Sets LP_NATIVE_VECTOR_WIDTH=512. Changes the process's environment: call it before there are other threads.
void widen_cpu_vectors();

}  // namespace etr::platform
