// Metrics files and the report.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/json.h"
#include "core/platform.h"
#include "support/data.h"
#include "train/metrics.h"
#include "train/report.h"
#include "train/svg_chart.h"

namespace etr::test {
namespace {

TEST(EventFile, FramesAreWhatTensorBoardReads) {
  TempDir dir;
  { train::EventFile(dir.path()).write(300, {{"loss", 0.25}}); }
  const std::string file = std::filesystem::directory_iterator(dir.path())->path();
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
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
  // step 300 = varint AC 02; summary { value { tag "loss" simple_value 0.25 } }
  EXPECT_NE(records[1].find("\x10\xAC\x02"), std::string::npos);
  EXPECT_NE(records[1].find(std::string("\x0A\x04loss\x15\x00\x00\x80\x3E", 11)),
            std::string::npos);
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
  // A first run that never gets there gives a lower bound: its 40 s over the other's 6 s.
  const Json bound = train::write_report("t", {{"never", write_run(dir, "c", 4, 0.02)}, runs[1]},
                                         0.8, dir.path("bound.html"));
  EXPECT_TRUE(bound[0]["speedup"].is_null());
  EXPECT_TRUE(bound[1]["speedup_is_bound"].get<bool>());
  EXPECT_NEAR(bound[1]["speedup"].get<double>(), 40.0 / 6, 1e-9);
  const std::string html = platform::read_file(dir.path("r.html"));
  EXPECT_NE(html.find("Title &amp; co"), std::string::npos);
  EXPECT_EQ(html.find("slow <b>"), std::string::npos) << "names are escaped";
  EXPECT_EQ(html.find("http"), std::string::npos) << "the page loads nothing";
  for (size_t at = 0, charts = 0; (at = html.find("<svg", at)) != std::string::npos; ++at)
    EXPECT_LE(++charts, 4u);
  EXPECT_THROW(train::write_report("t", {{"x", dir.path("none")}}, 0, dir.path("r")), Error);
}

TEST(NumberText, Separators) {
  EXPECT_EQ(train::number_text(0), "0");
  EXPECT_EQ(train::number_text(1234567), "1,234,567");
  EXPECT_EQ(train::number_text(999.96, 1), "1,000");
  EXPECT_EQ(train::number_text(-1234.5, 1), "-1,234.5");
}

}  // namespace
}  // namespace etr::test
