// How exceptions and thread exits in the program's callbacks are handled.
#pragma once

#include <exception>
#include <string>
#include <utility>

#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

#include "core/error.h"

namespace etr::capi {

// Says so, to the log and on standard error, and ends the process, which the C library is about to do without a word about
// `function`: a thread that ends within it takes the work of the pipeline with it, and unwinding by force cannot be stopped.
[[noreturn]] void thread_ended_in(const std::string& function) noexcept;

// Calls a function of the program; `function` is what messages call it. What it throws is its failure.
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

// A progress function of the program's, as the library calls it: false where it returned 0.
template <typename Function, typename... Given>
bool goes_on(Function* progress, void* user_data, Given... given) {
  return !progress ||
         in_program("the progress function", [&] { return progress(user_data, given...); }) != 0;
}

}  // namespace etr::capi
