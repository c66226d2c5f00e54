#include "failures.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>

#include "heap.h"

namespace etr::failing {
namespace {

struct Case {
  int64_t call = 0;
  size_t error = 0;
};

std::optional<Case> asked_case() {
  const char* text = std::getenv("ECHOTRAIN_TEST_FAILURE");
  long long call = 0;
  unsigned long error = 0;
  if (!text || std::sscanf(text, "%lld %lu", &call, &error) < 1) return std::nullopt;
  return Case{call, error};
}

// The cases of the calls since the injector was disarmed, or as many of them as asked for.
std::vector<Case> cases(const Injector& injector, size_t most) {
  if (const auto one = asked_case()) return {*one};
  std::vector<Case> all;
  for (int64_t call = 1; call <= injector.calls(); ++call)
    for (size_t error = 0; error < injector.errors_of(call); ++error) all.push_back({call, error});
  if (const char* text = std::getenv("ECHOTRAIN_TEST_FAILURES")) {
    size_t part = 0, parts = 0;
    if (std::sscanf(text, "%zu/%zu", &part, &parts) == 2 && part >= 1 && part <= parts) {
      std::vector<Case> slice;
      for (size_t i = part - 1; i < all.size(); i += parts) slice.push_back(all[i]);
      return slice;
    }
    most = static_cast<size_t>(std::atoll(text));
  }
  if (most == 0 || all.size() <= most) return all;
  std::vector<Case> some;
  for (size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

// What exists once it has not changed for a second: threads end, and a test's server closes its
// connections, a moment after a run.
std::string at_rest(const Injector& injector) {
  std::string last = injector.left_behind();
  for (int unchanged = 0, i = 0; unchanged < 100 && i < 6000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::string now = injector.left_behind();
    unchanged = now == last ? unchanged + 1 : 0;
    last = now;
  }
  return last;
}

// Threads of the library may end a moment after the call that ended them.
void expect_left(const Injector& injector, const std::string& before) {
  for (int i = 0; i < 6000 && injector.left_behind() != before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(injector.left_behind(), before) << "is left behind";
}

std::string told(const Case& one, int64_t total, const std::string& failed,
                 const Outcome& outcome) {
  return "repeat with ECHOTRAIN_TEST_FAILURE='" + std::to_string(one.call) + " " +
         std::to_string(one.error) + "' (of " + std::to_string(total) + " calls)\n" +
         (failed.empty() ? "nothing failed" : failed) + "; status " +
         std::to_string(outcome.status) + " " + outcome.message;
}

// A hang ends the program.
class Watch {
 public:
  Watch() { begin(); }
  ~Watch() { alarm(0); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  void begin() { alarm(600); }
};

// Runs the scenario without a failure.
void run_whole(Injector& injector, const Scenario& scenario, std::string& results) {
  injector.disarm();
  const Outcome outcome = scenario(results);
  ASSERT_EQ(outcome.status, 0) << outcome.message;
}

// Returns whether the call was made, and failed. `made`: the calls that were made.
bool run_one(Injector& injector, const Scenario& scenario, const Expectations& expected,
             const Case& one, const std::string& whole, int64_t total, std::map<int, int>& statuses,
             int64_t& made, bool keeps_callers = false) {
  heap::begin_run(keeps_callers);
  injector.arm(one.call, one.error);
  std::string results;
  const Outcome outcome = scenario(results);
  const std::string failed = injector.failed_call();
  made = injector.calls();
  injector.disarm();
  SCOPED_TRACE(told(one, total, failed, outcome));
  const bool good = outcome.status == 0;
  ++statuses[outcome.status];
  EXPECT_TRUE(good || expected.statuses.contains(outcome.status)) << "not the expected error";
  EXPECT_TRUE(good || !outcome.message.empty()) << "an error without a message";
  EXPECT_TRUE(!good || results == whole) << "the failure changed the results";
  if (!failed.empty()) expected.after(outcome);
  const auto breaches = injector.take_breaches();
  for (const std::string& text : std::set(breaches.begin(), breaches.end())) ADD_FAILURE() << text;
  return !failed.empty();
}

// Memory that is left after a run, for which the same calls have asked again in most of several
// identical ones after it, is a leak. What is made once, and what replaces that of the run before,
// such as a message or a cache, is none.
void expect_no_leak(const std::function<void()>& repeat) {
  constexpr int kRuns = 4, kLeaks = 3;
  for (int i = 0; i < kRuns; ++i) repeat();
  const std::string left = heap::left_by(kRuns, kLeaks);
  EXPECT_TRUE(left.empty()) << "memory is left behind:" << left;
}

}  // namespace

void fail_everywhere(Injector& injector, const Scenario& scenario, const Expectations& expected) {
  std::string whole, again, last;
  Watch watch;
  heap::watch();
  ASSERT_NO_FATAL_FAILURE(run_whole(injector, scenario, whole));  // fills caches of the process
  heap::watch();  // libraries that are loaded when they are needed
  const std::string before = at_rest(injector);
  ASSERT_NO_FATAL_FAILURE(run_whole(injector, scenario, again));
  const int64_t total = injector.calls();
  const auto tried = cases(injector, expected.runs);
  ASSERT_TRUE(again == whole) << "the scenario gives other results each time";
  expect_left(injector, before);
  ASSERT_GE(total, expected.least_calls);
  std::map<int, int> statuses;
  size_t failed = 0, excused = 0;
  for (const Case& one : tried) {
    Case at = one;
    // Where threads read ahead, each run makes another number of calls. One that ended before its
    // call is repeated with one of those that it made.
    for (int attempt = 0; attempt < 3; ++attempt) {
      watch.begin();
      int64_t made = 0;
      const auto run = [&](bool keeps_callers) {
        const bool met =
            run_one(injector, scenario, expected, at, whole, total, statuses, made, keeps_callers);
        expect_left(injector, before);
        return met;
      };
      const int64_t blocks = heap::blocks();
      const bool met = run(false);
      failed += met;
      if (heap::has_excuse())
        ++excused;
      else if (expected.frees_memory && heap::blocks() > blocks && !testing::Test::HasFailure())
        expect_no_leak([&] { run(true); });
      if (met || made == 0 || asked_case() || testing::Test::HasFailure()) break;
      at.call = 1 + (at.call - 1) % made;
    }
    if (testing::Test::HasFailure()) break;
  }
  std::printf("%lld calls, %zu runs, a call failed in %zu; by status:",
              static_cast<long long>(total), tried.size(), failed);
  for (const auto& [status, count] : statuses) std::printf(" %d: %d", status, count);
  if (excused > 0) std::printf("; %zu not examined for leaks", excused);
  std::printf("\n");
  if (testing::Test::HasFailure()) return;
  EXPECT_GE(2 * failed, tried.size()) << "most of the calls that should fail were not made";
  watch.begin();
  ASSERT_NO_FATAL_FAILURE(run_whole(injector, scenario, last));
  EXPECT_TRUE(last == whole) << "the failures changed the results of later runs";
}

}  // namespace etr::failing
