// Threads that the library starts: where the system has none to give, the error says which, and what to do.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"

namespace etr {

// `what`: "a thread that reads ahead"; `option`: the one by which there are fewer. Throws Error(out_of_memory).
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
