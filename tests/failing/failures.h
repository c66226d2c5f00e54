// Runs a scenario once for every call that can fail in it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace etr::failing {

// What makes calls fail. Calls are counted from 1 since the last arm() or disarm().
class Injector {
 public:
  virtual ~Injector() = default;
  // Call `call` fails with the error number `error` of those that it may give.
  virtual void arm(int64_t call, size_t error) = 0;
  virtual void disarm() = 0;
  virtual int64_t calls() const = 0;
  virtual size_t errors_of(int64_t call) const = 0;  // how many call number `call` may give
  virtual std::string failed_call() const = 0;       // what failed, and how; "" if nothing has
  virtual std::string left_behind() const = 0;       // what exists, to be compared with before
  virtual std::vector<std::string> take_breaches() { return {}; }  // wrong use, since the last time
};

// What a scenario ended with: 0 (ETR_OK) or a negative status and its message.
struct Outcome {
  int32_t status = 0;
  std::string message;
};

// Appends to `results` what must not depend on failures.
using Scenario = std::function<Outcome(std::string& results)>;

struct Expectations {
  std::set<int32_t> statuses;  // beside 0
  // Called after each run that met a failure, for what a program does next.
  std::function<void(const Outcome&)> after = [](const Outcome&) {};
  size_t runs = 120;  // calls and errors that are tried, evenly; ECHOTRAIN_TEST_FAILURES changes it
  int least_calls = 10;
  bool frees_memory = true;
};

// Runs the scenario once for each error of each call, and adds a gtest failure, with how to repeat
// it, on the first run that
//  - ends with an error other than the expected ones, or with success and other results,
//  - leaves something behind, memory included, or breaks a rule of what it calls,
//  - does not end within ten minutes: this ends the program;
// and at the end, if fewer than half of the runs have met their failure.
//
// ECHOTRAIN_TEST_FAILURES=N tries N of them, 0 all of them, and K/N the K-th of N parts of them.
// ECHOTRAIN_TEST_FAILURE="CALL ERROR" tries one.
void fail_everywhere(Injector& injector, const Scenario& scenario, const Expectations& expected);

}  // namespace etr::failing
