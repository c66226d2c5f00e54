#include "trace.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "echotrain/echotrain.h"

namespace walk {
namespace {

// A small number that names this thread in the trace; 1 is the one that walks.
uint64_t this_thread() {
  static std::atomic<uint64_t> threads{0};
  static thread_local const uint64_t mine = ++threads;
  return mine;
}

}  // namespace

std::string name_of(int32_t status) {
  return std::string(etr_status_name(status)) + " (" + std::to_string(status) + ")";
}

std::string names_of(Codes codes) {
  std::string out;
  for (int32_t status = ETR_END; status >= ETR_RANK_LOST; --status)
    if (codes & code(status)) out += (out.empty() ? "" : ", ") + name_of(status);
  return out;
}

uint64_t Trace::begin(const char* function, std::string detail) {
  const std::scoped_lock lock(mutex_);
  Call call{++calls_, this_thread(), function, std::move(detail), Clock::now(), false, 0};
  calls_of_walk_ += call.thread == 1;
  open_.emplace(call.number, std::move(call));
  return calls_;
}

void Trace::end(uint64_t number, int32_t status) {
  const std::scoped_lock lock(mutex_);
  Call call = std::move(open_.extract(number).mapped());
  call.returned = true;
  call.status = status;
  ++by_status_[status];
  Count& count = by_function_[call.function];
  ++count.made;
  count.succeeded += status >= 0;
  latest_.push_back(std::move(call));
  if (latest_.size() > kLatest) latest_.pop_front();
}

void Trace::fail(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  std::printf("\nFAILED: %s\n", why.c_str());
  print();
  std::fflush(stdout);
  std::_Exit(1);
}

void Trace::print_after_crash() {
  std::printf("\nFAILED: the process has crashed\n");
  print();
  std::fflush(stdout);
}

void Trace::check_patience() {
  std::string late;
  {
    const std::scoped_lock lock(mutex_);
    const auto since = Clock::now() - std::chrono::duration<double>(patience_s_);
    for (const auto& [number, call] : open_)
      if (call.began < since) late = call.function;
  }
  if (!late.empty())
    fail(late + " has not returned for " + std::to_string(static_cast<int>(patience_s_)) + " s");
}

uint64_t Trace::calls() const {
  const std::scoped_lock lock(mutex_);
  return calls_of_walk_;
}

void Trace::print_counts() const {
  const std::scoped_lock lock(mutex_);
  std::printf("     calls, without error\n");
  for (const auto& [function, count] : by_function_)
    std::printf("%10llu %10llu  %s\n", static_cast<unsigned long long>(count.made),
                static_cast<unsigned long long>(count.succeeded), function.c_str());
  for (const auto& [status, count] : by_status_)
    std::printf("%10llu  %s\n", static_cast<unsigned long long>(count), name_of(status).c_str());
  for (const auto& [function, count] : by_function_)
    if (count.succeeded == 0) std::printf("never without error: %s\n", function.c_str());
}

void Trace::print() const {
  std::printf("the latest calls (thread, call, status):\n");
  for (const Call& call : latest_) print(call);
  for (const auto& [number, call] : open_) print(call);
  std::printf("to repeat: %s\n", repeat_.c_str());
}

void Trace::print(const Call& call) {
  const std::chrono::duration<double> age = Clock::now() - call.began;
  std::printf("  #%-7llu thread %-3llu %s(%s): %s\n", static_cast<unsigned long long>(call.number),
              static_cast<unsigned long long>(call.thread), call.function, call.detail.c_str(),
              call.returned
                  ? name_of(call.status).c_str()
                  : ("not returned, since " + std::to_string(age.count()) + " s").c_str());
}

}  // namespace walk
