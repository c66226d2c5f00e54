// Decisions of echo nodes that depend on time are repeated, from a log or from a saved position.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "core/packed.h"
#include "echo/decisions.h"
#include "echo/traces.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

// A run that is replayed from its log at another speed is the same run, also from a position within
// an epoch.
TEST(EchoDecisions, AReplayIsTheSameRun) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 200);
  int runs = 0;
  for (const std::string mode : {"auto", "on_demand"})
    // With a small factor, the run is mostly on credit.
    for (const std::string& options :
         {std::string(R"("factor": 6, "buffer": 40)"),
          std::string(R"("factor": 1.5, "buffer": 90)"),
          std::string(R"("factor": 3, "buffer": 9, "draw": "uniform")"),
          std::string(R"("factor": 3, "buffer": 9, "draw": "least_used")")}) {
      const std::string log = dir.path(std::to_string(++runs) + ".jsonl");
      const std::string stage = R"({"stage": "echo", "mode": ")" + mode + R"(", )" + options + ", ";
      Pipeline first(spec_of(pattern, stage + "\"log\": \"" + log + "\"}", "", 1, 2));
      const Trace epochs[] = {trace_of_epoch(first, 0.0002), trace_of_epoch(first, 0.0002)};
      EXPECT_GT(given_over_fresh(epochs[0]), 1) << stage;
      const Json again = spec_of(pattern, stage + "\"replay\": \"" + log + "\"}", "", 0.01, 2);
      Pipeline replayed(again);
      EXPECT_EQ(trace_of_epoch(replayed), epochs[0]) << stage;
      trace_of_epoch(replayed, 0, 380);
      Pipeline restored(again);
      restored.restore(parse_json(replayed.save().dump(), "state"));
      const Trace tail(epochs[1].begin() + 380, epochs[1].end());
      EXPECT_EQ(trace_of_epoch(replayed), tail) << stage;
      EXPECT_EQ(trace_of_epoch(restored), tail) << stage;
    }
}

// How many samples arrive after a `take` has what it wants depends on timing.
TEST(EchoDecisions, APassThatATakeHasEndedLeavesNothingToTheNext) {
  constexpr size_t kTaken = 70, kPasses = 3, kRead = 100;
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 100);
  int runs = 0;
  for (const std::string mode : {"auto", "on_demand"})
    for (const std::string draw : {"spread", "uniform"}) {
      const std::string log = dir.path(std::to_string(++runs) + ".jsonl");
      const auto spec = [&](const char* key, double delay_ms) {
        return spec_of(pattern,
                       R"({"stage": "echo", "factor": 3, "buffer": 50, "mode": ")" + mode +
                           R"(", "draw": ")" + draw + R"(", ")" + key + R"(": ")" + log + R"("})",
                       R"(, {"stage": "take", "count": 70}, {"stage": "repeat", "count": 3})",
                       delay_ms);
      };
      Pipeline first(spec("log", 0.5));
      const Trace trace = trace_of_epoch(first);
      ASSERT_EQ(trace.size(), kTaken * kPasses);
      EXPECT_GT(given_over_fresh(trace), 1);
      for (size_t i = 0; i < trace.size(); ++i)
        EXPECT_EQ(std::get<0>(trace[i]) >> pipeline::kPassShift, i / kTaken) << mode << ", " << i;
      const Json again = spec("replay", 0.01);
      Pipeline replayed(again);
      EXPECT_EQ(trace_of_epoch(replayed, 0, kRead), Trace(trace.begin(), trace.begin() + kRead));
      Pipeline restored(again);
      restored.restore(parse_json(replayed.save().dump(), "state"));
      const Trace tail(trace.begin() + kRead, trace.end());
      EXPECT_EQ(trace_of_epoch(replayed), tail) << mode << ", " << draw;
      EXPECT_EQ(trace_of_epoch(restored), tail) << mode << ", " << draw;
    }
}

// Positions of earlier versions count the samples of all passes together.
TEST(EchoDecisions, APositionThatDoesNotCountByPassIsRefusedInALaterPass) {
  constexpr uint64_t kSecondPass = uint64_t{1} << pipeline::kPassShift;
  echo::Decisions made("", "");
  made.load(0, pack_numbers(std::vector<uint64_t>{90, 2, 30, 1}));
  made.start_epoch(0);
  made.reach(100);  // the end of the first pass
  EXPECT_NE(error_text([&] { made.reach(kSecondPass + 1); }).find("a later pass"),
            std::string::npos);
  made.begin_run();
  made.reach(kSecondPass + 1);
}

// On the way to its position, a restored run makes no decisions of its own, even if the first run
// made none (without a delay).
TEST(EchoDecisions, ARestoredRunGoesOnWhereItWasSaved) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 500);
  for (const std::string mode : {"auto", "on_demand"})
    for (const double delay_ms : {0.0, 0.5}) {
      const Json spec = spec_of(
          pattern, R"({"stage": "echo", "factor": 2.5, "buffer": 50, "mode": ")" + mode + "\"}", "",
          delay_ms);
      Pipeline original(spec);
      Trace trace = trace_of_epoch(original, 0.0002, 600);
      Pipeline restored(spec);
      restored.restore(parse_json(original.save().dump(), "state"));
      Item item;
      while (restored.next(item) == Pipeline::Next::item) {
        EXPECT_FALSE(item.ghost);
        trace.emplace_back(item.ordinal, item.replica, item.age);
      }
      std::map<std::pair<uint64_t, uint32_t>, int> times;
      for (const auto& [ordinal, replica, age] : trace) ++times[{ordinal, replica}];
      EXPECT_EQ(times.size(), trace.size()) << mode << ": no copy comes twice";
      EXPECT_EQ(fresh_of(trace), 1000) << mode << ": and no sample is lost";
    }
}

// A run with a slow upstream, which echoes, is killed some way beyond a position. The restored run
// has a fast upstream and a slow consumer, so it echoes little or nothing there. The log must
// describe the first run up to the position, and then the restored one.
TEST(EchoDecisions, TheLogOfARestoredRunIsReplayed) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 100);
  int runs = 0;
  for (const std::string mode : {"auto", "on_demand"})
    for (const size_t stop : {size_t{0}, size_t{150}}) {
      const std::string log = dir.path(cat("killed", ++runs, ".jsonl"));
      const auto spec = [&](const std::string& file) {
        return spec_of(pattern,
                       cat(R"({"stage": "map", "function": "work"}, {"stage": "echo", "mode": ")",
                           mode, R"(", "factor": 4, "buffer": 40, ")", file, "\": \"", log, "\"}"),
                       "", 0, 2);
      };
      std::atomic<bool> slow{true};
      const pipeline::MapFunctions work{{"work", [&slow](Item&, uint64_t) {
                                           if (slow)
                                             std::this_thread::sleep_for(
                                                 std::chrono::milliseconds(1));
                                         }}};
      Json position;
      Trace first, begun;
      {
        Pipeline killed(spec("log"), work);
        first = trace_of_epoch(killed);
        begun = trace_of_epoch(killed, 0, stop);
        position = parse_json(killed.save().dump(), "state");
        trace_of_epoch(killed, 0, 200);
      }
      slow = false;
      Trace second = begun;
      {
        Pipeline restored(spec("log"), work);
        restored.restore(position);
        ASSERT_TRUE(restored.wait(60));
        const Trace rest = trace_of_epoch(restored, 0.0005);
        second.insert(second.end(), rest.begin(), rest.end());
      }
      Pipeline replayed(spec("replay"), work);
      EXPECT_EQ(trace_of_epoch(replayed), first) << mode << stop;
      EXPECT_EQ(trace_of_epoch(replayed), second) << mode << stop;
    }
}

TEST(EchoDecisions, ANewRunInTheLogOfAnotherIsReplayed) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 100), log = dir.path("log.jsonl");
  const auto spec = [&](const std::string& file, double delay_ms) {
    return spec_of(
        pattern,
        cat(R"({"stage": "echo", "mode": "on_demand", "factor": 4, ")", file, "\": \"", log, "\"}"),
        "", delay_ms);
  };
  {
    Pipeline earlier(spec("log", 1));
    EXPECT_GT(given_over_fresh(trace_of_epoch(earlier)), 1);
  }
  Trace trace;
  {
    Pipeline later(spec("log", 0));
    ASSERT_TRUE(later.wait(60));
    trace = trace_of_epoch(later, 0.0005);
  }
  Pipeline replayed(spec("replay", 0));
  EXPECT_EQ(trace_of_epoch(replayed), trace);
}

// A decision that cannot be repeated is not a bad record: a run that skips its sample would no
// longer be a replay.
TEST(EchoDecisions, AReplayThatDoesNotFitEndsTheRunUnderEveryPolicy) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 20), log = dir.path("log.jsonl");
  std::ofstream(log) << "{\"epoch\": 0, \"after\": 3, \"echoes\": 12}\n";
  for (const char* policy : {"fail", "skip", "quarantine", "substitute"})
    for (const char* options : {R"("factor": 1)", R"("factor": 2, "buffer": 3)"}) {
      Json spec = spec_of(pattern, cat(R"({"stage": "echo", "mode": "on_demand", "replay": ")", log,
                                       "\", ", options, "}"));
      spec["on_error"] = policy;
      spec["quarantine_dir"] = dir.path("bad");
      Pipeline p(spec);
      std::string message;
      try {
        trace_of_epoch(p);
      } catch (const Error& error) {
        message = error.what();
      }
      for (const std::string& part :
           {"'replay': '" + log + "'", std::string("after 3 fresh samples the saved run gave 12"),
            std::string("'factor' or 'buffer'")})
        EXPECT_NE(message.find(part), std::string::npos) << policy << ": " << message;
      EXPECT_EQ(message.find("on_error"), std::string::npos) << message;
      EXPECT_EQ(p.stats()["bad_records"], 0) << policy;
    }
}

TEST(EchoDecisions, AWrongLogIsNamed) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 10);
  const std::string log = dir.path("log.jsonl");
  std::ofstream(log) << "{\"epoch\": 0, \"after\": 1, \"echoes\": 2}\nnonsense\n";
  const auto error_of = [&](const std::string& options) -> std::string {
    try {
      Pipeline p(spec_of(pattern, R"({"stage": "echo", "factor": 2, )" + options + "}"));
      trace_of_epoch(p);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of(R"("mode": "auto", "replay": ")" + log + "\"").find("line 2"),
            std::string::npos);
  EXPECT_NE(error_of(R"("mode": "auto", "replay": "/no/such")").find("/no/such"),
            std::string::npos);
  std::ofstream(log) << "{\"epoch\": 0, \"after\": 3, \"echoes\": 400}\n";
  EXPECT_NE(error_of(R"("mode": "auto", "replay": ")" + log + "\"")
                .find("after 3 fresh samples the saved run gave 400 echoes"),
            std::string::npos);
  EXPECT_NE(error_of(R"("mode": "auto", "buffer_bytes": 1)").find("raise 'buffer_bytes'"),
            std::string::npos);
  EXPECT_NE(error_of(R"("log": ")" + log + "\"").find("fixed decides nothing"), std::string::npos);
}

// Of one byte and of more, and far apart.
TEST(EchoDecisions, EveryPlaceAndNumberIsSaved) {
  const std::vector<uint64_t> numbers = {1,   2,   127,   128,   129,   255,
                                         256, 300, 16383, 16384, 16385, uint64_t{1} << 40};
  echo::Decisions made("", "");
  made.start_epoch(3);
  uint64_t after = 0;
  for (const uint64_t number : numbers) {
    after += number;
    made.note(after, 7, nullptr);
    made.note(after, number, nullptr);  // takes the place of the one before
  }
  made.reach(after + 500);
  echo::Decisions again("", "");
  again.load(3, made.save(3));
  EXPECT_EQ(again.due(1), std::nullopt) << "in no epoch yet";
  again.start_epoch(3);
  after = 0;
  for (const uint64_t number : numbers) {
    after += number;
    EXPECT_EQ(again.due(after), number);
  }
  EXPECT_EQ(again.due(after + 1), std::nullopt);
  EXPECT_EQ(again.due(after + 500), 0u) << "no echoes up to where it was saved";
  EXPECT_TRUE(again.replaying(after + 500));
  EXPECT_FALSE(again.replaying(after + 501));
  again.start_epoch(4);
  EXPECT_FALSE(again.replaying(1));
}

TEST(EchoDecisions, WhereNothingWasDecidedNothingIsDecidedAgain) {
  echo::Decisions made("", "");
  made.start_epoch(0);
  made.reach(1);
  echo::Decisions again("", "");
  again.load(0, made.save(0));
  again.start_epoch(0);
  EXPECT_TRUE(again.replaying(1));
  EXPECT_FALSE(again.replaying(2));
}

// Once, and not by the copy of a node that only finds the way to a position.
TEST(EchoDecisions, ItIsToldWhereALogEnds) {
  TempDir dir;
  const std::string log = dir.path("log.jsonl");
  std::ofstream(log) << "{\"epoch\": 0, \"after\": 3, \"echoes\": 2}\n";
  int warnings = 0;
  set_log_hook([&](LogLevel level, const char* message) {
    warnings += level == LogLevel::warning && std::string(message).find(log) != std::string::npos;
  });
  for (const bool runs : {false, true}) {
    warnings = 0;
    echo::Decisions replayed("", log);
    replayed.start_epoch(0);
    if (runs) replayed.begin_run();
    EXPECT_EQ(replayed.due(3), 2u);
    for (const uint64_t epoch : {1, 2, 3}) replayed.start_epoch(epoch);
    EXPECT_EQ(warnings, runs);
  }
  echo::Decisions late("", log);
  late.start_epoch(1);
  warnings = 0;
  late.begin_run();
  EXPECT_EQ(warnings, 1);
  set_log_hook(nullptr);
}

// Reading it again would bring back what the run was restored beyond.
TEST(EchoDecisions, ALogIsReadOnce) {
  TempDir dir;
  const std::string log = dir.path("log.jsonl");
  std::ofstream(log) << "{\"epoch\": 0, \"after\": 3, \"echoes\": 2}\n";
  echo::Decisions replayed("", log);
  replayed.start_epoch(0);
  std::ofstream(log) << "nonsense\n";
  EXPECT_NO_THROW(replayed.start_epoch(1));
}

}  // namespace
}  // namespace etr::test
