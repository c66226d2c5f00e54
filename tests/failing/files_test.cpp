// Each call that opens, reads or lists files fails once, in every source and where checkpoints are
// loaded: an error that names a file, or the same bytes; short and interrupted reads are no errors.
#include <gtest/gtest.h>

#include "checkpoint/store.h"
#include "failing/system_calls.h"
#include "sources/data_of_sources.h"

namespace etr::failing {
namespace {

using test::TempDir;

const std::set<int32_t> kErrors{static_cast<int>(Code::io), static_cast<int>(Code::out_of_memory)};

Scenario through_cpp(std::function<void(std::string& results)> work) {
  return [work = std::move(work)](std::string& results) -> Outcome {
    try {
      work(results);
      return {};
    } catch (const Error& error) {
      return {static_cast<int>(error.code()), error.what()};
    }
  };
}

void expect_named(const Outcome& outcome, const TempDir& dir) {
  const bool named = outcome.message.find(dir.path()) != std::string::npos;
  EXPECT_TRUE(outcome.status == 0 || named) << "the error names no file";
}

void read_everywhere(const TempDir& dir, const Json& spec) {
  SystemCalls system(Calls::files, dir.path());
  const auto read = [&](std::string& results) {
    test::Pipeline pipeline(spec);
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const std::string& sample : test::contents(pipeline)) results += sample + "\n";
  };
  fail_everywhere(system, through_cpp(read),
                  {.statuses = kErrors,
                   .after = [&](const Outcome& outcome) { expect_named(outcome, dir); },
                   .runs = 60,
                   .least_calls = 3});
}

class FailingFiles : public testing::TestWithParam<const char*> {};

TEST_P(FailingFiles, AreErrorsOfASource) {
  const TempDir dir;
  read_everywhere(dir, test::spec_of_source(dir, GetParam(), {{"threads", 2}}));
}

INSTANTIATE_TEST_SUITE_P(Sources, FailingFiles, testing::ValuesIn(test::every_source()),
                         [](const auto& source) { return std::string(source.param); });

// Those of zstd are among the sources above.
TEST(FailingFiles, AreErrorsOfTarFilesOfAnyCompression) {
  const TempDir plain, packed;
  const std::string tar = test::make_shards(plain, 1, 37, 0, 10, ".tar");
  read_everywhere(plain, test::spec_of("webdataset", {{"pattern", tar}}));
  test::write_gz(packed.path("all.tar.gz"), platform::read_file(plain.path("shard-0.tar")));
  read_everywhere(packed, test::spec_of("webdataset", {{"pattern", packed.path("all.tar.gz")}}));
}

checkpoint::Files files_of(int number) {
  checkpoint::Files files;
  checkpoint::put_text(files, "state.json", "{\"number\": " + std::to_string(number) + "}");
  checkpoint::put_text(files, "weights.safetensors",
                       std::string(static_cast<size_t>(500 * number), 'w'));
  return files;
}

uint64_t newest(const checkpoint::Store& store) {
  const auto loaded = store.load_latest();
  if (!loaded) return 0;
  EXPECT_EQ(loaded->files, files_of(static_cast<int>(loaded->step)));
  return loaded->step;
}

// One that cannot be read counts as damaged: the one before it is loaded, with a warning.
TEST(FailingFiles, AreErrorsOfLoadingACheckpoint) {
  const TempDir dir;
  const checkpoint::Store store(dir.path("checkpoints"));
  for (const int step : {1, 2}) store.save(static_cast<uint64_t>(step), files_of(step));
  SystemCalls system(Calls::files, dir.path());
  const auto load = [&](std::string& results) {
    const uint64_t step = newest(store);
    EXPECT_GT(step, 0u) << "there is one";
    results = "loaded";
  };
  fail_everywhere(system, through_cpp(load),
                  {.statuses = kErrors,
                   .after = [&](const Outcome& outcome) { expect_named(outcome, dir); },
                   .runs = 0});
}

// Saving reads which checkpoints there are. What is saved after a failure is the newest one.
TEST(FailingFiles, NeverLetAnOlderCheckpointSeemNewer) {
  const TempDir dir;
  const checkpoint::Store store(dir.path("checkpoints"));
  SystemCalls system(Calls::files, dir.path());
  const auto save = [&](std::string& results) {
    std::error_code may_fail;  // as any other call
    std::filesystem::remove_all(dir.path("checkpoints"), may_fail);
    for (const int step : {3, 2, 1}) store.save(static_cast<uint64_t>(step), files_of(step));
    results = "saved";
  };
  const auto after = [&](const Outcome& outcome) {
    expect_named(outcome, dir);
    EXPECT_TRUE(outcome.status != 0 || newest(store) == 1);
    store.save(1, files_of(1));
    EXPECT_EQ(newest(store), 1u);
  };
  fail_everywhere(system, through_cpp(save), {.statuses = kErrors, .after = after, .runs = 0});
}

}  // namespace
}  // namespace etr::failing
