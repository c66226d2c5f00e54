// Metrics files and the report.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/json.h"
#include "core/platform.h"
#include "core/rng.h"
#include "support/data.h"
#include "train/metrics.h"
#include "train/report.h"
#include "train/report_runs.h"
#include "train/run_folder.h"

namespace etr::test {
namespace {

std::vector<std::string> event_records(const std::string& file) {
  const std::string bytes = platform::read_file(file);
  size_t at = 0;
  std::vector<std::string> records;
  const auto masked = [](std::string_view data) {
    const uint32_t crc = crc32c(std::as_bytes(std::span(data)));
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
  };
  while (at < bytes.size()) {
    uint64_t length = 0;
    uint32_t length_crc = 0, data_crc = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&length_crc, bytes.data() + at + 8, 4);
    EXPECT_EQ(length_crc, masked({bytes.data() + at, 8}));
    records.push_back(bytes.substr(at + 12, length));
    std::memcpy(&data_crc, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(data_crc, masked(records.back()));
    at += 16 + length;
  }
  return records;
}

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (train::EventFile::is_name(entry.path().filename().string()))
      files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());  // the order in which TensorBoard reads them
  return files;
}

TEST(EventFile, FramesAreWhatTensorBoardReads) {
  TempDir dir;
  { train::EventFile(dir.path()).write(300, {{"loss", 0.25}}); }
  const auto records = event_records(event_files(dir.path()).at(0));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
  // step 300 = varint AC 02; summary { value { tag "loss" simple_value 0.25 } }
  EXPECT_NE(records[1].find("\x10\xAC\x02"), std::string::npos);
  EXPECT_NE(records[1].find(std::string("\x0A\x04loss\x15\x00\x00\x80\x3E", 11)),
            std::string::npos);
}

// Names of files that are made within one second sort in the order in which they were made.
TEST(EventFile, LaterOnesComeLater) {
  TempDir dir;
  for (uint64_t step = 1; step <= 12; ++step) train::EventFile(dir.path()).write(step, {});
  const auto files = event_files(dir.path());
  ASSERT_EQ(files.size(), 12u);
  for (size_t i = 0; i < files.size(); ++i)
    EXPECT_EQ(event_records(files[i]).at(1).substr(9, 2),
              (std::string{'\x10', static_cast<char>(i + 1)}));
}

// The resumed run's file begins with a session start, whose step tells TensorBoard from where on to
// discard what it has read.
TEST(EventFile, OfARunThatGoesOnVoidsWhatComesAgain) {
  TempDir dir;
  {
    train::RunFolder killed(dir.path(), train::Start::new_run, true);
    for (uint64_t step = 1; step <= 9; ++step) {
      killed.write_row({{"kind", "step"}, {"step", step}});
      killed.write_scalars(step, {{"loss", 0.5}});
    }
  }
  train::RunFolder resumed(dir.path(), train::Start::resume, true);
  resumed.go_on_after(5, true);
  resumed.write_scalars(6, {{"loss", 0.5}});
  const auto files = event_files(dir.path());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(event_records(files[0]).size(), 10u) << "the version and nine steps, no session start";
  const auto records = event_records(files[1]);
  ASSERT_EQ(records.size(), 3u);
  const std::string start("\x10\x06\x3A\x02\x08\x01");  // step 6; session_log { status START }
  EXPECT_EQ(records[1].substr(9), start);
  EXPECT_EQ(records[2].substr(9, 2), start.substr(0, 2));
}

// Rows are read one by one, so a huge or endless file is an error and does not fill the memory.
TEST(Report, AFileWithoutEndIsRefused) {
  TempDir dir;
  const std::string path = dir.path("metrics.jsonl");
  std::ofstream(path) << R"({"kind": "step", "step": 1, "seconds": 1})"
                      << "\n";
  std::filesystem::resize_file(path, uint64_t{100} << 30);
  for (const std::string& file : {path, std::string("/dev/zero")}) try {
      train::load_run({"run", file});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("'" + file + "'"), std::string::npos)
          << error.what();
    }
}

std::string write_run(const TempDir& dir, const std::string& name, double scale,
                      double slope = 0.05) {
  const std::string path = dir.path(name);
  train::JsonLines lines(path);
  for (int i = 1; i <= 10; ++i) {
    lines.write({{"kind", "step"},
                 {"step", i},
                 {"seconds", i * scale},
                 {"busy_seconds", 0.5 * i * scale},
                 {"examples", i * 8},
                 {"fresh", i * 8 * scale}});
    lines.write({{"kind", "evaluation"},
                 {"step", i},
                 {"seconds", i * scale},
                 {"fresh", i * 8 * scale},
                 {"eval_accuracy", 0.5 + slope * i}});
  }
  return path;
}

TEST(Report, TableAndPage) {
  TempDir dir;
  const std::vector<train::ReportRun> runs = {{"slow <b>", write_run(dir, "a", 4)},
                                              {"fast", write_run(dir, "b", 1)}};
  const Json table = train::write_report("Title & co", runs, 0.8, dir.path("r.html"));
  EXPECT_EQ(table[0]["time_to_target_s"], 24);
  EXPECT_EQ(table[1]["time_to_target_s"], 6);
  EXPECT_EQ(table[1]["speedup"], 4);
  EXPECT_EQ(table[1]["fresh_to_target"], 48);
  EXPECT_EQ(table[1]["device_wait_share"], 0.5);
  // If the first run never reaches the target, the speed-up is a lower bound: its 40 s over the
  // other's 6 s.
  const Json bound = train::write_report("t", {{"never", write_run(dir, "c", 4, 0.02)}, runs[1]},
                                         0.8, dir.path("bound.html"));
  EXPECT_TRUE(bound[0]["speedup"].is_null());
  EXPECT_TRUE(bound[1]["speedup_is_bound"].get<bool>());
  EXPECT_NEAR(bound[1]["speedup"].get<double>(), 40.0 / 6, 1e-9);
  const std::string html = platform::read_file(dir.path("r.html"));
  EXPECT_NE(html.find("Title &amp; co"), std::string::npos);
  EXPECT_EQ(html.find("slow <b>"), std::string::npos) << "names are escaped";
  EXPECT_EQ(html.find("http"), std::string::npos) << "the page loads nothing";
  EXPECT_THROW(train::write_report("t", {{"x", dir.path("none")}}, 0, dir.path("r")), Error);
}

// Returns the first sentence of the report, without markup and with plain spaces.
std::string headline_of(const TempDir& dir, const std::vector<train::ReportRun>& runs) {
  train::write_report("t", runs, 0.8, dir.path("r.html"));
  const std::string html = platform::read_file(dir.path("r.html"));
  constexpr std::string_view kLead = "<p class='lead'>";
  const size_t begin = html.find(kLead);
  if (begin == std::string::npos) return "";
  const size_t text = begin + kLead.size();
  std::string lead = html.substr(text, html.find("</p>", text) - text);
  for (const auto& [from, to] : {std::pair("<b>", ""), {"</b>", ""}, {"\u00a0", " "}})
    for (size_t at; (at = lead.find(from)) != std::string::npos;)
      lead.replace(at, std::strlen(from), to);
  return lead;
}

TEST(Report, TheHeadlineSaysWhatTheTableSays) {
  TempDir dir;
  constexpr double kMisses = 0.02;  // the slope of a run that does not reach the target
  const train::ReportRun fast{"fast", write_run(dir, "a", 1)}, slow{"slow", write_run(dir, "b", 2)},
      slowest{"slowest", write_run(dir, "c", 4)}, at_once{"at once", write_run(dir, "d", 0)},
      missed{"missed", write_run(dir, "e", 1, kMisses)},
      slow_missed{"slow & missed", write_run(dir, "f", 4, kMisses)};
  const auto headline = [&](const train::ReportRun& base, const train::ReportRun& last) {
    return headline_of(dir, {base, last});
  };
  EXPECT_EQ(headline(slow, fast),
            "2 × faster to the target, with 50 % fewer examples read from upstream.");
  EXPECT_EQ(headline(fast, slow),
            "2 × slower to the target, with 100 % more examples read from upstream.");
  EXPECT_EQ(headline(fast, {"again", fast.metrics_path}),
            "About as fast to the target, with 0 % fewer examples read from upstream.");
  EXPECT_EQ(headline(missed, slow_missed), "No run reached the target accuracy.");
  EXPECT_EQ(headline(fast, slow_missed),
            "slow &amp; missed did not reach the target in 40 s; "
            "fast reached the target in 6 s.");
  EXPECT_EQ(headline(slow_missed, fast),
            "&gt; 6.7 × faster to the target; "
            "slow &amp; missed did not reach the target in 40 s.");
  EXPECT_EQ(headline(missed, slowest),
            "slowest reached the target in 24 s; missed did not reach the target in 10 s.");
  EXPECT_EQ(headline(fast, at_once),
            "at once reached the target in 0 s; fast reached the target in 6 s.");
  EXPECT_EQ(headline(at_once, fast),
            "fast reached the target in 6 s; at once reached the target in 0 s.");
  EXPECT_EQ(platform::read_file(dir.path("r.html")).find("inf\u00a0"), std::string::npos);
  EXPECT_EQ(headline_of(dir, {fast}), "");
  // For repetitions: how many times slower, as in the sentence, and how many reached the target.
  EXPECT_EQ(
      headline_of(dir, {fast, fast, {"echo", slow.metrics_path}, {"echo", slowest.metrics_path}}),
      "2.7 × slower to the target (median of 2 runs each, 2 to 4), with 200 % more examples "
      "read from upstream.");
  EXPECT_EQ(
      headline_of(dir, {fast, fast, {"echo", slow.metrics_path}, {"echo", missed.metrics_path}}),
      "echo reached the target in 1 of 2 runs; fast reached the target in 6 s.");
}

TEST(Report, LossesThatWereNotFiniteAreLeftOut) {
  TempDir dir;
  train::JsonLines lines(dir.path("m"));
  for (int i = 1; i <= 4; ++i) {
    lines.write({{"kind", "step"}, {"step", i}, {"seconds", i}, {"loss", i < 4 ? 1.0 / i : NAN}});
    lines.write({{"kind", "evaluation"},
                 {"step", i},
                 {"seconds", i},
                 {"eval_loss", i == 1 || i == 4 ? NAN : 2.0 / i}});
  }
  const Json row = train::write_report("t", {{"x", dir.path("m")}}, 0, dir.path("r.html")).front();
  EXPECT_NEAR(row["best_loss"].get<double>(), 2.0 / 3, 1e-9);
  EXPECT_TRUE(row["final_loss"].is_null()) << row;
  EXPECT_TRUE(row["final_training_loss"].is_null()) << row;
  EXPECT_EQ(platform::read_file(dir.path("r.html")).find("nan"), std::string::npos);
}

TEST(Report, WhatIsNoRowOfMetricsIsNamed) {
  TempDir dir;
  for (const char* bad : {"[1]", "7", R"({"kind": 3})", R"({"step": "many"})", "{"}) {
    const std::string text = cat("{\"kind\": \"step\", \"step\": 1}\n", bad, "\n");
    platform::write_file_atomic(dir.path("m"), std::as_bytes(std::span(text)));
    try {
      train::write_report("t", {{"x", dir.path("m")}}, 0, dir.path("r.html"));
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt_data) << error.what();
      EXPECT_NE(std::string(error.what()).find("m' line 2"), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Report, ExtremeTimesAreDrawnInFiniteTime) {
  for (const double size : {5e-324, 1e-300, 1e-12, 1.7e308}) {
    TempDir dir;
    train::JsonLines lines(dir.path("m"));
    for (const double part : {0.5, 1.0})
      lines.write({{"kind", "step"}, {"step", part * size}, {"seconds", part * size}, {"loss", 1}});
    train::write_report("t", {{"x", dir.path("m")}}, 0, dir.path("r.html"));
    const std::string html = platform::read_file(dir.path("r.html"));
    EXPECT_LT(html.size(), 60000u) << size;
    for (const char* bad : {"nan", "='inf", "='-inf"})
      EXPECT_EQ(html.find(bad), std::string::npos) << bad << " at " << size;
  }
}

// A run that was killed, or whose disk was full, may leave such a row, and one that is writing has
// it for a moment.
TEST(Report, AnUnfinishedRowAtTheEndIsLeftOut) {
  TempDir dir;
  const std::string whole = platform::read_file(write_run(dir, "a", 1));
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  const auto loaded = [&](const std::string& text) {
    platform::write_file_atomic(dir.path("m"), std::as_bytes(std::span(text)));
    return train::load_run({"x", dir.path("m")});
  };
  for (size_t size = last; size < whole.size(); ++size) {
    const train::ReportedRun run = loaded(whole.substr(0, size));
    EXPECT_EQ(run.steps_taken.size(), 10u) << size;
    EXPECT_EQ(run.evaluations.size(), size + 1 < whole.size() ? 9u : 10u) << size;
  }
  EXPECT_EQ(loaded(whole + std::string(200, '\0')).evaluations.size(), 10u)
      << "what some file systems leave after a loss of power";
  for (const std::string& bad : {whole + "{\"kind\": \"st\n", std::string("{\"kind\": \"st")})
    EXPECT_THROW(loaded(bad), Error) << "not at the end, or the only row";
}

// Writes a run in which the results of steps are read some time after the device has finished them,
// often several at once. Returns the mean of its idle curve less the table's device_wait_share.
double idle_of(const TempDir& dir, uint64_t seed) {
  Rng rng(seed);
  train::JsonLines lines(dir.path("metrics.jsonl"));
  double now = 0, busy = 0, free_at = 0;
  const int steps = 2 + static_cast<int>(rng.below(300));
  for (int i = 1; i <= steps; ++i) {
    free_at = std::max(free_at, now) + 0.01;  // the device's work
    busy += 0.01;
    if (rng.below(3) > 0) now = free_at + 0.005 * rng.below(20);
    lines.write({{"kind", "step"},
                 {"step", i},
                 {"seconds", std::max(now, free_at)},
                 {"busy_seconds", busy},
                 {"loss", 1}});
  }
  const train::ReportedRun run = train::load_run({"x", dir.path()});
  double idle = 0, from = 0;
  for (const auto& [middle, share] :
       run.idle) {  // each point is the middle of a stretch; there are no gaps
    idle += share * 2 * (middle - from);
    from += 2 * (middle - from);
  }
  if (run.idle.empty()) return 0;
  EXPECT_NEAR(from, run.seconds, 1e-6 * run.seconds);
  return idle / from - train::table_of({run}, 0)[0]["device_wait_share"].get<double>();
}

TEST(Report, TheIdleCurveHasTheMeanOfTheTable) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    TempDir dir;
    EXPECT_NEAR(idle_of(dir, seed), 0, 1e-6) << seed;
  }
}

TEST(Report, RunsOfOneNameAreOneRowOfMedians) {
  TempDir dir;
  std::vector<train::ReportRun> runs;
  const double scales[][2] = {{4, 1}, {6, 1}, {8, 4}};  // the second is 4, 6 and 2 times as fast
  for (int i = 0; i < 3; ++i)
    for (const int echo : {0, 1})
      runs.push_back(
          {echo ? "echo" : "plain", write_run(dir, cat("run", i, echo), scales[i][echo])});
  const Json table = train::write_report("t", runs, 0.8, dir.path("r.html"));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0]["time_to_target_s"], 36) << "the median of 24, 36 and 48";
  EXPECT_EQ(table[1]["speedup"], 4);
  EXPECT_EQ(table[1]["speedup_range"], Json({2, 6}));
  EXPECT_EQ(table[1]["runs"], 3);
  const std::string html = platform::read_file(dir.path("r.html"));
  EXPECT_NE(html.find("median of 3 runs each, 2 to 6"), std::string::npos);
  // A fourth run with echo never reaches the target: there is no range, and the median counts its
  // speed-up as the smallest.
  runs.push_back({"plain", write_run(dir, "plain3", 4)});
  runs.push_back({"echo", write_run(dir, "echo3", 1, 0.02)});
  const Json missed = train::write_report("t", runs, 0.8, dir.path("r.html"));
  EXPECT_EQ(missed[1]["speedup"], 3) << "the median of none, 2, 4 and 6";
  EXPECT_TRUE(missed[1]["speedup_range"].is_null());
}

size_t count(const std::string& html, const std::string& text) {
  size_t found = 0;
  for (size_t at = 0; (at = html.find(text, at)) != std::string::npos; ++at) ++found;
  return found;
}

// Writes a run of a model that is no classifier, and returns its path.
std::string write_losses(const TempDir& dir, const std::string& name, bool evaluates) {
  const std::string path = dir.path(name);
  train::JsonLines lines(path);
  for (int i = 1; i <= 300; ++i) {
    lines.write(
        {{"kind", "step"}, {"step", i}, {"seconds", i}, {"busy_seconds", i}, {"loss", 300.0 / i}});
    if (evaluates && i % 100 == 0)
      lines.write({{"kind", "evaluation"},
                   {"step", i},
                   {"seconds", i},
                   {"eval_accuracy", 0},
                   {"eval_loss", 500.0 / i}});
  }
  return path;
}

TEST(Report, ShowsLossesWhereThereIsNoAccuracyAndNoTarget) {
  TempDir dir;
  const Json table =
      train::write_report("LM", {{"lm", write_losses(dir, "a", true)}}, 0, dir.path("r.html"));
  EXPECT_TRUE(table[0]["final_accuracy"].is_null());
  EXPECT_NEAR(table[0]["final_loss"].get<double>(), 5.0 / 3, 1e-9);
  EXPECT_EQ(table[0]["best_loss"], table[0]["final_loss"]);
  const std::string html = platform::read_file(dir.path("r.html"));
  EXPECT_NE(html.find("Test loss over steps"), std::string::npos);
  EXPECT_NE(html.find("Final test loss"), std::string::npos);
  EXPECT_EQ(html.find("ccuracy"), std::string::npos);
  EXPECT_EQ(html.find("Time to"), std::string::npos);
  EXPECT_EQ(html.find("Speed"), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST(Report, ShowsTrainingLossWhereThereIsNoEvaluation) {
  TempDir dir;
  const Json table = train::write_report("t", {{"only steps", write_losses(dir, "a", false)}}, 0,
                                         dir.path("r.html"));
  EXPECT_TRUE(table[0]["final_loss"].is_null());
  // The mean over the last stretch of steps, as at the end of the curve.
  EXPECT_NEAR(table[0]["final_training_loss"].get<double>(), 1, 0.01);
  const std::string html = platform::read_file(dir.path("r.html"));
  EXPECT_NE(html.find("Training loss over steps"), std::string::npos);
  EXPECT_EQ(html.find("Test "), std::string::npos);
  train::JsonLines(dir.path("empty")).write({{"kind", "note"}});
  EXPECT_THROW(train::write_report("t", {{"x", dir.path("empty")}}, 0, dir.path("r")), Error);
}

TEST(Report, ShowsTheNoiseScaleWhereItWasMeasured) {
  TempDir dir;
  train::JsonLines lines(dir.path("m"));
  for (int i = 1; i <= 1000; ++i) {
    Json row{{"kind", "step"}, {"step", i}, {"seconds", i}, {"loss", 1.0 / i}};
    if (i % 4 == 0) row["noise_scale"] = i == 4 ? NAN : 100.0 + i;
    lines.write(row);
  }
  const train::ReportRun measured{"measured", dir.path("m")},
      other{"other", write_losses(dir, "a", false)};
  const Json table = train::write_report("t", {measured, other}, 0, dir.path("r.html"));
  EXPECT_EQ(table[0]["noise_scale"], 1100);
  EXPECT_TRUE(table[1]["noise_scale"].is_null());
  const std::string html = platform::read_file(dir.path("r.html"));
  EXPECT_NE(html.find("measured: from 112 to 1,100 at 1,000. Across: optimizer steps."),
            std::string::npos)
      << "the description for screen readers";
  EXPECT_NE(html.find("Noise scale, examples"), std::string::npos);
  train::write_report("t", {other}, 0, dir.path("without.html"));
  EXPECT_EQ(platform::read_file(dir.path("without.html")).find("oise scale"), std::string::npos);
}

TEST(Report, ARunWithoutAccuracyIsNotDrawnAsZeroPercentBesideOneThatHasIt) {
  TempDir dir;
  const Json table = train::write_report(
      "t", {{"classifier", write_run(dir, "a", 1)}, {"lm", write_losses(dir, "b", true)}}, 0,
      dir.path("r.html"));
  EXPECT_TRUE(table[1]["final_accuracy"].is_null());
  const std::string html = platform::read_file(dir.path("r.html"));
  const size_t begin = html.find("<section><h2>Test accuracy over time");
  const std::string chart = html.substr(begin, html.find("</section>", begin) - begin);
  EXPECT_NE(chart.find("classifier: from "), std::string::npos);
  EXPECT_EQ(chart.find("lm: from "), std::string::npos);
}

TEST(Report, ReadsAloudAndFollowsTheColourScheme) {
  TempDir dir;
  train::write_report("t", {{"a<b", write_run(dir, "a", 4)}, {"second", write_run(dir, "b", 1)}},
                      0.8, dir.path("r.html"));
  const std::string html = platform::read_file(dir.path("r.html"));
  const size_t charts = count(html, "<section>");
  EXPECT_EQ(charts, 6u);
  EXPECT_EQ(count(html, "aria-labelledby='chart"), charts);
  EXPECT_EQ(count(html, "role='img'"), charts);
  EXPECT_EQ(count(html, "<title id='chart"), charts);
  EXPECT_EQ(count(html, "<desc id='chart"), charts);
  EXPECT_NE(html.find("a&lt;b: from 55\u00a0% to 100\u00a0% at 40. second: "), std::string::npos)
      << "the description for screen readers";
  EXPECT_EQ(
      count(html, "<svg"),
      charts + count(html, "<svg class='plot swatch' viewBox='-1 -1 28 14' aria-hidden='true'"))
      << "screen readers skip decoration";
  EXPECT_EQ(count(html, "scope='row'"), 2u);
  EXPECT_NE(html.find("<caption>"), std::string::npos);
  EXPECT_NE(html.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_NE(html.find("width=device-width"), std::string::npos);
}

}  // namespace
}  // namespace etr::test
