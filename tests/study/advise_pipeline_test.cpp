// What advice finds out about the data of a pipeline.
#include "study/advise_pipeline.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/json.h"
#include "support/data.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

double samples_of(const Json& source) {
  const Json spec{{"stages", {source, {{"stage", "batch"}, {"size", 4}}}}};
  study::Measured m;
  study::look_at_places(m, study::plain_pipeline(spec, 1), {});
  return m.samples;
}

// The size of a text file says little about its number of samples, so they are counted.
TEST(AdvisePipeline, CountsSamplesOfTextFiles) {
  TempDir dir;
  std::ofstream csv(dir.path("train.csv"));
  csv << "a,b,y\n";
  for (int i = 0; i < 100; ++i) csv << "0.123456,0.654321,1\n";
  csv.close();
  // It counts for half a second, in which a busy machine may not come to the end.
  EXPECT_TRUE(eventually([&] {
    return samples_of({{"stage", "csv"},
                       {"pattern", dir.path("train.csv")},
                       {"columns", "image:f32=a+b,label:i32=y"}}) == 100;
  }));
}

TEST(AdvisePipeline, CountsSamplesOfCompressedShards) {
  TempDir dir;
  const Json shards{{"stage", "webdataset"}, {"pattern", make_shards(dir, 3, 40)}};
  EXPECT_TRUE(eventually([&] { return samples_of(shards) == 120; }));
}

TEST(AdvisePipeline, AStageAndNotAnotherWordIsTakenForACache) {
  TempDir dir;
  for (int i = 0; i < 8; ++i) std::ofstream(dir.path(cat(i, ".cache"))) << "a field of that name";
  const Json source{{"stage", "files"}, {"pattern", dir.path("*.cache")}};
  const auto cacheable = [&](const Json& second) {
    const Json spec{{"stages", {source, second, {{"stage", "batch"}, {"size", 4}}}}};
    study::Measured m;
    m.stages.push_back({.name = "files", .stage = 0});
    study::look_at_places(m, study::plain_pipeline(spec, 1), {});
    return m.cacheable;
  };
  EXPECT_FALSE(cacheable({{"stage", "cache"}}));
  EXPECT_EQ(cacheable({{"stage", "keep"}, {"fields", "cache"}}), 0u);
}

TEST(AdvisePipeline, ANodeIsNotAdvisedWhereItMayNotStand) {
  TempDir dir;
  std::ofstream(dir.path("a.txt")) << "one\ntwo\nthree\nfour\n";
  const Json spec{{"stages",
                   {{{"stage", "text_lines"}, {"pattern", dir.path("a.txt")}},
                    {{"stage", "keep"}, {"fields", "text"}},
                    {{"stage", "pack_sequences"}, {"field", "text"}, {"length", 8}},
                    {{"stage", "batch"}, {"size", 1}}}}};
  study::Measured m;
  for (size_t i = 0; i < 3; ++i) m.stages.push_back({.name = "any", .stage = i});
  study::look_at_places(m, study::plain_pipeline(spec, 1), {});
  EXPECT_FALSE(m.stages[0].takes_echo);
  EXPECT_FALSE(m.stages[1].takes_echo);
  EXPECT_TRUE(m.stages[2].takes_echo) << "rows are repeated";
}

TEST(AdvisePipeline, EstimatesSamplesOfFiles) {
  TempDir dir;
  for (int i = 0; i < 50; ++i) std::ofstream(dir.path(cat(i, ".bin"))) << std::string(1000, 'x');
  EXPECT_NEAR(samples_of({{"stage", "files"}, {"pattern", dir.path("*.bin")}}), 50, 5);
}

}  // namespace
}  // namespace etr::test
