// What all sources have in common: each sample once, shared out equally, shuffled, restored.
#include <algorithm>
#include <set>

#include "sources/data_of_sources.h"

namespace etr::test {
namespace {

class EverySource : public testing::TestWithParam<const char*> {
 protected:
  Json spec(const Json& more = Json::object()) { return spec_of_source(dir_, GetParam(), more); }
  std::vector<std::string> epoch(const Json& more = Json::object()) {
    Pipeline p(spec(more));
    return contents(p);
  }
  TempDir dir_;
};

TEST_P(EverySource, GivesEachSampleOnceAnEpoch) {
  Pipeline p(spec());
  auto first = contents(p), second = contents(p);
  EXPECT_EQ(first.size(), 37u);
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 37u);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
}

// The ranks' samples, dealt out in turn, are those of one process; all have as many.
TEST_P(EverySource, IsSharedOutEqually) {
  const auto whole = epoch();
  for (const int world : {2, 3, 5}) {
    std::vector<std::vector<std::string>> shares;
    for (int rank = 0; rank < world; ++rank)
      shares.push_back(epoch({{"rank", rank}, {"world_size", world}}));
    for (size_t i = 0; i < 37 / static_cast<size_t>(world) * static_cast<size_t>(world); ++i)
      ASSERT_EQ(shares[i % static_cast<size_t>(world)].at(i / static_cast<size_t>(world)),
                whole[i]);
    for (const auto& share : shares) EXPECT_EQ(share.size(), 37u / static_cast<size_t>(world));
    std::multiset<std::string> all;  // with what is over: nothing is missing, nothing comes twice
    for (int rank = 0; rank < world; ++rank)
      for (const auto& sample :
           epoch({{"rank", rank}, {"world_size", world}, {"drop_remainder", false}}))
        all.insert(sample);
    EXPECT_EQ(all, std::multiset<std::string>(whole.begin(), whole.end()));
  }
}

TEST_P(EverySource, IsRestoredInTheMiddle) {
  for (const int world : {1, 3}) {
    const Json shared{{"rank", world - 1}, {"world_size", world}};
    Pipeline original(spec(shared));
    Item item;
    for (int i = 0; i < 7; ++i) original.next(item);
    Pipeline restored(spec(shared));
    restored.restore(parse_json(original.save().dump(), "state"));
    for (int e = 0; e < 2; ++e) EXPECT_EQ(contents(original), contents(restored));
  }
}

// A position, the tail after it, and a copy of the data elsewhere. Bytes are the same; no copy has
// the times of its original.
struct Moved {
  Json state, spec;
  std::vector<std::string> tail;
};

class EverySourceMoved : public EverySource {
 protected:
  Moved move() {
    Moved out;
    const Json here = spec();
    Pipeline original(here);
    Item item;
    for (int i = 0; i < 7; ++i) original.next(item);
    out.state = original.save();
    out.tail = contents(original);
    std::filesystem::copy(dir_.path(), there_.path("deeper"),
                          std::filesystem::copy_options::recursive);
    std::string text = here.dump();
    const std::string from = dir_.path(), to = there_.path("deeper/");
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    out.spec = parse_json(text, "test");
    return out;
  }
  static std::string refusal(const Json& spec, const Json& state) {
    try {
      Pipeline(spec).restore(state);
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  }
  // The files of the copy, sorted.
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(there_.path("deeper")))
      if (entry.is_regular_file()) out.push_back(entry.path());
    std::sort(out.begin(), out.end());
    return out;
  }
  TempDir there_;
};

TEST_P(EverySourceMoved, IsRestoredWhereItsDataLiesNow) {
  const Moved moved = move();
  Pipeline restored(moved.spec);
  restored.restore(parse_json(moved.state.dump(), "state"));
  EXPECT_EQ(contents(restored), moved.tail);
}

TEST_P(EverySourceMoved, RefusesChangedDataByName) {
  const Moved moved = move();
  const bool file_a_record =
      GetParam() == std::string("folder") || GetParam() == std::string("files");
  for (const std::filesystem::path& file : files()) {
    const auto size = std::filesystem::file_size(file);
    const std::filesystem::path away = there_.path("away");
    if (file_a_record)  // whose sizes nobody asks for
      std::filesystem::rename(file, away);
    else
      std::ofstream(file, std::ios::app) << '\n';
    const std::string message = refusal(moved.spec, moved.state);
    EXPECT_HAS(message, file.filename().string());
    if (file_a_record)
      std::filesystem::rename(away, file);
    else
      std::filesystem::resize_file(file, size);
  }
  EXPECT_EQ(refusal(moved.spec, moved.state), "accepted") << "everything is as it was";
}

// Versions before noted the paths, and nothing of the data.
TEST_P(EverySourceMoved, PositionsOfEarlierVersionsBelongToThePlace) {
  Moved moved = move();
  moved.state.erase("data");
  Pipeline restored(spec());
  restored.restore(moved.state);
  EXPECT_EQ(contents(restored), moved.tail);
  EXPECT_HAS(refusal(moved.spec, moved.state), "earlier version");
}

TEST_P(EverySource, GoesOnWithAnotherNumberOfRanksBetweenEpochs) {
  Pipeline original(spec({{"world_size", 2}}));
  contents(original);
  const Json between = original.save();
  Pipeline alone(spec()), reference(spec());
  alone.restore(between);
  contents(reference);
  EXPECT_EQ(contents(alone), contents(reference));
  Item item;
  original.next(item);
  Pipeline refused(spec());
  EXPECT_THROW(refused.restore(original.save()), Error);
}

TEST_P(EverySource, EndsWhenItHasNothingToRead) {
  Json missing = spec();
  Json& source = missing["stages"][0].contains("sources") ? missing["stages"][0]["sources"][0]
                                                          : missing["stages"][0];
  for (const char* key : {"pattern", "root", "images"})
    if (source.contains(key)) source[key] = dir_.path("nothing/here");
  if (missing["stages"][0].contains("arrays"))
    missing["stages"][0]["arrays"] = "x=" + dir_.path("nothing/here");
  EXPECT_HAS(failure(missing), "nothing/here");
}

INSTANTIATE_TEST_SUITE_P(Sources, EverySource, testing::ValuesIn(every_source()),
                         [](const auto& source) { return std::string(source.param); });
INSTANTIATE_TEST_SUITE_P(Sources, EverySourceMoved, testing::ValuesIn(every_source()),
                         [](const auto& source) { return std::string(source.param); });

}  // namespace
}  // namespace etr::test
