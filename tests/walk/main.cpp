// Walks at random over the C API: any call that the header permits, or for which it promises an
// error, in any order. Fails if a call returns what the header does not allow there, leaves no
// message, hangs, or if anything is left when all handles are destroyed.
//
//   walk [--calls N] [--seed S] [--within SECONDS] [--patience SECONDS]
//
// --within is what an effect may take that the header promises soon, such as the end of a call that
// was cancelled; --patience is the longest that any call may take.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "walk.h"

namespace {

walk::Trace* crashed = nullptr;

void on_crash(int number) {
  std::signal(number, SIG_DFL);
  crashed->print_after_crash();
  std::raise(number);
}

// Looks every second whether a call has lasted for too long.
class Watchdog {
 public:
  explicit Watchdog(walk::Trace& trace) : trace_(trace), thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::seconds(1), [this] { return ends_; }))
      trace_.check_patience();
  }

  walk::Trace& trace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

struct Arguments {
  uint64_t calls = 10000, seed = 1;
  double within_s = 10, patience_s = 120;
};

bool parse(int argc, char** argv, Arguments& out) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return false;
    if (name == "--calls")
      out.calls = std::strtoull(argv[i + 1], nullptr, 10);
    else if (name == "--seed")
      out.seed = std::strtoull(argv[i + 1], nullptr, 10);
    else if (name == "--within")
      out.within_s = std::strtod(argv[i + 1], nullptr);
    else if (name == "--patience")
      out.patience_s = std::strtod(argv[i + 1], nullptr);
    else
      return false;
  }
  return out.calls > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: walk [--calls N] [--seed S] [--within SECONDS] [--patience SECONDS]\n");
    return 2;
  }
  const std::string repeat = std::string(argv[0]) + " --calls " + std::to_string(arguments.calls) +
                             " --seed " + std::to_string(arguments.seed);
  std::printf("%s\n", repeat.c_str());
  std::fflush(stdout);
  walk::Trace trace(repeat, arguments.patience_s);
  crashed = &trace;
#ifndef __SANITIZE_ADDRESS__  // whose own report says more
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(number, on_crash);
#endif
  std::string folder = (std::filesystem::temp_directory_path() / "echotrain-walk-XXXXXX").string();
  if (!mkdtemp(folder.data())) {
    std::perror(folder.c_str());
    return 2;
  }
  {
    const Watchdog watchdog(trace);
    walk::Walk walker(trace, arguments.seed, folder, arguments.within_s);
    // The more rests, the sooner it is seen that something is left; the fewer, the more handles
    // meet.
    const uint64_t between = std::clamp<uint64_t>(arguments.calls / 8, 500, 5000);
    uint64_t next_rest = between;
    for (uint64_t number = 0; trace.calls() < arguments.calls; ++number) {
      walker.step(number);
      if (trace.calls() < next_rest) continue;
      walker.rest();
      next_rest = trace.calls() + between;
    }
    walker.rest();
    walker.print_rest();
  }
  std::filesystem::remove_all(folder);
  trace.print_counts();
  std::printf("%llu calls, nothing found\n", static_cast<unsigned long long>(trace.calls()));
  return 0;
}
