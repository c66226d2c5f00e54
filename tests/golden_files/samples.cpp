// Positions of pipelines, logs of decisions, shards and caches: what gives samples.
#include <filesystem>

#include "golden_files/set.h"

namespace golden {
namespace {

namespace fs = std::filesystem;

Json stage(const std::string& name, const Json& options = Json::object()) {
  Json out{{"stage", name}};
  out.update(options);
  return out;
}

Json rows() {
  return stage("jsonl", {{"pattern", "data/rows.jsonl"}, {"columns", "x:f32,label:i32"}});
}

Json spec(const Json& stages, const Json& options = Json::object()) {
  Json out{{"seed", 5}, {"threads", 2}};
  out.update(options);
  out["stages"] = stages;
  return out;
}

// FNV-1a of the fields' names and bytes.
std::string digest(const et::Batch& batch) {
  uint64_t hash = 0xCBF29CE484222325U;
  const auto add = [&](const void* data, uint64_t size) {
    for (uint64_t i = 0; i < size; ++i)
      hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001B3U;
  };
  for (const std::string& name : batch.fields()) {
    const et::TensorView tensor = batch[name];
    add(name.data(), name.size());
    add(tensor.data, tensor.size_bytes);
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// Of the next batches, with "end" where an epoch ends.
Json digests(et::Pipeline& pipeline, int count) {
  Json out = Json::array();
  while (static_cast<int>(out.size()) < count) {
    const auto batch = pipeline.next();
    out.push_back(batch ? digest(*batch) : "end");
  }
  return out;
}

Json whole_epoch(et::Pipeline& pipeline) {
  Json out = Json::array();
  while (const auto batch = pipeline.next()) out.push_back(digest(*batch));
  return out;
}

void expect_same(const Json& got, const Json& expected, const std::string& what) {
  expect(got == expected, what + " gives\n  " + got.dump() + "\ninstead of\n  " + expected.dump());
}

// Positions -------------------------------------------------------------------------------------

constexpr int kNext = 12;

std::vector<std::pair<std::string, Json>> position_specs() {
  const Json echo = stage("echo", {{"factor", 2}, {"buffer", 6}}),
             batch = stage("batch", {{"size", 4}});
  const Json pictures[] = {stage("label"), stage("decode"),
                           echo,           stage("random_crop", {{"height", 6}, {"width", 6}}),
                           stage("flip"),  stage("shuffle", {{"buffer", 5}}),
                           batch};
  const auto images = [&](const Json& source) {
    Json stages = Json::array({source});
    for (const Json& each : pictures) stages.push_back(each);
    return spec(stages);
  };
  const Json text = stage("text_lines", {{"pattern", "data/rows.jsonl"}});
  return {
      {"rows",
       spec({rows(), stage("shuffle", {{"buffer", 9}}), echo, stage("batch", {{"size", 7}})})},
      {"folder", images(stage("folder", {{"root", "data/images"}}))},
      {"tar shards", images(stage("webdataset", {{"pattern", "data/tar-*.tar.zst"}}))},
      {"fast shards", images(stage("fast_shard", {{"pattern", "data/fast-*.ets"}}))},
      {"windows",
       spec({stage("text_windows", {{"pattern", "data/rows.jsonl"}, {"length", 9}}), batch})},
      {"mix", spec({stage("mix", {{"sources", {text, text}}, {"weights", {2, 1}}}),
                    stage("repeat", {{"count", 2}}), stage("skip", {{"count", 3}})})},
      {"zip", spec({stage("zip", {{"sources", {rows(), text}}, {"prefixes", "a_,b_"}}),
                    stage("take", {{"count", 20}})})},
  };
}

Json write_positions() {
  Json out = Json::array();
  for (const auto& [name, pipeline] : position_specs()) {
    et::Pipeline first = et::Pipeline::from_json(pipeline.dump());
    digests(first, 2);
    const Json state = Json::parse(first.save());
    out.push_back(
        {{"name", name}, {"spec", pipeline}, {"position", state}, {"next", digests(first, kNext)}});
  }
  return out;
}

void check_positions(const Json& cases, const std::string&) {
  for (const Json& each : cases) {
    et::Pipeline pipeline = et::Pipeline::from_json(each.at("spec").dump());
    pipeline.restore(each.at("position").dump());
    expect_same(digests(pipeline, static_cast<int>(each.at("next").size())), each.at("next"),
                "the position of '" + each.at("name").get<std::string>() + "'");
  }
}

// Positions of two ranks, continued by three.
Json rank_spec(const Json& base, int rank, int ranks) {
  Json out = base;
  out["rank"] = rank;
  out["world_size"] = ranks;
  return out;
}

Json continue_by_three(const Json& base, const Json& positions) {
  Json out = Json::array();
  for (int rank = 0; rank < 3; ++rank) {
    et::Pipeline pipeline = et::Pipeline::from_json(rank_spec(base, rank, 3).dump());
    pipeline.restore(positions.dump());
    out.push_back(whole_epoch(pipeline));
  }
  return out;
}

Json write_rank_positions() {
  const Json base =
      spec({rows(), stage("shuffle", {{"buffer", 9}}), stage("batch", {{"size", 2}})});
  Json positions = Json::array();
  for (int rank = 0; rank < 2; ++rank) {
    et::Pipeline pipeline = et::Pipeline::from_json(rank_spec(base, rank, 2).dump());
    digests(pipeline, 3);
    positions.push_back(Json::parse(pipeline.save()));
  }
  return Json::array(
      {{{"spec", base}, {"positions", positions}, {"next", continue_by_three(base, positions)}}});
}

void check_rank_positions(const Json& cases, const std::string&) {
  for (const Json& each : cases)
    expect_same(continue_by_three(each.at("spec"), each.at("positions")), each.at("next"),
                "what three ranks make of two positions");
}

// Logs of decisions -----------------------------------------------------------------------------

std::string replay(const Json& pipeline, const std::string& key, const std::string& log) {
  Json out = pipeline;
  for (Json& each : out["stages"])
    if (each.at("stage") == "echo" || each.at("stage") == "overtake") each[key] = log;
  return out.dump();
}

Json write_decisions() {
  fs::create_directories("logs");
  const Json slow = stage("delay", {{"milliseconds", 3}}), batch = stage("batch", {{"size", 4}});
  const std::pair<std::string, Json> deciding[] = {
      {"on_demand",
       spec({rows(), slow, stage("echo", {{"factor", 3}, {"mode", "on_demand"}, {"buffer", 10}}),
             batch})},
      {"auto", spec({rows(), slow, stage("echo", {{"factor", 3}, {"mode", "auto"}, {"buffer", 10}}),
                     batch})},
      {"overtake", spec({stage("folder", {{"root", "data/images"}}), stage("label"),
                         stage("decode"), stage("resize", {{"height", 64}, {"width", 64}}),
                         stage("overtake", {{"window", 4}}), stage("batch", {{"size", 3}})},
                        {{"threads", 4}})},
  };
  Json out = Json::array();
  for (const auto& [name, pipeline] : deciding) {
    const std::string log = "logs/" + name + ".jsonl";
    Json epoch;
    {
      et::Pipeline first = et::Pipeline::from_json(replay(pipeline, "log", log));
      epoch = whole_epoch(first);
    }
    expect(name == "overtake" || fs::file_size(log) > 0,
           "the stage '" + name + "' has decided nothing");
    out.push_back({{"name", name}, {"spec", pipeline}, {"log", log}, {"epoch", epoch}});
  }
  return out;
}

void check_decisions(const Json& cases, const std::string&) {
  for (const Json& each : cases) {
    et::Pipeline pipeline =
        et::Pipeline::from_json(replay(each.at("spec"), "replay", each.at("log")));
    expect_same(whole_epoch(pipeline), each.at("epoch"),
                "the log '" + each.at("log").get<std::string>() + "'");
  }
}

// Shards and caches -----------------------------------------------------------------------------

Json write_shards() {
  Json out = Json::array();
  for (const Json& source :
       {stage("fast_shard", {{"pattern", "data/fast-*.ets"}, {"shuffle", false}}),
        stage("webdataset", {{"pattern", "data/tar-*.tar.zst"}, {"shuffle_shards", false}})}) {
    const Json pipeline = spec({source, stage("label"), stage("decode")});
    et::Pipeline reader = et::Pipeline::from_json(pipeline.dump());
    out.push_back({{"spec", pipeline}, {"epoch", whole_epoch(reader)}});
  }
  return out;
}

void check_shards(const Json& cases, const std::string&) {
  for (const Json& each : cases) {
    et::Pipeline reader = et::Pipeline::from_json(each.at("spec").dump());
    expect_same(whole_epoch(reader), each.at("epoch"), each.at("spec").dump());
  }
}

Json write_caches() {
  const Json pipeline =
      spec({stage("fast_shard", {{"pattern", "data/fast-*.ets"}}), stage("label"), stage("decode"),
            stage("cache", {{"shared", "cache"}}), stage("batch", {{"size", 4}})});
  et::Pipeline first = et::Pipeline::from_json(pipeline.dump());
  const Json epoch = whole_epoch(first);
  return Json::array({{{"spec", pipeline}, {"samples", 12}, {"epoch", epoch}}});
}

// A cache of the same version is used; another version refuses it with an error.
void check_caches(const Json& cases, const std::string& version) {
  for (const Json& each : cases) {
    et::Pipeline pipeline = et::Pipeline::from_json(each.at("spec").dump());
    try {
      expect_same(whole_epoch(pipeline), each.at("epoch"), "a shared cache");
    } catch (const et::Error& error) {
      expect(version != et::version() && error.status() == ETR_INVALID_ARGUMENT,
             std::string("a shared cache: ") + error.what());
      continue;
    }
    expect(version == et::version(), "a shared cache of version " + version + " is not refused");
    const Json stats = Json::parse(pipeline.stats());
    int caches = 0;
    for (const Json& counted : stats.at("stages")) {
      if (counted.at("name") != "cache") continue;
      ++caches;
      expect(counted.at("cache").at("hits") >= each.at("samples") &&
                 counted.at("cache").at("misses") == 0,
             "a shared cache is not used: " + counted.dump());
    }
    expect(caches == 1, std::to_string(caches) + " stages instead of one are named 'cache'");
  }
}

}  // namespace

std::vector<Kind> samples() {
  return {{"positions", write_positions, check_positions},
          {"positions of ranks", write_rank_positions, check_rank_positions},
          {"decisions", write_decisions, check_decisions},
          {"shards", write_shards, check_shards},
          {"shared caches", write_caches, check_caches}};
}

}  // namespace golden
