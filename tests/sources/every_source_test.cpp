// What all sources have in common: each sample once, shared out equally, shuffled, restored.
#include <algorithm>
#include <set>

#include "io/fast_shard.h"
#include "sources/files.h"

namespace etr::test {
namespace {

class EverySource : public testing::TestWithParam<const char*> {
 protected:
  // 37 samples in two or more files, where there can be several.
  Json spec(const Json& more = Json::object()) {
    const std::string stage = GetParam();
    Json options;
    if (stage == "mix" || stage == "zip" || stage == "interleave") {
      // 37 in all; the sources within read text, which differs in every sample.
      const auto lines = [&](const char* name, int from, int to) {
        std::string all;
        for (int i = from; i < to; ++i) all += "line " + std::to_string(i) + "\n";
        write(dir_.path(name), all);
        return Json{{"stage", "text_lines"}, {"pattern", dir_.path(name)}};
      };
      if (stage == "mix")
        options = {{"sources", {lines("a", 0, 7), lines("b", 7, 37)}}, {"weights", {1, 2.5}}};
      if (stage == "zip")
        options = {{"sources", {lines("a", 0, 37), lines("b", 100, 137)}}, {"prefixes", "a_,b_"}};
      if (stage == "interleave") {
        lines("i0", 0, 11), lines("i1", 11, 30), lines("i2", 30, 37);
        options = {{"sources", {{{"stage", "text_lines"}, {"pattern", dir_.path("i*")}}}},
                   {"ways", 2},
                   {"ahead", 3}};
      }
    } else if (stage == "webdataset") {
      options["pattern"] = dir_.path("shard-*.tar.zst");
      if (!std::filesystem::exists(dir_.path("shard-0.tar.zst"))) make_shards(dir_, 1, 37);
    } else if (stage == "fast_shard") {
      options["pattern"] = dir_.path("*.ets");
      for (const int shard : {0, 1}) {
        io::FastShardWriter writer(dir_.path(std::to_string(shard) + ".ets"));
        for (int i = shard; i < 37; i += 2) {
          const std::string text = std::to_string(i);
          const auto bytes = std::as_bytes(std::span(text));
          const auto frame = io::zstd_frame(bytes, 3);
          const io::FastShardWriter::Field fields[] = {{"cls", bytes, 0},
                                                       {"bin", frame, bytes.size()}};
          writer.add(text, fields);
        }
        writer.finish();
      }
    } else if (stage == "folder" || stage == "files") {
      for (int i = 0; i < 37; ++i) {
        std::filesystem::create_directories(dir_.path("root/" + std::to_string(i % 3)));
        write(dir_.path("root/" + std::to_string(i % 3) + "/" + std::to_string(i) + ".bin"),
              std::to_string(i));
      }
      options = stage == "folder" ? Json{{"root", dir_.path("root")}, {"extensions", "bin"}}
                                  : Json{{"pattern", dir_.path("root/*/*.bin")}};
    } else if (stage == "idx") {
      write(dir_.path("images"), idx_images(37, 2, 2));
      options["images"] = dir_.path("images");
    } else if (stage == "cifar") {
      std::string bytes;
      for (int i = 0; i < 37; ++i)
        bytes += static_cast<char>(i) + std::string(3072, static_cast<char>(i));
      write(dir_.path("a.bin"), bytes);
      options["pattern"] = dir_.path("a.bin");
    } else if (stage == "npy") {
      std::string data;
      for (int i = 0; i < 37; ++i) data += raw(i);
      write(dir_.path("x.npy"), npy("<i4", "(37,)", data));
      options["arrays"] = "x=" + dir_.path("x.npy");
    } else if (stage == "text_windows") {
      std::string data;
      for (int i = 0; i < 38; ++i) data += static_cast<char>(i + 30);
      write(dir_.path("t"), data);
      options = {{"pattern", dir_.path("t")}, {"length", 1}};
    } else {  // files of lines or records
      std::string a, b;
      for (int i = 0; i < 37; ++i) {
        std::string& to = i % 4 ? a : b;
        if (stage == "tfrecord") to += example(i);
        if (stage == "jsonl") to += "{\"x\": " + std::to_string(i) + "}\n";
        if (stage == "csv" || stage == "text_lines") to += std::to_string(i) + "\n";
      }
      write(dir_.path("0.data"), a);
      write(dir_.path("1.data"), b);
      options["pattern"] = dir_.path("*.data");
      if (stage == "csv") options.update({{"columns", "x:f32=0"}, {"header", false}});
      if (stage == "jsonl") options["columns"] = "x:f32";
    }
    Json out = spec_of(GetParam(), options, more);
    out["seed"] = 3;
    return out;
  }
  // What tells samples apart: all their bytes.
  static std::vector<std::string> contents(Pipeline& p) {
    std::vector<std::string> out;
    for (const Item& item : read_all(p)) {
      std::string all;
      for (const auto& field : item.fields)
        all += field.name + ":" +
               std::string(reinterpret_cast<const char*>(field.tensor.data()),
                           field.tensor.size_bytes());
      out.push_back(all);
    }
    return out;
  }
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

// A position, the tail after it, and a copy of the data elsewhere. Bytes are the same; no copy has the times of its original.
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

std::vector<const char*> sources() {
  std::vector<const char*> out;
  for (const pipeline::StageSpec* stage : pipeline::stage_table())
    // Functions of the program: tests/capi/own_stage_test.cpp.
    if (stage->kind == pipeline::StageKind::source && stage->name != std::string("source"))
      out.push_back(stage->name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Sources, EverySource, testing::ValuesIn(sources()),
                         [](const auto& source) { return std::string(source.param); });
INSTANTIATE_TEST_SUITE_P(Sources, EverySourceMoved, testing::ValuesIn(sources()),
                         [](const auto& source) { return std::string(source.param); });

}  // namespace
}  // namespace etr::test
