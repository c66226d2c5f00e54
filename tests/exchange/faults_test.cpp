// Ranks on Gloo that die, freeze, leave or abort: the survivors learn in time which one it was.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "exchange/ranks.h"
#include "support/eventually.h"

namespace etr::test {
namespace {

using exchange::Group;
using exchange::open_group;
using exchange::RankLost;
using exchange::World;
using Clock = std::chrono::steady_clock;

constexpr int kSize = 3;
constexpr double kSlack = 10;  // seconds that a loaded machine may need beyond a time-out

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void sum_once(Group& group, size_t count = 1000) {
  std::vector<float> values(count, 1.0f);
  group.all_reduce(std::span(values));
}

// Repeats `operation` until a rank is lost. Returns the missing ranks, or what else was wrong.
std::string missing_after(Group& group, const std::function<void(Group&)>& operation) {
  auto begin = Clock::now();
  try {
    while (true) {
      begin = Clock::now();
      operation(group);
    }
  } catch (const RankLost& lost) {
    const double took = seconds_since(begin);
    if (took > group.timeout() + kSlack) return cat("after ", took, " s: ", lost.what());
    group.set_timeout(60);
    const auto again = Clock::now();
    try {
      operation(group);
      return "a dead group works";
    } catch (const Error& dead) {
      if (seconds_since(again) > 10) return "a dead group waits";
      if (std::string(dead.what()).find("this group ended before") != 0) return dead.what();
    }
    return exchange::ranks_text(lost.missing());
  }
}

// Returns the helper processes that a rank has started.
std::vector<pid_t> helpers_of(pid_t process) {
  std::ifstream in(cat("/proc/", process, "/task/", process, "/children"));
  std::vector<pid_t> out;
  for (pid_t child; in >> child;) out.push_back(child);
  return out;
}

struct Fault {
  const char* name;
  double timeout_s;
  std::function<void(const World&, Group&)> victim;  // what rank 1 does once the group has formed
  std::function<void(Ranks&)> strike;                // what then happens to rank 1
  std::function<void(Group&)> survivor = [](Group& g) { sum_once(g); };
  std::string missing = "rank 1";
};

void idle(const World& world, Group&) {
  say(world, "here");
  pause();
}
void work(const World& world, Group& group) {
  for (int i = 0;; ++i) {
    sum_once(group);
    if (i == 5) say(world, "here");
  }
}
void nothing(Ranks&) {}
std::function<void(Ranks&)> send(int number) {
  return [=](Ranks& ranks) { ranks.signal(1, number); };
}
std::function<void(Ranks&)> send_helper(int number) {
  return [=](Ranks& ranks) {
    for (const pid_t helper : helpers_of(ranks.process(1))) ::kill(helper, number);
  };
}
void both(Ranks& ranks, int number) {
  send_helper(number)(ranks);
  ranks.signal(1, number);
}

// A death is noticed at once, whatever the time-out; a frozen or late rank after it.
constexpr double kLong = 30, kShort = 4;

const Fault kFaults[] = {
    {"KilledWhileIdle", kLong, idle, send(SIGKILL)},
    {"KilledWhileWorking", kLong, work, send(SIGKILL)},
    {"Terminated", kLong, work, send(SIGTERM)},
    {"Crashed", kLong, idle, send(SIGSEGV)},
    {"HelperKilledWhileIdle", kLong, idle, send_helper(SIGKILL)},
    {"HelperKilledWhileWorking", kLong,
     [](const World& w, Group& g) {
       try {
         work(w, g);
       } catch (const Error&) {
       }
     },
     send_helper(SIGKILL)},
    {"KilledWithItsHelper", kLong, idle, [](Ranks& r) { both(r, SIGKILL); }},
    {"FrozenWhileIdle", kShort, idle, send(SIGSTOP)},
    {"FrozenWhileWorking", kShort, work, send(SIGSTOP)},
    {"FrozenWithItsHelper", kShort, idle, [](Ranks& r) { both(r, SIGSTOP); }},
    {"FrozenHelper", kShort, idle, send_helper(SIGSTOP)},
    {"Late", kShort, idle, nothing},
    {"Exits", kLong, [](const World&, Group&) { _exit(0); }, nothing},
    {"Leaves", kLong, [](const World&, Group&) {}, nothing},
    {"Aborts", kLong, [](const World&, Group& g) { g.abort("the disk is full"); }, nothing},
    {"AbortsWhileItWaits", kLong,
     [](const World&, Group& g) {
       std::thread other([&] { g.abort("no more"); });
       try {
         g.receive({}, 2, 1);
       } catch (const Error&) {
       }
       other.join();
     },
     nothing},
    {"KilledBeforeABarrier", kLong, idle, send(SIGKILL), [](Group& g) { g.barrier(); }},
    {"KilledBeforeASplit", kLong, idle, send(SIGKILL), [](Group& g) { g.split(0, 0); }},
    {"KilledBeforeItReceives", kLong, idle, send(SIGKILL), [](Group& g) { g.send({}, 1, 7); }},
    {"FrozenBeforeItSends", kShort, idle, send(SIGSTOP), [](Group& g) { g.receive({}, 1, 7); }},
    {"KilledDuringLargeSums", kLong,
     [](const World& w, Group& g) {
       say(w, "here");
       while (true) sum_once(g, 3'000'000);
     },
     send(SIGKILL), [](Group& g) { sum_once(g, 3'000'000); }},
};

class Faults : public testing::TestWithParam<Fault> {};

TEST_P(Faults, SurvivorsNameTheRank) {
  const Fault& fault = GetParam();
  World world;
  world.timeout_s = fault.timeout_s;
  Ranks ranks(
      kSize,
      [&](const World& mine) -> std::string {
        World forming = mine;
        forming.timeout_s = 30;
        Group group = open_group(forming);
        group.set_timeout(mine.timeout_s);
        if (mine.rank != 1) return missing_after(group, fault.survivor);
        fault.victim(mine, group);
        return "";
      },
      world);
  if (fault.strike.target<void (*)(Ranks&)>() == nullptr ||
      *fault.strike.target<void (*)(Ranks&)>() != nothing)
    ranks.said(1, "here");
  std::vector<pid_t> helpers;
  for (int r = 0; r < kSize; ++r)
    for (const pid_t helper : helpers_of(ranks.process(r))) helpers.push_back(helper);
  const auto begin = Clock::now();
  fault.strike(ranks);
  for (const int survivor : {0, 2}) EXPECT_EQ(ranks.outcome(survivor), fault.missing);
  if (fault.timeout_s == kLong) {
    EXPECT_LT(seconds_since(begin), kLong) << "a death is noticed at once";
  }
  ranks.signal(1, SIGKILL);
  ranks.signal(1, SIGCONT);
  for (const pid_t helper : helpers) {  // none is left behind
    ::kill(helper, SIGCONT);
    EXPECT_TRUE(eventually([&] {
      return ::kill(helper, 0) != 0 ||
             std::ifstream(cat("/proc/", helper, "/cmdline")).peek() == EOF;
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Faults, testing::ValuesIn(kFaults),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace etr::test
