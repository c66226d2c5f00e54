// Operating system calls, kept in one place.
#pragma once

#include <chrono>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/platform_files.h"

// Also compiles a hot loop for AVX2 and selects the version at run time, where the toolchain
// supports that. AVX-512 gains nothing: these loops are memory-bound. Not used with sanitizers,
// because the selection runs before they are initialised.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ETR_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define ETR_VECTOR_CLONES
#endif

namespace etr::platform {

// Zeroed, page-aligned memory from the system; nullptr if there is none. `size` must be a multiple
// of 4096.
std::byte* map_memory(size_t size);
void unmap_memory(std::byte* memory, size_t size);

// Like map_memory(), in 2 MB pages if the system has them: random reads of large arrays cause fewer
// TLB misses. `size` must be a multiple of kHugePage. Freed by unmap_memory().
constexpr size_t kHugePage = size_t{2} << 20;
std::byte* map_huge_memory(size_t size);

// A dynamic library, opened at run time and closed by the destructor.
class Library {
 public:
  // Tries each name in turn. Throws Error(not_found) that lists each name and why it failed.
  explicit Library(std::span<const char* const> names);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void* symbol(const char* name) const;  // nullptr if not found

 private:
  void* handle_;
};

// The number of threads this process may use, at least 1. Respects CPU affinity and control groups.
unsigned usable_threads();

// The processor's name as the system gives it; "" if it gives none.
std::string processor_name();

// std::vsnprintf() in the locale "C".
int print_in_c_locale(char* to, size_t size, const char* format, std::va_list arguments);

int64_t process_id();
std::string process_name();  // "process 17 on node3", for messages

// Sets whether pthread_cancel() may end this thread by forced unwinding, and returns the previous
// setting. Safe in signal handlers.
bool set_cancellable(bool wanted) noexcept;

// A UTC time, formatted as by strftime(), up to 63 characters.
std::string utc_text(std::chrono::system_clock::time_point time, const char* format);

// The value of an environment variable, in UTF-8; "" if it is not set.
std::string variable(const char* name);

// The user's home folder; "" if it is unknown.
std::string home_directory();

// The directory for small caches ($XDG_CACHE_HOME/echotrain or ~/.cache/echotrain), or "" if there
// is none.
std::string cache_directory();

// Returns whether the processor has 512-bit vectors (AVX-512) and LP_NATIVE_VECTOR_WIDTH, the
// vector width of lavapipe, is not set.
bool may_widen_cpu_vectors();
// Sets LP_NATIVE_VECTOR_WIDTH=512. Changes the environment of the process, so call it before other
// threads exist.
void widen_cpu_vectors();

}  // namespace etr::platform
