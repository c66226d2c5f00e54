// Starts threads. If the system has no thread to give, the error says which thread failed and what
// to do.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"

namespace etr {

// `what`: the thread, such as "a thread that reads ahead". `option`: the option that reduces the
// number of threads. Throws Error(out_of_memory).
template <typename Body>
std::thread start_thread(const char* what, const char* option, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    fail(Code::out_of_memory, what, " could not be started (", error.what(),
         "): the process has reached its limit of memory or threads (ulimit -v, ulimit -u); raise "
         "it, or lower ",
         option);
  }
}

}  // namespace etr
