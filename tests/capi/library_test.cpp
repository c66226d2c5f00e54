// Functions of echotrain.hpp that are members of no class: log lines, packing, tuning and reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>

#include "echotrain/echotrain.hpp"
#include "support.h"

namespace {

TEST(LogHook, GetsLevelsAndSubjectsAndCanBeReplaced) {
  etr::test::TempDir dir;
  std::filesystem::create_directories(dir.path("cat"));
  std::ofstream(dir.path("cat/broken.png")) << "no image";
  std::ofstream(dir.path("cat/broken2.png")) << "no image either";
  struct Line {
    echotrain::LogLevel level;
    echotrain::LogSubject subject;
    std::string text;
  };
  std::vector<Line> lines;
  echotrain::set_log_hook([&](auto level, auto subject, const char* text) {
    lines.push_back({level, subject, text});
    throw std::runtime_error("dropped");
  });
  const auto read = [&] {
    echotrain::Pipeline p({{"on_error", "skip"}, {"epochs", 1}, {"max_bad_share", 1.0}});
    p.add("folder", {{"root", dir.path()}}).add("decode");
    try {
      while (p.next()) {
      }
    } catch (const echotrain::Error&) {  // an epoch without a sample
    }
  };
  read();
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[0].level, echotrain::LogLevel::warning);
  EXPECT_EQ(lines[0].subject, echotrain::LogSubject::bad_record);
  EXPECT_NE(lines[0].text.find("broken"), std::string::npos) << lines[0].text;
  echotrain::set_log_hook({});
  lines.clear();
  read();
  EXPECT_TRUE(lines.empty());
}

TEST(LogHook, TellsOfAFormerNameOnce) {
  std::vector<std::string> lines;
  echotrain::set_log_hook([&](auto, auto subject, const char* text) {
    EXPECT_EQ(subject, echotrain::LogSubject::other);
    lines.emplace_back(text);
  });
  for (int i = 0; i < 2; ++i) {
    const echotrain::Model model(R"({"model": "transformer_decoder", "symbols": 5, "width": 8})");
    EXPECT_EQ(nlohmann::json::parse(model.json())["layers"][0]["entries"], 5);
  }
  echotrain::set_log_hook({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("'symbols' is now called 'vocab_size'"), std::string::npos) << lines[0];
  EXPECT_THROW(
      echotrain::Model(R"({"model": "transformer_decoder", "symbols": 5, "vocab_size": 5})"),
      echotrain::Error);
}

TEST(Library, PacksWithProgress) {
  const Images images;  // 64 of them
  etr::test::TempDir dir;
  int64_t last = 0, all = 0;
  const auto packed = nlohmann::json::parse(echotrain::pack(
      images.path(), dir.path("shards/x"), {{"per_shard", 30}}, [&](int64_t done, int64_t total) {
        EXPECT_GE(done, last);
        last = done;
        all = total;
        return true;
      }));
  EXPECT_EQ(packed["samples"], 64);
  EXPECT_EQ(packed["shards"].size(), 3u);
  EXPECT_EQ(last, 64);
  EXPECT_EQ(all, 64);
  EXPECT_THROW(echotrain::pack(images.path(), dir.path("thrown/x"), {},
                               [](int64_t, int64_t) -> bool { throw std::logic_error("mine"); }),
               std::logic_error);
  try {
    echotrain::pack(images.path(), dir.path("stopped/x"), {},
                    [](int64_t, int64_t) { return false; });
    ADD_FAILURE() << "was not stopped";
  } catch (const echotrain::Error& error) {
    EXPECT_EQ(error.status(), ETR_CANCELLED);
  }
}

TEST(Library, TunesAndExplains) {
  const Images images;
  const std::string spec = images.spec();
  int trials = 0;
  const auto tuned =
      nlohmann::json::parse(echotrain::tune_pipeline(spec, 0.05, 0, [&](const char* trial) {
        ++trials;
        return nlohmann::json::parse(trial).is_object();
      }));
  EXPECT_EQ(tuned["trials"].size(), static_cast<size_t>(trials));
  auto pipeline = echotrain::Pipeline::from_json(spec);
  ASSERT_TRUE(pipeline.next());
  const auto explained = nlohmann::json::parse(echotrain::explain_stats(pipeline.stats(), "json"));
  EXPECT_TRUE(explained.contains("bottleneck"));
  EXPECT_THROW(echotrain::explain_stats("{}"), echotrain::Error);
}

TEST(Library, WritesAReport) {
  etr::test::TempDir dir;
  std::ofstream(dir.path("metrics.jsonl")) << R"({"kind": "end", "step": 1, "seconds": 1})"
                                           << "\n";
  EXPECT_THROW(echotrain::write_report("title", {{"a", dir.path("none")}}, dir.path("r.html")),
               echotrain::Error);
  EXPECT_THROW(
      echotrain::write_report("title", {{std::string("a\0b", 3), dir.path()}}, dir.path("r.html")),
      echotrain::Error);
  std::ofstream(dir.path("metrics.jsonl"))
      << R"({"kind": "evaluation", "step": 1, "seconds": 1, "loss": 1, "accuracy": 0.5})"
      << "\n";
  const std::string table =
      echotrain::write_report("title", {{"caf\xe9", dir.path()}}, dir.path("r.html"));
  EXPECT_NE(table.find(R"(caf\\xE9)"), std::string::npos) << "not UTF-8: " << table;
}

// That it compiles is most of this test.
TEST(Library, OptionsTakeEveryTypeOfNumberAndLists) {
  using echotrain::Options;
  enum { kWidth = 28 };
  const uint64_t seed = 7;
  const std::vector<float> samples(32);
  echotrain::Pipeline pipeline({{"seed", seed}, {"threads", 1u}, {"max_bad_share", 0.5f}});
  pipeline.add("folder", {{"root", "x"}, {"shuffle", false}})
      .add("resize", {{"width", kWidth}, {"height", int16_t{28}}})
      .add("batch", {{"size", samples.size()}})
      .add("normalize", {{"mean", {0.5, 0.25}}, {"std", {1, 1}}})
      .add("take", {{"count", 5LL}});
  const Options list_of_zero{{"axes", {0}}};
  try {
    Options options{{"seed", ~uint64_t{0}}};
    FAIL() << "no such integer";
  } catch (const echotrain::Error& error) {
    EXPECT_STREQ(
        error.what(),
        "option 'seed' is 18446744073709551615; an integer is at most 9223372036854775807");
  }
  enum class Scoped { one };
  static_assert(!std::is_constructible_v<Options::Value, const char*, Scoped>);
  static_assert(!std::is_constructible_v<Options::Value, const char*, const char8_t*>,
                "it would be a boolean");
}

TEST(Library, NamesStatuses) {
  EXPECT_EQ(echotrain::status_name(ETR_OK), "ok");
  EXPECT_EQ(echotrain::status_name(ETR_NOT_FOUND), "not found");
}

TEST(Library, UsesAnAllocatorOfTheProgram) {
  struct Counts {
    int64_t blocks = 0, freed = 0;
    bool destroyed = false;
  } counts;
  echotrain::set_allocator(
      [](void* user, uint64_t bytes, uint64_t alignment) -> void* {
        ++static_cast<Counts*>(user)->blocks;
        return take_aligned(bytes, alignment);
      },
      [](void* user, void* memory, uint64_t) {
        ++static_cast<Counts*>(user)->freed;
        free_aligned(memory);
      },
      &counts, [](void* user) { static_cast<Counts*>(user)->destroyed = true; });
  {
    echotrain::Batch batch;
    const float values[4] = {1, 2, 3, 4};
    batch.set("x", values, {4});
    echotrain::Batch other;
    other.set_dlpack("y", batch.to_dlpack("x"));
    EXPECT_EQ(other["y"].as<float>()[3], 4);
    EXPECT_EQ(other["y"].data, batch["x"].data);
  }
  echotrain::set_allocator(nullptr, nullptr);
  EXPECT_GT(counts.blocks, 0);
  EXPECT_EQ(counts.blocks, counts.freed);
  EXPECT_TRUE(counts.destroyed);
}

}  // namespace
