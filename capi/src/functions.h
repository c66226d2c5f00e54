// How exceptions and thread exits in the program's callbacks are handled.
#pragma once

#include <exception>
#include <string>
#include <utility>

#ifdef __GLIBCXX__  // libc++ has no type for it
#include <cxxabi.h>
#endif

#include "core/error.h"

namespace etr::capi {

// Reports, in the log and on standard error, that `function` has ended its thread, and aborts the
// process. The forced unwinding cannot be stopped, and would take the pipeline's work with it; the
// C library would end the process anyway, without naming the function.
[[noreturn]] void thread_ended_in(const std::string& function) noexcept;

// Calls a function of the program and turns an exception that it throws into Error(callback).
// Messages call it `function`.
template <typename Call>
auto in_program(const std::string& function, Call&& call) {
  try {
    return std::forward<Call>(call)();
#ifdef __GLIBCXX__
  } catch (const abi::__forced_unwind&) {  // pthread_exit()
    thread_ended_in(function);
#endif
  } catch (const std::exception& error) {
    fail(Code::callback, function, " threw an exception: ", error.what());
  } catch (...) {
    fail(Code::callback, function, " threw an exception that is not of std::exception");
  }
}

// Calls the program's progress function (may be nullptr). Returns false if it returned 0.
template <typename Function, typename... Given>
bool goes_on(Function* progress, void* user_data, Given... given) {
  return !progress ||
         in_program("the progress function", [&] { return progress(user_data, given...); }) != 0;
}

}  // namespace etr::capi
