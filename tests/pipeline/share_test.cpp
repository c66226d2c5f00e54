// Continues within an epoch on another number of ranks: no sample is lost or repeated.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <random>

#include "core/error.h"
#include "core/packed.h"
#include "pipeline/done_samples.h"
#include "support/data.h"
#include "support/error_text.h"
#include "support/sanitized.h"

namespace etr::test {
namespace {

using pipeline::DoneSamples;
using pipeline::Item;
using pipeline::Pipeline;
using pipeline::SampleCopy;

// Adds a field that says which copy of which sample this is. Batches keep it.
void name_copy(Item& item, uint64_t) {
  Tensor name(DType::i32, {3});
  auto* to = static_cast<int32_t*>(name.mutable_data());
  to[0] = static_cast<int32_t>(item.ordinal >> pipeline::kPassShift);
  to[1] = static_cast<int32_t>(item.ordinal);
  to[2] = static_cast<int32_t>(item.replica);
  item.set("copy", std::move(name));
}

using Copies = std::map<SampleCopy, int>;  // how often each was delivered

void note(const Item& item, Copies& into) {
  if (item.batch.size > 0 && item.replica != 0) return;  // a repeated batch
  const Tensor* names = item.find("copy");
  const auto* at = static_cast<const int32_t*>(names->data());
  for (int64_t i = 0; i < std::max(1, item.batch.size); ++i, at += 3)
    ++into[{static_cast<uint64_t>(at[0]) << pipeline::kPassShift | static_cast<uint64_t>(at[1]),
            static_cast<uint32_t>(at[2])}];
}

struct Case {
  Json spec;
  bool exact = true;  // every run has the same copies
};

Json stage(const char* name, Json options = Json::object()) {
  options["stage"] = name;
  return options;
}

// Returns a random pipeline: a source of numbers, of which some records are bad, and some of the
// stages that may follow it.
Case random_case(const TempDir& dir, std::mt19937& random) {
  const auto pick = [&](int most) { return static_cast<int>(random() % (most + 1)); };
  const int samples = 20 + pick(80);
  std::string lines;
  for (int i = 0; i < samples; ++i)
    lines += i % 11 == 7 ? "{\n" : R"({"x": )" + std::to_string(i) + "}\n";
  std::ofstream(dir.path("data.jsonl")) << lines;
  Case made;
  Json stages =
      Json::array({stage("jsonl", {{"pattern", dir.path("data.jsonl")}, {"columns", "x:f32"}})});
  const bool early_repeat = pick(3) == 0;
  if (early_repeat) stages.push_back(stage("repeat", {{"count", 1 + pick(2)}}));
  if (pick(2) > 0) stages.push_back(stage("shuffle", {{"buffer", 1 + pick(60)}}));
  if (pick(2) == 0) stages.push_back(stage("filter", {{"field", "x"}, {"max", 50}}));
  if (pick(3) > 0) {
    made.exact = pick(1) == 0;
    stages.push_back(stage(
        "echo", {{"factor", made.exact ? 2 + pick(1) : 1.5 + pick(1)}, {"buffer", 1 + pick(40)}}));
  }
  if (pick(2) == 0) stages.push_back(stage("shuffle", {{"buffer", 1 + pick(20)}}));
  if (!early_repeat && pick(3) == 0) stages.push_back(stage("repeat", {{"count", 1 + pick(2)}}));
  stages.push_back(stage("map", {{"function", "name"}}));
  if (pick(4) > 0)
    stages.push_back(stage("batch", {{"size", 1 + pick(6)}, {"drop_remainder", false}}));
  if (pick(3) == 0) stages.push_back(stage("echo", {{"factor", 2}, {"buffer", 1 + pick(3)}}));
  made.exact = made.exact && stages.back()["stage"] != "echo";
  made.spec = {{"seed", pick(1000)},
               {"threads", 1},
               {"on_error", "skip"},
               {"drop_remainder", false},
               {"stages", stages}};
  return made;
}

Pipeline rank_of(Json spec, int rank, int world) {
  spec["rank"] = rank;
  spec["world_size"] = world;
  return Pipeline(spec, {{"name", name_copy}});
}

// Reads the rest of the epoch, and adds its copies to `into`. Returns the number of items.
int read_rest(Pipeline& pipeline, Copies& into) {
  Item item;
  int items = 0;
  for (; pipeline.next(item) == Pipeline::Next::item; ++items) note(item, into);
  return items;
}

// Lets each rank of a world continue from `state`, read a random part of its share, and save.
// Returns the positions.
Json part_of_epoch(const Json& spec, int world, const Json& state, std::mt19937& random,
                   Copies& into) {
  Json positions = Json::array();
  for (int rank = 0; rank < world; ++rank) {
    Copies unused;
    Pipeline ahead = rank_of(spec, rank, world);
    if (!state.is_null()) ahead.restore(state);
    const int most = read_rest(ahead, unused);
    Pipeline pipeline = rank_of(spec, rank, world);
    if (!state.is_null()) pipeline.restore(state);
    Item item;
    for (int n = static_cast<int>(random() % (static_cast<uint32_t>(most) + 1)); n > 0; --n) {
      EXPECT_EQ(pipeline.next(item), Pipeline::Next::item);
      note(item, into);
    }
    positions.push_back(pipeline.save());
  }
  return parse_json(positions.dump(), "positions");
}

Copies fresh_of(const Copies& all) {
  Copies fresh;
  for (const auto& [copy, times] : all)
    if (copy.second == 0) fresh[copy] = times;
  return fresh;
}

Copies whole_epoch(const Json& spec) {
  Copies all;
  Pipeline alone = rank_of(spec, 0, 1);
  read_rest(alone, all);
  return all;
}

// Returns the number of random pipelines, which ECHOTRAIN_TEST_SHARES can set.
uint32_t most_seeds() {
  const char* const asked = std::getenv("ECHOTRAIN_TEST_SHARES");
  return asked ? static_cast<uint32_t>(std::atoi(asked)) : kSanitized ? 10 : 40;
}

TEST(Share, EverySampleComesOnceWhateverTheWorlds) {
  for (uint32_t seed = 0; seed < most_seeds(); ++seed) {
    TempDir dir;
    std::mt19937 random(seed);
    const Case made = random_case(dir, random);
    std::string trace = cat("seed ", seed, ", worlds");
    Copies all;
    Json state;
    const int parts = 2 + static_cast<int>(random() % 2);
    for (int part = 0; part < parts; ++part) {
      const int world = 1 + static_cast<int>(random() % 5);
      trace += cat(" ", world);
      state = part_of_epoch(made.spec, world, state, random, all);
    }
    const int last = 1 + static_cast<int>(random() % 5);
    SCOPED_TRACE(cat(trace, " ", last, ": ", made.spec["stages"].dump()));
    Copies next_epoch, expected = whole_epoch(made.spec);
    for (int rank = 0; rank < last; ++rank) {
      Pipeline pipeline = rank_of(made.spec, rank, last);
      pipeline.restore(state);
      read_rest(pipeline, all);
      read_rest(pipeline, next_epoch);
    }
    EXPECT_EQ(fresh_of(all), fresh_of(expected));
    if (made.exact) {
      EXPECT_EQ(all, expected);
    }
    EXPECT_EQ(fresh_of(next_epoch), fresh_of(expected)) << "the next epoch is complete";
    if (HasFailure()) return;
  }
}

Json positions_of(const Json& spec, int world, int items) {
  Json positions = Json::array();
  for (int rank = 0; rank < world; ++rank) {
    Pipeline pipeline = rank_of(spec, rank, world);
    Item item;
    for (int n = 0; n < items; ++n) pipeline.next(item);
    positions.push_back(pipeline.save());
  }
  return positions;
}

Json shuffled(const TempDir& dir, const Json& more = Json::array()) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += R"({"x": )" + std::to_string(i) + "}\n";
  std::ofstream(dir.path("data.jsonl")) << lines;
  Json stages =
      Json::array({stage("jsonl", {{"pattern", dir.path("data.jsonl")}, {"columns", "x:f32"}}),
                   stage("shuffle", {{"buffer", 9}}), stage("map", {{"function", "name"}})});
  for (const Json& one : more) stages.push_back(one);
  stages.push_back(stage("batch", {{"size", 4}, {"drop_remainder", false}}));
  return {{"seed", 3}, {"threads", 2}, {"drop_remainder", false}, {"stages", stages}};
}

TEST(Share, TheSamePositionsGiveTheSameRest) {
  TempDir dir;
  const Json spec = shuffled(dir), state = positions_of(spec, 3, 4);
  const auto rest = [&](int threads) {
    Json own = spec;
    own["threads"] = threads;
    Pipeline pipeline = rank_of(own, 1, 2);
    pipeline.restore(state);
    return digest_of_epoch(pipeline);
  };
  EXPECT_EQ(rest(1), rest(1));
  EXPECT_EQ(rest(1), rest(3));
}

// Given the positions of all ranks, a rank of a world of the same size takes its own and continues
// bit for bit.
TEST(Share, ARankOfTheSameWorldTakesItsOwn) {
  TempDir dir;
  const Json spec = shuffled(dir);
  Json state = Json::array();
  for (int rank = 0; rank < 3; ++rank) {
    Pipeline pipeline = rank_of(spec, rank, 3);
    digest_of_epoch(pipeline, 2 + rank);
    state.push_back(pipeline.save());
  }
  for (int rank = 0; rank < 3; ++rank) {
    Pipeline original = rank_of(spec, rank, 3), restored = rank_of(spec, rank, 3);
    digest_of_epoch(original, 2 + rank);
    restored.restore(state);
    EXPECT_EQ(digest_of_epoch(restored), digest_of_epoch(original));
  }
}

// A run that got a share of the rest of an epoch can itself be saved and restored bit for bit.
TEST(Share, TheRestOfAnEpochIsResumedToTheBit) {
  TempDir dir;
  const Json spec = shuffled(dir, Json::array({stage("echo", {{"factor", 2.5}, {"buffer", 12}})}));
  const Json state = positions_of(spec, 3, 9);
  for (int items = 0; items < 12; items += 3) {
    Pipeline original = rank_of(spec, 1, 2);
    original.restore(state);
    Item item;
    for (int n = 0; n < items; ++n) ASSERT_EQ(original.next(item), Pipeline::Next::item);
    EXPECT_TRUE(original.within_epoch());
    const Json saved = parse_json(original.save().dump(), "position");
    Pipeline restored = rank_of(spec, 1, 2);
    restored.restore(saved);
    for (int epoch = 0; epoch < 2; ++epoch)
      EXPECT_EQ(digest_of_epoch(restored), digest_of_epoch(original)) << items << " in " << epoch;
  }
}

// The decisions of the echo node depend on time, and it is on credit.
TEST(Share, EchoesByDemandLoseNoSample) {
  TempDir dir;
  for (const char* mode : {"on_demand", "auto"}) {
    Json spec = shuffled(
        dir, Json::array({stage("delay", {{"milliseconds", 1}}),
                          stage("echo", {{"mode", mode}, {"factor", 1.5}, {"buffer", 12}})}));
    std::swap(spec["stages"][1], spec["stages"][3]);  // the delay before the echo
    std::swap(spec["stages"][2], spec["stages"][4]);  // the names after the echo
    std::mt19937 random(1);
    Copies all;
    Json state;
    for (const int world : {3, 2}) {
      Json positions = Json::array();
      for (int rank = 0; rank < world; ++rank) {
        Pipeline pipeline = rank_of(spec, rank, world);
        if (!state.is_null()) pipeline.restore(state);
        Item item;
        for (int n = 2 + static_cast<int>(random() % 3); n > 0; --n) {
          ASSERT_EQ(pipeline.next(item), Pipeline::Next::item);
          note(item, all);
        }
        positions.push_back(pipeline.save());
      }
      state = parse_json(positions.dump(), "positions");
    }
    Pipeline alone = rank_of(spec, 0, 1);
    alone.restore(state);
    read_rest(alone, all);
    int fresh = 0;
    for (const auto& [copy, times] : all) {
      fresh += copy.second == 0;
      EXPECT_EQ(times, 1) << mode << ": sample " << copy.first << ", copy " << copy.second;
    }
    EXPECT_EQ(fresh, 100) << mode;
    EXPECT_GT(all.size(), 110u) << mode;
  }
}

// Passes that are over are not begun again. The stages after `repeat` are told of its end, and only
// then does `batch` give one that is not full.
TEST(Share, RepeatsGoOnInTheirPass) {
  TempDir dir;
  const auto repeat = [](int count) { return stage("repeat", {{"count", count}}); };
  for (const Json& repeats : {Json::array({repeat(6)}), Json::array({repeat(2), repeat(3)})}) {
    SCOPED_TRACE(repeats);
    Json spec = shuffled(dir, repeats);
    for (int n = 0; n < 2; ++n) spec["stages"].erase(1);  // `shuffle`, which would hold samples
    spec["stages"].back()["size"] = 7;
    const Json state = positions_of(spec, 2, 16);  // 224 of 600 samples: in the third pass
    Pipeline pipeline = rank_of(spec, 0, 1);
    pipeline.restore(state);
    EXPECT_EQ(pipeline.save()["done"]["first_pass"], repeats.size() == 1 ? 2 : 0);
    std::vector<int> sizes, expected(53, 7);
    expected.push_back(5);
    for (Item item; pipeline.next(item) == Pipeline::Next::item;) sizes.push_back(item.batch.size);
    EXPECT_EQ(sizes, expected);
  }
}

// Two samples are left for four ranks. A repeat without end refuses whole passes without a sample,
// and this is none, also for a run that goes on from a position of the rest.
TEST(Share, ARankMayGetNoSampleOfTheFirstPass) {
  TempDir dir;
  Json spec = shuffled(dir, Json::array({stage("repeat")}));
  spec["stages"].erase(1);  // `shuffle`
  spec["stages"].erase(3);  // `batch`
  const Json state = positions_of(spec, 1, 98);
  Pipeline first = rank_of(spec, 3, 4), second = rank_of(spec, 3, 4);
  first.restore(state);
  second.restore(first.save());
  for (Pipeline* pipeline : {&first, &second}) {
    Item item;
    ASSERT_EQ(pipeline->next(item), Pipeline::Next::item);
    EXPECT_EQ(item.ordinal, (uint64_t{1} << pipeline::kPassShift) + 3);
  }
}

TEST(Share, TheLengthOfARestIsUnknown) {
  TempDir dir;
  std::ofstream(dir.path("images"), std::ios::binary)
      << std::string("\0\0\x08\x03\0\0\0\x3c\0\0\0\1\0\0\0\1", 16) << std::string(60, 'x');
  const Json spec = {
      {"stages", {stage("idx", {{"images", dir.path("images")}}), stage("batch", {{"size", 4}})}}};
  Pipeline pipeline = rank_of(spec, 0, 2);
  EXPECT_EQ(pipeline.length(), 7u);
  pipeline.restore(positions_of(spec, 3, 2));
  EXPECT_EQ(pipeline.length(), std::nullopt);
  digest_of_epoch(pipeline);
  EXPECT_EQ(pipeline.length(), 7u) << "of the next epoch";
}

std::string said(const Json& spec, const Json& state) {
  return error_text([&] {
    Pipeline pipeline = rank_of(spec, 0, 2);
    pipeline.restore(state);
  });
}

// Else it would begin with the epoch of the position, or skip what was delivered then.
TEST(Share, APipelineThatCouldNotBeRestoredDoesNotGoOn) {
  TempDir dir;
  const Json spec = shuffled(dir, Json::array({stage("take", {{"count", 30}})}));
  const Json state = positions_of(spec, 3, 2);
  Pipeline pipeline = rank_of(spec, 0, 2);
  const std::string refused = error_text([&] { pipeline.restore(state); });
  EXPECT_NE(refused.find("counts its samples"), std::string::npos) << refused;
  Item item;
  EXPECT_TRUE(pipeline.wait(60));
  EXPECT_EQ(error_text([&] { pipeline.next(item); }), refused);
  EXPECT_EQ(error_text([&] { pipeline.restore(state[0]); }), refused);
  Pipeline asked_first = rank_of(spec, 0, 2);  // what is refused before does no harm
  EXPECT_NE(error_text([&] { asked_first.restore(state[0]); }), "");
  Pipeline fresh = rank_of(spec, 0, 2);
  EXPECT_EQ(digest_of_epoch(asked_first), digest_of_epoch(fresh));
}

TEST(Share, RefusesWhatItCannotShareOut) {
  TempDir dir;
  const auto with = [&](const char* name, const Json& options) {
    const Json spec = shuffled(dir, Json::array({stage(name, options)}));
    return said(spec, positions_of(spec, 3, 2));
  };
  EXPECT_NE(with("take", {{"count", 30}}).find("the stage 'take' counts its samples"),
            std::string::npos);
  EXPECT_NE(with("skip", {{"count", 2}}).find("the stage 'skip' counts"), std::string::npos);
  const Json by_length{{"field", "copy"}, {"boundaries", {2}}, {"size", 2}};
  EXPECT_NE(with("bucket", by_length).find("the stage 'bucket' counts"), std::string::npos);
  Json spec = shuffled(dir);
  spec["on_error"] = "substitute";
  EXPECT_NE(said(spec, positions_of(spec, 3, 2)).find("'substitute'"), std::string::npos);
}

TEST(Share, SaysWhichPositionIsMissing) {
  TempDir dir;
  const Json spec = shuffled(dir);
  Json state = positions_of(spec, 3, 4);
  EXPECT_NE(said(spec, state[0]).find("a list of the positions of all 3 ranks (1 was given)"),
            std::string::npos)
      << said(spec, state[0]);
  Json two = state;
  std::swap(two[0], two[1]);
  EXPECT_NE(said(spec, two).find("position 1 of 3 is of rank 1 of a world of 3"),
            std::string::npos);
  Json of_others = state;
  of_others[1]["world"] = 4;
  EXPECT_NE(said(spec, of_others).find("position 2 of 3 is of rank 1 of a world of 4"),
            std::string::npos);
  Json later = state;
  later[2]["epoch"] = 1;
  EXPECT_NE(said(spec, later).find("were not saved at the same time"), std::string::npos);
  Json otherwise = state;
  otherwise[2]["done"] = DoneSamples().json();
  EXPECT_NE(said(spec, otherwise).find("or divided in another way"), std::string::npos);
  EXPECT_NE(said(spec, Json::array()).find("without positions"), std::string::npos);
}

TEST(Share, DamagedNotesAreErrors) {
  TempDir dir;
  const Json spec = shuffled(dir, Json::array({stage("echo", {{"factor", 2}, {"buffer", 12}})}));
  Pipeline pipeline = rank_of(spec, 0, 2);
  pipeline.restore(positions_of(spec, 3, 9));
  const Json good = parse_json(pipeline.save().dump(), "position");
  EXPECT_EQ(said(spec, good), "");
  for (const char* key : {"first_pass", "passes", "copies"})
    for (const char* value : {"null", "-1", "\"x\"", "[]", "{\"0\": 3}", "{\"x\": \"\"}"}) {
      Json damaged = good;
      damaged["done"][key] = Json::parse(value);
      EXPECT_NE(said(spec, damaged).find("damaged"), std::string::npos)
          << key << " " << value << ": " << said(spec, damaged);
    }
}

TEST(DoneSamples, ThatCannotBeAreErrors) {
  using Numbers = std::vector<uint64_t>;
  constexpr uint64_t kMost = uint64_t{1} << 40, kMostPasses = uint64_t{1} << 22;
  const auto said_of = [](uint64_t first_pass, const char* pass, const Numbers& runs,
                          const Numbers& copies) {
    return error_text([&] {
      DoneSamples::from({{"first_pass", first_pass},
                         {"passes", {{pass, pack_numbers(runs)}}},
                         {"copies", pack_numbers(copies)}});
    });
  };
  EXPECT_EQ(said_of(kMostPasses, "7", {0, 2, 1, 3}, {5, 0, 0, UINT32_MAX}), "");
  EXPECT_EQ(said_of(0, "1099511627776", {kMost - 1, 1}, {}), "");
  const char *const empty = "a run is empty", *const beyond = "a number is beyond all samples";
  for (const auto& [said, part] : {
           std::pair(said_of(kMostPasses + 1, "0", {}, {}), "'first_pass' is 4194305"),
           {said_of(0, "1099511627777", {}, {}), beyond},
           {said_of(0, "0", {3}, {}), "a run has no length"},
           {said_of(0, "0", {3, 0}, {}), empty},
           {said_of(0, "0", {0, 2, 0, 3}, {}), empty},
           {said_of(0, "0", {kMost + 1, 1}, {}), beyond},
           {said_of(0, "0", {0, kMost + 1}, {}), beyond},
           {said_of(0, "0", {kMost, 1}, {}), beyond},
           {said_of(0, "0", {}, {5}), "a copy has no number"},
           {said_of(0, "0", {}, {5, uint64_t{1} << 32}), "a copy's number is beyond all copies"},
       }) {
    EXPECT_NE(said.find("the saved pipeline state is damaged: 'done'"), std::string::npos) << said;
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }
}

TEST(DoneSamples, CountWhatIsLeft) {
  DoneSamples done;
  done.add(1, {4, 2, 3, 9, 0});
  done.add(1, {3, 5});
  const std::vector<uint64_t> left{1, 6, 7, 8, 10, 11};
  const DoneSamples copy = DoneSamples::from(done.json());
  for (const DoneSamples* one : std::initializer_list<const DoneSamples*>{&done, &copy})
    for (uint64_t n = 0; n < left.size(); ++n) {
      EXPECT_EQ(one->left(1, n), left[n]);
      EXPECT_EQ(one->left_before(1, left[n]), n);
      EXPECT_FALSE(one->is_done(1, left[n]));
      EXPECT_EQ(one->left(0, n), n) << "nothing of this pass is done";
    }
  EXPECT_EQ(done.left_before(1, 5), 1u);
  EXPECT_TRUE(done.is_done(1, 5));
  EXPECT_EQ(done.passes(), 2u);
}

}  // namespace
}  // namespace etr::test
