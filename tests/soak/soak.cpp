// One process that opens, uses and closes everything, again and again, and must not hold more and
// more of anything.
//
//   soak [--seconds 60] [--seed 1] [--scenario NAME]... [--leak memory|descriptor|thread|child]
//        [--list]
//
// A round is every scenario once, in random order. After each round, when everything is closed, the
// program notes what it holds. The first third of the time is a warm-up: caches of the library, the
// driver and the C library fill. With `--leak` the program itself leaks a little in every round, to
// show that it would notice.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <thread>

#include "soak/data.h"
#include "soak/scenario.h"
#include "soak/trend.h"
#include "support/temp_dir.h"

namespace soak {

et::Runtime open_device() {
  const char* device = std::getenv("ECHOTRAIN_TEST_DEVICE");
  return et::Runtime(device ? device : "");
}

namespace {

namespace fs = std::filesystem;

struct Settings {
  double seconds = 60;
  uint32_t seed = 1;
  std::vector<std::string> only;
  std::string leak;
};

std::vector<Scenario> all_scenarios() {
  std::vector<Scenario> out;
  for (auto* of : {pipelines, trainers, runs, groups, errors})
    for (Scenario& scenario : of()) out.push_back(std::move(scenario));
  return out;
}

Settings parse(int count, char** words) {
  Settings out;
  for (int i = 1; i < count; ++i) {
    const std::string option = words[i];
    if (option == "--list") {
      for (const Scenario& scenario : all_scenarios()) std::cout << scenario.name << "\n";
      std::exit(0);
    }
    if (i + 1 == count)
      throw std::runtime_error("unknown option, or one without its value: " + option);
    const std::string value = words[++i];
    if (option == "--seconds")
      out.seconds = std::stod(value);
    else if (option == "--seed")
      out.seed = static_cast<uint32_t>(std::stoul(value));
    else if (option == "--scenario")
      out.only.push_back(value);
    else if (option == "--leak")
      out.leak = value;
    else
      throw std::runtime_error("unknown option " + option);
  }
  return out;
}

std::vector<Scenario> chosen(const Settings& settings) {
  std::vector<Scenario> out = all_scenarios();
  if (settings.only.empty()) return out;
  const auto asked = [&](const Scenario& scenario) {
    return std::find(settings.only.begin(), settings.only.end(), scenario.name) !=
           settings.only.end();
  };
  out.erase(std::remove_if(out.begin(), out.end(), [&](const Scenario& s) { return !asked(s); }),
            out.end());
  if (out.size() != settings.only.size())
    throw std::runtime_error("a scenario is unknown; --list lists them");
  return out;
}

void leak(const std::string& what) {
  static std::vector<void*> kept;
  if (what.empty()) return;
  if (what == "memory")
    std::memset(kept.emplace_back(std::malloc(100'000)), 1, 100'000);
  else if (what == "descriptor")
    expect(dup(0) >= 0, "a descriptor can be leaked");
  else if (what == "thread")
    std::thread([] { pause(); }).detach();
  else if (what == "child") {
    if (fork() == 0) _exit(0);
  } else
    throw std::runtime_error("unknown leak " + what);
}

void print(const Sample& sample) {
  std::printf("%9.1f %7lld", sample.seconds, static_cast<long long>(sample.round));
  for (size_t k = 0; k < kinds().size(); ++k)
    std::printf(*kinds()[k].unit ? " %15.3f" : " %12.0f", sample.held[k]);
  std::printf("\n");
  std::fflush(stdout);
}

void print_head() {
  std::printf("  seconds  rounds");
  for (const Kind& kind : kinds()) std::printf(*kind.unit ? " %*s MB" : " %*s", 12, kind.name);
  std::printf("\n");
}

class Soak {
 public:
  explicit Soak(const Settings& settings)
      : settings_(settings), scenarios_(chosen(settings)), dice_(settings.seed) {
    fs::create_directories(data());
    write_data(data());
  }

  // Whether everything stayed flat.
  bool run() {
    print_head();
    double next_line = 0;
    while (seconds() < settings_.seconds || samples_.size() < 9) {
      round();
      const Sample sample{seconds(), ++rounds_, amounts()};
      const bool warm = sample.seconds >= settings_.seconds / 3 && rounds_ > 3;
      if (warm) samples_.push_back(sample);
      if (sample.seconds < next_line) continue;
      print(sample);
      next_line = sample.seconds + settings_.seconds / 30;
    }
    std::printf("%lld rounds:", static_cast<long long>(rounds_));
    for (const auto& [name, count] : counts_)
      std::printf(" %s %lld,", name.c_str(), static_cast<long long>(count));
    std::printf(" %zu samples after the warm-up\n", samples_.size());
    const std::vector<std::string> faults = growing(samples_);
    for (const std::string& fault : faults) std::printf("soak: %s\n", fault.c_str());
    const double covered = samples_.back().seconds - samples_.front().seconds;
    for (const Kind& kind : kinds())
      if (covered < kind.settled_after)
        std::printf("not judged in less than %.0f seconds: %s\n", kind.settled_after, kind.name);
    std::printf(faults.empty() ? "passed: flat, seed %u\n" : "FAILED, seed %u\n", settings_.seed);
    return faults.empty();
  }

 private:
  std::string data() const { return folder_.path("data"); }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  void round() {
    std::vector<const Scenario*> order;
    for (const Scenario& scenario : scenarios_) order.push_back(&scenario);
    std::shuffle(order.begin(), order.end(), dice_);
    for (const Scenario* scenario : order) {
      const std::string work = folder_.path("work");
      fs::remove_all(work);
      fs::create_directory(work);
      Round mine{data(), work, std::mt19937(dice_())};
      try {
        scenario->run(mine);
      } catch (const std::exception& error) {
        throw std::runtime_error(std::string(scenario->name) + ", round " +
                                 std::to_string(rounds_ + 1) + ", --seed " +
                                 std::to_string(settings_.seed) + ": " + error.what());
      }
      ++counts_[scenario->name];
    }
    leak(settings_.leak);
  }

  const Settings settings_;
  const std::vector<Scenario> scenarios_;
  const etr::test::TempDir folder_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mt19937 dice_;
  int64_t rounds_ = 0;
  std::map<std::string, int64_t> counts_;
  std::vector<Sample> samples_;
};

}  // namespace
}  // namespace soak

int main(int count, char** words) {
  try {
    return soak::Soak(soak::parse(count, words)).run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "soak: %s\n", error.what());
    return 1;
  }
}
