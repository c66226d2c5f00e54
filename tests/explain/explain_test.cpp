#include "explain/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/rng.h"
#include "support/data.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

Json stage(const char* name, const char* kind, double us_per_item, int items, bool own = false,
           bool random = false) {
  return {{"name", name},
          {"kind", kind},
          {"random", random},
          {"own_thread", own},
          {"items_in", items},
          {"items_out", items},
          {"busy_s", us_per_item * 1e-6 * items}};
}

// 10,000 samples through source (10 us), decode (300 us), flip (20 us) on two threads, to a
// consumer that needs `consumer_us` for each.
Json stats_of(double consumer_us, double elapsed_s, int threads = 2) {
  const int n = 10000;
  return {{"threads", threads},
          {"cores", 8},
          {"elapsed_s", elapsed_s},
          {"stages",
           {stage("folder", "source", 10, n, true), stage("decode", "map", 300, n),
            stage("flip", "map", 20, n, false, true), stage("shuffle", "serial", 1, n)}},
          {"consumer",
           {{"items", n}, {"samples", n}, {"waiting_s", elapsed_s - consumer_us * 1e-6 * n}}}};
}

const Json& predicted(const Json& e, const std::string& change) {
  for (const Json& p : e["predictions"])
    if (p["change"] == change) return p;
  ADD_FAILURE() << "no prediction for " << change;
  return e["predictions"][0];
}

TEST(Explain, ASlowMapIsTheBottleneck) {
  const Json e = explain::explain(stats_of(10, 1.61));
  EXPECT_EQ(e["bottleneck"]["stage"], "decode");
  EXPECT_NEAR(e["stages"][1]["samples_per_s_alone"].get<double>(), 2 / 300e-6, 1);
  EXPECT_NEAR(e["stages"][0]["samples_per_s_alone"].get<double>(), 1 / 10e-6, 1)
      << "a source works on one thread";
  EXPECT_NEAR(e["possible_samples_per_s"].get<double>(), 2 / 321e-6, 1);
  EXPECT_NEAR(predicted(e, "threads")["gain"].get<double>(), 2, 0.01);
  EXPECT_NEAR(predicted(e, "cache")["samples_per_s"].get<double>(), 2 / 21e-6, 1)
      << "decode and folder are gone, flip is random and stays";
  const Json& echo = predicted(e, "echo");
  EXPECT_EQ(echo["factor"], 8);
  EXPECT_NEAR(echo["samples_per_s"].get<double>(), 2 / (300e-6 / 8 + 21e-6), 1);
}

TEST(Explain, ASlowConsumerIsTheBottleneck) {
  const Json e = explain::explain(stats_of(1000, 10.0));
  EXPECT_EQ(e["bottleneck"]["stage"], "consumer");
  EXPECT_NEAR(e["stages"][1]["headroom"].get<double>(), 6.67, 0.01);
  for (const Json& p : e["predictions"]) EXPECT_NEAR(p["gain"].get<double>(), 1, 0.02) << p.dump();
}

// A pipeline of any stages, at rest or in haste.
Json any_stats(Rng& rng, int stages) {
  const double elapsed = 1 + rng.below(20);
  Json stats{{"threads", 1 + rng.below(8)},
             {"cores", 8},
             {"elapsed_s", elapsed},
             {"stages", Json::array()}};
  const char* const kinds[] = {"map", "serial"};
  for (int i = 0; i < stages; ++i) {
    const char* kind = i == 0 ? "source" : kinds[rng.below(2)];
    stats["stages"].push_back(stage(cat("stage ", i).c_str(), kind, rng.below(400), 10000, i == 0));
    stats["stages"].back()["queue_items"] = rng.below(9);
    stats["stages"].back()["queue_limit_items"] = 8;
  }
  stats["consumer"] = {
      {"items", 10000}, {"samples", 10000}, {"waiting_s", rng.below(1000) * 0.001 * elapsed}};
  return stats;
}

TEST(Explain, TheBottleneckHasTheLeastHeadroom) {
  Rng rng(1);
  std::set<std::string> met;
  for (int trial = 0; trial < 500; ++trial) {
    const Json e = explain::explain(any_stats(rng, 2 + static_cast<int>(rng.below(12))));
    const std::string limit = e["bottleneck"]["limit"];
    double least = e["pool"]["headroom"], named = least;
    for (const Json& s : e["stages"]) {
      least = std::min(least, s["headroom"].get<double>());
      if (limit != "threads" && s["name"] == e["bottleneck"]["stage"]) named = s["headroom"];
    }
    if (limit == "threads" || limit == "stage") {
      EXPECT_LE(named, 1.06 * least) << e.dump(1);
      EXPECT_NEAR(least, 1, 1e-9) << e.dump(1);
    }
    EXPECT_EQ(e["bottleneck"]["stage"].is_null(), limit == "none") << e.dump(1);
    if (limit == "consumer") {
      EXPECT_LE(e["consumer"]["waiting_share"], 0.5) << e.dump(1);
    }
    met.insert(limit);
    EXPECT_NE(explain::to_text(e).find("thread"), std::string::npos);
  }
  EXPECT_EQ(met, (std::set<std::string>{"consumer", "none", "stage", "threads"}));
}

// Every number after `key=` in the drawing.
std::vector<double> attributes(const std::string& svg, const std::string& key) {
  std::vector<double> out;
  for (size_t at = 0; (at = svg.find(" " + key + "='", at)) != std::string::npos; ++at)
    out.push_back(std::stod(svg.substr(at + key.size() + 3)));
  return out;
}

TEST(Explain, NothingIsDrawnBeyondTheEdge) {
  Rng rng(2);
  for (int stages = 1; stages < 14; ++stages) {
    const std::string svg = explain::to_svg(explain::explain(any_stats(rng, stages)));
    const double width = attributes(svg, "width")[0], height = attributes(svg, "height")[0];
    size_t gauges = 0;
    for (size_t at = 0; (at = svg.find("<rect rx=", at)) != std::string::npos; ++at) {
      const std::string rect = svg.substr(at, svg.find('>', at) - at);
      EXPECT_LE(attributes(rect, "x")[0] + attributes(rect, "width")[0], width) << svg;
      EXPECT_LE(attributes(rect, "y")[0] + attributes(rect, "height")[0], height) << svg;
      gauges += svg.compare(at + rect.size(), 8, "><title>") == 0;
    }
    EXPECT_EQ(gauges, static_cast<size_t>(stages));
  }
}

TEST(Explain, NothingYetIsAnError) {
  Json stats = stats_of(10, 1);
  stats["consumer"]["samples"] = 0;
  EXPECT_THROW(explain::explain(stats), Error);
  stats["stages"][3]["items_in"] = 97;
  stats["stages"][3]["items_out"] = 0;
  try {
    explain::explain(stats);
    ADD_FAILURE() << "there is nothing to explain";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'shuffle' has taken 97 items and given none"),
              std::string::npos)
        << error.what();
  }
}

// A quarter of what decode has made waits in the buffer of the shuffle.
TEST(Explain, WhatAShuffleHoldsIsNotTheConsumersCost) {
  Json stats = stats_of(10, 1.61);
  stats["stages"][3]["items_out"] = 7500;
  stats["consumer"]["items"] = stats["consumer"]["samples"] = 7500;
  const Json e = explain::explain(stats);
  EXPECT_NEAR(e["stages"][1]["us_per_sample"].get<double>(), 300, 1e-6);
}

TEST(Explain, AnEchoMayStandBehindADelay) {
  Json stats = stats_of(10, 10000 * 2000e-6);
  auto& stages = stats["stages"].get_ref<Json::array_t&>();
  stages.insert(stages.begin() + 1, stage("delay", "serial", 2000, 10000));
  const Json delayed = explain::explain(stats);
  EXPECT_EQ(delayed["bottleneck"]["stage"], "delay");
  EXPECT_NEAR(predicted(delayed, "echo")["gain"].get<double>(), 8, 0.1);
  EXPECT_NE(predicted(delayed, "echo")["detail"].get<std::string>().find("after 'decode'"),
            std::string::npos);
  EXPECT_GT(predicted(delayed, "cache")["gain"].get<double>(), 10);
  stages.insert(stages.begin() + 1, stage("repeat", "serial", 0, 10000));
  const Json endless = explain::explain(stats);
  EXPECT_NEAR(predicted(endless, "echo")["gain"].get<double>(), 8, 0.1);
  EXPECT_GT(predicted(endless, "cache")["gain"].get<double>(), 10) << "from its second pass on";
}

// Of 10,000 samples the cache had 9,900, which passed 'decode' without being counted there.
TEST(Explain, ACacheSparesTheStagesBeforeIt) {
  Json stats = stats_of(10, 10000 * 30e-6);
  auto& stages = stats["stages"].get_ref<Json::array_t&>();
  stages[1] = stage("decode", "map", 300, 100);
  stages.insert(stages.begin() + 2, stage("cache", "map", 1, 10000));
  const Json e = explain::explain(stats);
  EXPECT_NEAR(e["stages"][0]["us_per_sample"].get<double>(), 10, 1e-6);
  EXPECT_NEAR(e["stages"][1]["us_per_sample"].get<double>(), 3, 1e-6);
  EXPECT_NEAR(e["stages"][2]["us_per_sample"].get<double>(), 1, 1e-6);
  for (const Json& p : e["predictions"]) EXPECT_NE(p["change"], "cache") << "there is one";
}

// Every way to leave out or retype one value of the statistics, or to make it 0 or huge.
void each_change(const Json& whole, const Json::json_pointer& at,
                 const std::function<void(const Json&, const std::string&)>& take) {
  const auto changed = [&](const Json& value) {
    Json copy = whole;
    copy[at] = value;
    take(copy, cat(at.to_string(), " = ", value.dump()));
  };
  for (const char* value : {"null", "true", "\"x\"", "[]", "{}", "[null]", "{\"a\": 1}", "0", "-1",
                            "1.5", "1e300", "18446744073709551615", "1e-300"})
    changed(Json::parse(value));
  const Json& here = whole[at];
  if (!here.is_structured()) return;
  for (const auto& [key, unused] : here.items()) {
    Json copy = whole;
    if (here.is_array())
      copy[at].erase(static_cast<size_t>(std::stoul(key)));
    else
      copy[at].erase(key);
    take(copy, cat(at.to_string(), " without ", key));
    each_change(whole,
                here.is_array() ? at / static_cast<size_t>(std::stoul(key)) : at / std::string(key),
                take);
  }
}

TEST(Explain, RefusesWhatAreNoStatistics) {
  Json stats = stats_of(10, 1.61);
  stats["stages"][1]["queue_items"] = 3;
  stats["stages"][1]["queue_limit_items"] = 64;
  int refused = 0;
  each_change(stats, Json::json_pointer(""), [&](const Json& changed, const std::string& how) {
    SCOPED_TRACE(how);
    try {
      Json e = explain::explain(changed);
      explain::to_text(e);
      explain::to_svg(e);
      if (e["bottleneck"]["limit"] == "none") e["bottleneck"].erase("stage");  // which is null then
      EXPECT_EQ(e.dump().find("null"), std::string::npos) << "no number came out";
    } catch (const Error& error) {
      ++refused;
      if (error.code() == Code::state) return;
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_EQ(std::string(error.what()).find("these are not the statistics of a pipeline: "), 0u);
    }
  });
  EXPECT_GT(refused, 200);
  for (const char* text : {"{}", "[]", "null", "3", "{\"stages\": []}"})
    EXPECT_THROW(explain::explain(Json::parse(text)), Error) << text;
}

TEST(Explain, UsesTheRightArticle) {
  const std::string text = explain::to_text(explain::explain(stats_of(1000, 10.0)));
  EXPECT_NE(text.find("an echo would change little"), std::string::npos) << text;
  EXPECT_NE(text.find("a cache would change little"), std::string::npos) << text;
}

TEST(Explain, TextAndDrawingNameEveryStage) {
  const Json e = explain::explain(stats_of(10, 1.61));
  const std::string text = explain::to_text(e), svg = explain::to_svg(e);
  for (const char* name : {"folder", "decode", "flip", "shuffle", "consumer"}) {
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(svg.find(name), std::string::npos) << name;
  }
  EXPECT_NE(text.find("2.00 x"), std::string::npos) << text;
  EXPECT_TRUE(svg.starts_with("<svg"));
}

// A source that gives a sample every 3 ms is named, and an echo after it gains. Other work on the
// machine can only add time.
TEST(Explain, NamesASlowSourceAndWhatAnEchoGains) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 400);
  const auto stats_after = [&](const Json& last, int items) {
    Pipeline p(Json{{"stages",
                     {{{"stage", "webdataset"}, {"pattern", pattern}},
                      {{"stage", "delay"}, {"milliseconds", 3}},
                      last}}});
    Item item;
    for (int i = 0; i < items; ++i)
      if (p.next(item) != Pipeline::Next::item) --i;
    return p.stats();
  };
  Json plain;
  for (int attempt = 0; attempt < 5; ++attempt) {  // a machine that stands still has no bottleneck
    plain = explain::explain(stats_after({{"stage", "label"}, {"field", "txt"}}, 150));
    if (plain["bottleneck"]["stage"] == "delay") break;
  }
  EXPECT_EQ(plain["bottleneck"]["stage"], "delay");
  EXPECT_LT(plain["samples_per_s"], 345);
  const Json stats = stats_after({{"stage", "echo"}, {"factor", 4}, {"buffer", 1}}, 600);
  EXPECT_LT(explain::explain(stats)["samples_per_s"], 4 * 345);
  EXPECT_EQ(stats["consumer"]["fresh"], 150) << "four for each that the source gave";
}

TEST(Trace, HasATrackForEachThreadAndKeepsTheNewest) {
  TempDir dir;
  const Json spec{{"trace_events", 50},
                  {"epochs", 1},
                  {"stages",
                   {{{"stage", "webdataset"}, {"pattern", make_shards(dir, 2, 2000)}},
                    {{"stage", "label"}},
                    {{"stage", "shuffle"}, {"buffer", 100}}}}};
  Pipeline p(spec);
  digest_of_epoch(p);
  const Json trace = p.trace_json();
  int events = 0, tracks = 0;
  double last = 0;
  for (const Json& row : trace["traceEvents"]) {
    tracks += row["ph"] == "M";
    if (row["ph"] != "X") continue;
    ++events;
    EXPECT_GE(row["ts"].get<double>(), last);
    EXPECT_GE(row["dur"].get<double>(), 0);
    last = row["ts"];
  }
  EXPECT_EQ(events, 50);
  EXPECT_GE(tracks, 2);
  Pipeline without(Json{{"stages", spec["stages"]}});
  EXPECT_THROW(without.trace_json(), Error);
}

}  // namespace
}  // namespace etr::test
