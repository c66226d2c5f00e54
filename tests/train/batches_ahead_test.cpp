// Ranks that take batches of the same length bucket in a step.
#include "train/batches_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <map>

#include "core/error.h"
#include "core/json.h"
#include "core/rng.h"
#include "exchange/local.h"
#include "support/temp_dir.h"
#include "train/supply.h"
#include "train/together.h"

namespace etr::test {
namespace {

using train::Supply;

constexpr int64_t kSamples = 500, kRows = 4;
const std::vector<int64_t> kBoundaries{16, 32, 48};

// Writes lines of 4 to 60 characters that begin with their number, and returns a pipeline that
// reads them in buckets by length.
Json pipeline_of(const TempDir& dir) {
  std::ofstream text(dir.path("lines.txt"));
  Rng rng(5);
  for (int64_t i = 0; i < kSamples; ++i)
    text << 1000 + i << std::string(rng.below(57), 'x') << '\n';
  text.close();
  return {{"seed", 3},
          {"stages",
           {{{"stage", "text_lines"}, {"pattern", dir.path("lines.txt")}},
            {{"stage", "shuffle"}, {"buffer", 50}},
            {{"stage", "bucket"}, {"field", "text"}, {"boundaries", kBoundaries}, {"size", kRows}},
            {{"stage", "padded_batch"}, {"size", kRows}}}}};
}

struct Batch {
  std::vector<std::string> samples;
  int64_t length = 0;

  bool operator==(const Batch&) const = default;
  size_t bucket() const {
    return static_cast<size_t>(std::ranges::upper_bound(kBoundaries, length) - kBoundaries.begin());
  }
};

Batch batch_of(const pipeline::Item& item) {
  const Tensor& text = *item.find("text");
  Batch batch{{}, text.shape()[1]};
  for (int64_t row = 0; row < text.shape()[0]; ++row) {
    const auto values = text.view<char>();
    const auto* from = values.data() + row * batch.length;
    batch.samples.emplace_back(from, 4);
  }
  return batch;
}

// What a rank has read: its batches, the number of batches at the end of each epoch, and with
// `saves` its position before each call of next().
struct Read {
  std::vector<Batch> batches;
  std::vector<size_t> epoch_ends;
  std::vector<checkpoint::Files> positions;
  std::optional<Error> error;
};

Read read(Supply& supply, uint64_t epochs, bool saves) {
  Read out;
  while (out.epoch_ends.size() < epochs) {
    if (saves) out.positions.push_back(supply.positions());
    pipeline::Item item;
    if (supply.next(item, "text"))
      out.batches.push_back(batch_of(item));
    else
      out.epoch_ends.push_back(out.batches.size());
  }
  return out;
}

struct From {
  const checkpoint::Files* files = nullptr;
  int saved_by = 0;
  uint64_t epochs = 2;
};

std::vector<Read> read_together(int size, const Json& pipeline, size_t ahead, const From& from = {},
                                bool saves = false) {
  auto groups = exchange::local_groups(size, 30);
  std::vector<std::future<Read>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> Read {
      Ranks own(std::move(groups[static_cast<size_t>(rank)]));
      try {
        Supply supply(train::part_of_ranks(pipeline, &own), &own, ahead);
        if (from.files) supply.restore(*from.files, from.saved_by, "the checkpoint");
        return read(supply, from.epochs, saves);
      } catch (const Error& error) {
        own.abort(error.what());
        return {{}, {}, {}, error};
      }
    }));
  std::vector<Read> out;
  for (auto& rank : ranks) out.push_back(rank.get());
  return out;
}

// Returns the sum of lengths if in each step all ranks wait for the longest batch, divided by the
// sum of the batches' own lengths. `unlike` receives the number of steps in which the ranks'
// buckets differ.
double waste(const std::vector<Read>& ranks, size_t* unlike) {
  double paced = 0, own = 0;
  *unlike = 0;
  for (size_t step = 0; step < ranks[0].batches.size(); ++step) {
    int64_t longest = 0;
    bool alike = true;
    for (const Read& rank : ranks) {
      longest = std::max(longest, rank.batches[step].length);
      own += static_cast<double>(rank.batches[step].length);
      alike = alike && rank.batches[step].bucket() == ranks[0].batches[step].bucket();
    }
    paced += static_cast<double>(longest) * static_cast<double>(ranks.size());
    *unlike += alike ? 0 : 1;
  }
  return paced / own;
}

void expect_once_each(const std::vector<Read>& ranks) {
  std::map<std::string, int> seen;
  for (const Read& rank : ranks)
    for (size_t i = 0; i < rank.epoch_ends[0]; ++i)
      for (const std::string& sample : rank.batches[i].samples) ++seen[sample];
  for (const auto& [sample, times] : seen) EXPECT_EQ(times, 1) << sample;
  // The samples that are left over do not make another batch for every rank.
  EXPECT_GE(seen.size(), static_cast<size_t>(kSamples) - 20 * ranks.size());
}

TEST(BatchesAhead, AreOfOneBucketOnAllRanks) {
  const TempDir dir;
  const Json pipeline = pipeline_of(dir);
  for (const int size : {2, 3}) {
    const auto apart = read_together(size, pipeline, 0), alike = read_together(size, pipeline, 8);
    for (const auto* ranks : {&apart, &alike}) {
      for (const Read& rank : *ranks) {
        ASSERT_FALSE(rank.error) << rank.error->what();
        ASSERT_EQ(rank.epoch_ends, (*ranks)[0].epoch_ends) << "all end at the same step";
      }
      expect_once_each(*ranks);
    }
    EXPECT_EQ(alike[0].epoch_ends, apart[0].epoch_ends) << "the same number of steps";
    size_t unlike_apart = 0, unlike = 0;
    const double before = waste(apart, &unlike_apart), after = waste(alike, &unlike);
    EXPECT_GT(unlike_apart, apart[0].batches.size() / 2);
    EXPECT_LT(unlike, unlike_apart / 3) << "most of them are at the ends of epochs";
    EXPECT_LT(after - 1, (before - 1) / 3) << before << " to " << after;
    EXPECT_EQ(read_together(size, pipeline, 8)[1].batches, alike[1].batches) << "the same again";
  }
}

TEST(BatchesAhead, AreGoneOnWithWhereverTheRunWasSaved) {
  const TempDir dir;
  const Json pipeline = pipeline_of(dir);
  const auto whole = read_together(2, pipeline, 6, {}, /*saves=*/true);
  ASSERT_FALSE(whole[0].error) << whole[0].error->what();
  const size_t epoch = whole[0].epoch_ends[0];
  for (const size_t at :
       {size_t{0}, size_t{1}, size_t{7}, epoch - 9, epoch - 1, epoch + 1, epoch + 6}) {
    // One position was taken before the call that found the end of the first epoch and gave no
    // batch.
    const size_t batch = at <= epoch ? at : at - 1;
    const uint64_t epochs = at <= epoch ? 2 : 1;
    const auto rest = read_together(2, pipeline, 6, {&whole[0].positions[at], 2, epochs});
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_FALSE(rest[rank].error) << rest[rank].error->what();
      const std::vector<Batch> expected(whole[rank].batches.begin() + static_cast<ptrdiff_t>(batch),
                                        whole[rank].batches.end());
      EXPECT_EQ(rest[rank].batches, expected) << "from position " << at << ", rank " << rank;
    }
  }
}

// Positions of a run that was itself resumed: before its first batch, and later.
TEST(BatchesAhead, AreSavedAgainAfterARestart) {
  const TempDir dir;
  const Json pipeline = pipeline_of(dir);
  const auto whole = read_together(2, pipeline, 6, {}, /*saves=*/true);
  const auto second = read_together(2, pipeline, 6, {&whole[0].positions[9], 2, 2}, /*saves=*/true);
  for (const size_t at : {size_t{0}, size_t{1}, size_t{4}}) {
    const auto rest = read_together(2, pipeline, 6, {&second[0].positions[at], 2, 2});
    const std::vector<Batch> expected(whole[1].batches.begin() + 9 + static_cast<ptrdiff_t>(at),
                                      whole[1].batches.end());
    ASSERT_FALSE(rest[1].error) << rest[1].error->what();
    EXPECT_EQ(rest[1].batches, expected) << at;
  }
}

TEST(BatchesAhead, AreNotForgottenByOtherWorldsOrOptions) {
  const TempDir dir;
  const Json pipeline = pipeline_of(dir);
  const auto whole = read_together(2, pipeline, 6, {}, /*saves=*/true);
  const auto& positions = whole[0].positions;
  const auto within = std::ranges::find_if(positions, [](const checkpoint::Files& files) {
    return train::BatchesAhead::has_taken(checkpoint::json_of(files, "pipeline.json", ""));
  });
  ASSERT_NE(within, positions.end());
  const checkpoint::Files& files = *within;
  const auto three = read_together(3, pipeline, 6, {&files, 2, 2});
  ASSERT_TRUE(three[0].error);
  EXPECT_EQ(three[0].error->code(), Code::unsupported);
  const auto none = read_together(2, pipeline, 0, {&files, 2, 2});
  ASSERT_TRUE(none[0].error || none[1].error);
  const auto ends =
      read_together(3, pipeline, 6, {&whole[0].positions[whole[0].epoch_ends[0] + 1], 2, 1});
  EXPECT_FALSE(ends[0].error) << ends[0].error->what();
}

// One rank's part of an epoch ends after its first batch.
TEST(BatchesAhead, TheRestOfAnEpochIsNotRead) {
  const TempDir dir;
  Json pipeline = pipeline_of(dir);
  pipeline["queue_items"] = 4;
  pipeline["prefetch"] = 1;
  pipeline["stages"].erase(1);  // the buffer of `shuffle`
  for (const size_t ahead : {size_t{0}, size_t{2}}) {
    auto groups = exchange::local_groups(2, 30);
    std::vector<std::future<int64_t>> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.push_back(std::async(std::launch::async, [&, rank] {
        Ranks own(std::move(groups[static_cast<size_t>(rank)]));
        Json part = train::part_of_ranks(pipeline, &own);
        if (rank == 1) part["stages"].push_back({{"stage", "take"}, {"count", 1}});
        Supply supply(part, &own, ahead);
        const Read all = read(supply, 4, /*saves=*/false);
        EXPECT_EQ(all.epoch_ends, (std::vector<size_t>{1, 2, 3, 4}));
        return supply.pipeline().stats()["stages"][0]["items_out"].get<int64_t>();
      }));
    const int64_t samples = ranks[0].get();
    ranks[1].get();
    EXPECT_LT(samples, 4 * kSamples / 2 / 2) << "read ahead " << ahead;
  }
}

// Batches of a bucket still differ in length, so each rank has its own plans and changes them at
// its own steps.
TEST(BatchesAhead, TrainRanksWhoseShapesDiffer) {
  const TempDir dir;
  Json pipeline = pipeline_of(dir);
  const Json lines = Json::array({pipeline["stages"][0]});
  pipeline["stages"][0] = {{"stage", "zip"}, {"sources", {lines, lines}}, {"prefixes", ",next_"}};
  for (const char* field : {"next_text", "text"})
    pipeline["stages"].insert(pipeline["stages"].begin() + 1,
                              Json{{"stage", "cast"}, {"field", field}, {"to", "i32"}});
  const Json job{{"seed", 4},
                 {"pipeline", pipeline},
                 {"model",
                  {{"layers",
                    {{{"layer", "embedding"}, {"entries", 128}, {"width", 4}},
                     {{"layer", "dense"}, {"units", 128}}}},
                   {"inputs", {"text"}},
                   {"loss", {{"target", "next_text"}}}}},
                 {"optimizer", {{"optimizer", "sgd"}}},
                 {"schedule", {{"learning_rate", 0.1}}},
                 {"train", {{"epochs", 1}}},
                 {"output", {{"dir", ""}}}};
  const auto ranks = together(2, [&](int) { return job; });
  for (const Outcome& rank : ranks) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_GT(rank.end.step, 50u);
    EXPECT_EQ(rank.weights, ranks[0].weights) << "bit for bit";
  }
}

}  // namespace
}  // namespace etr::test
