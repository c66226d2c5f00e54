// An object of its own for each thread.
#pragma once

#ifdef _WIN32
#include <memory>

#include "core/error.h"
#include "core/platform_windows.h"
#endif

namespace etr {

// Returns this thread's T, which is made at its first use and destroyed when the thread ends. There
// is one for each T, so that T must be a type of the caller's own.
//
// (With mingw-w64, a thread_local object's memory may be freed before its destructor runs. What
// needs no destructor can be thread_local.)
template <typename T>
T& per_thread() {
#ifdef _WIN32
  static const DWORD slot =
      platform::thread_slot(+[](void* held) { delete static_cast<T*>(held); });
  if (void* held = ::FlsGetValue(slot)) return *static_cast<T*>(held);
  auto made = std::make_unique<T>();
  if (!::FlsSetValue(slot, made.get())) fail(Code::out_of_memory, "no memory for a thread's data");
  return *made.release();
#else
  thread_local T held;
  return held;
#endif
}

}  // namespace etr
