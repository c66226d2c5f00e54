#include "study/advise_pipeline.h"

#include <algorithm>
#include <initializer_list>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/pipeline.h"
#include "pipeline/stage.h"

namespace etr::study {
namespace {

using pipeline::Item;
using pipeline::Pipeline;
using pipeline::StageKind;

const std::string kBatching[] = {"batch", "padded_batch", "bucket"};

bool is_batching(const std::string& name) {
  return std::find(std::begin(kBatching), std::end(kBatching), name) != std::end(kBatching);
}

std::string name_of(const Json& stage) { return stage["stage"].get<std::string>(); }

bool can_be_made(const Json& spec, bool defers) {
  try {
    const Pipeline made(spec, {}, defers, Pipeline::Budget::at_start);
    return true;
  } catch (const Error&) {
    return false;  // such a stage cannot stand there
  }
}

Json with_stage(Json spec, size_t after, Json stage) {
  Json& stages = spec["stages"];
  stages.insert(stages.begin() + static_cast<ptrdiff_t>(after) + 1, std::move(stage));
  return spec;
}

// Returns the mean bytes of some items after the stage; 0 if none comes in time.
double bytes_behind(const Json& spec, size_t stage) {
  constexpr int64_t kEnoughNs = 500'000'000;
  constexpr double kPatience = 2;
  constexpr int kItems = 32;
  Json part = spec;
  Json& stages = part["stages"];
  stages.erase(stages.begin() + static_cast<ptrdiff_t>(stage) + 1, stages.end());
  part["queue_items"] = 1;
  part["prefetch"] = 1;
  Pipeline pipeline(part, {}, /*defers=*/false, Pipeline::Budget::at_start);
  const int64_t begun = now_ns();
  double bytes = 0;
  int items = 0;
  for (double patience = kPatience; items < kItems && patience > 0;) {
    Item item;
    if (!pipeline.wait(patience) || pipeline.next(item) != Pipeline::Next::item) break;
    bytes += static_cast<double>(item.size_bytes());
    ++items;
    patience = 1e-9 * static_cast<double>(begun + kEnoughNs - now_ns());
  }
  return items ? bytes / items : 0;
}

double data_bytes(const Json& data) {
  double bytes = 0;
  if (data.is_object() && data.contains("bytes")) return data["bytes"].get<double>();
  if (data.is_array())
    for (const Json& one : data) bytes += data_bytes(one);
  return bytes;
}

// Returns whether a file has about as many bytes as its samples, unlike numbers as text and
// compressed files.
bool stores_bytes(const Json& source) {
  const std::string name = name_of(source), text = source.dump();
  const auto any_in = [](const std::string& in, std::initializer_list<const char*> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const char* part) { return in.find(part) != std::string::npos; });
  };
  return !any_in(name, {"csv", "json", "text"}) && !any_in(text, {".zst", ".gz"});
}

struct Counted {
  double samples = 0;              // until the time was over
  bool all = false;                // the source came to its end
  double files = 0, in_files = 0;  // those that were read to their end, and their samples
};

// Reads the source alone for a moment, which is enough for all of a small data set. What fails is
// left to the job's own run.
Counted count_for_a_moment(const Json& spec, const AdviseOptions& options) {
  constexpr int64_t kMomentNs = 500'000'000;
  constexpr int64_t kAtOnce = 1000;
  Json source = spec;
  source["stages"] = Json::array({spec["stages"][0]});
  Counted out;
  try {
    Pipeline pipeline(source, {}, /*defers=*/false, Pipeline::Budget::at_start);
    const int64_t end = now_ns() + kMomentNs;
    std::shared_ptr<const std::string> file;
    Item item;
    for (int64_t left = kMomentNs; left > 0; left = end - now_ns()) {
      if (!pipeline.wait(1e-9 * static_cast<double>(left))) break;
      if (pipeline.next(item) != Pipeline::Next::item) {
        out.all = out.samples > 0;
        break;
      }
      const auto from = item.origin ? item.origin->shard : nullptr;
      if (file && from && *file != *from) {
        ++out.files;
        out.in_files = out.samples;
      }
      if (from) file = from;
      if (static_cast<int64_t>(++out.samples) % kAtOnce == 0) options.report("");
    }
  } catch (const Error& error) {
    if (error.code() == Code::cancelled) throw;
  }
  return out;
}

// Returns the number of records from the source, counted if it is not known, or an estimate from
// bytes or files; 0: unknown.
double samples_of(const Json& spec, double bytes_each, const AdviseOptions& options) {
  Json data;
  {
    const Pipeline pipeline(spec, {}, /*defers=*/false, Pipeline::Budget::at_start);
    data = pipeline.save()["data"];
  }
  if (data.is_object() && data.contains("records") && data["records"].is_number())
    return data["records"].get<double>();
  const Counted counted = count_for_a_moment(spec, options);
  if (counted.all) return counted.samples;
  if (bytes_each > 0 && stores_bytes(spec["stages"][0])) return data_bytes(data) / bytes_each;
  if (counted.files == 0 || !data.is_object() || !data.contains("count")) return 0;
  return data["count"].get<double>() * counted.in_files / counted.files;
}

}  // namespace

std::vector<RowPlace> PlainPipeline::rows(const Json& stats) const {
  std::vector<RowPlace> out;
  size_t stage = 0;
  for (const Json& row : stats["stages"]) {
    const bool reads = row["name"].get<std::string>().ends_with(", reading");
    if (!out.empty() && !reads) ++stage;
    // A repeated pass would be echoed anew, and a cache keeps what is before it.
    const std::string next =
        stage + 1 < spec["stages"].size() ? name_of(spec["stages"][stage + 1]) : "";
    out.push_back({stage, next != "repeat" && next != "cache"});
  }
  if (stage + 1 != spec["stages"].size()) out.clear();
  return out;
}

PlainPipeline plain_pipeline(const Json& given, uint64_t seed) {
  PlainPipeline out;
  out.spec = given;
  if (!out.spec.contains("seed")) out.spec["seed"] = seed;
  out.spec["epochs"] = 0;
  Json stages = Json::array();
  bool batches = false;
  for (const Json& stage : given["stages"]) {
    const std::string name = name_of(stage);
    if (name == "echo") {
      const std::string mode = stage.value("mode", std::string("fixed"));
      out.echoes.push_back({stages.size() - 1, stage["factor"].get<double>(),
                            /*adapts=*/mode == "auto" || mode == "on_demand"});
      continue;
    }
    if (is_batching(name) && !batches) {
      batches = true;
      out.batch_stage = stages.size();
      out.batch = stage.value("size", 1.0);
    }
    stages.push_back(stage);
  }
  if (!batches)
    fail(Code::unsupported,
         "advise: pipeline.stages has no stage 'batch' (or padded_batch, bucket), "
         "where examples become batches");
  out.spec["stages"] = stages;
  out.source = name_of(stages[0]);
  const std::string text = stages[0].dump();
  for (const char* scheme : {"https://", "http://", "s3://"})
    out.remote = out.remote || text.find(scheme) != std::string::npos;
  return out;
}

Json short_pipeline(Json spec) {
  constexpr int64_t kShuffle = 256, kQueue = 64;
  const auto at_most = [](Json& in, const char* key, int64_t otherwise, int64_t most) {
    in[key] = std::min(in.value(key, otherwise), most);
  };
  at_most(spec, "queue_items", 512, kQueue);
  at_most(spec, "prefetch", 4, 1);
  bool batches = false;
  for (Json& stage : spec["stages"]) {
    const std::string name = name_of(stage);
    batches = batches || is_batching(name);
    if (name == "shuffle") at_most(stage, "buffer", 1000, kShuffle);
    if (name == "shuffle") remove_member(stage, "initial");
    if (name == "echo") at_most(stage, "buffer", 1000, batches ? 2 : kShuffle);
  }
  return spec;
}

Json with_echo(Json spec, size_t after, const Json& echo) {
  return with_stage(std::move(spec), after, echo);
}

void look_at_places(Measured& m, const PlainPipeline& plain, const AdviseOptions& options) {
  options.report("what examples weigh");
  const Json spec = short_pipeline(plain.spec);
  std::vector<double> bytes(plain.batch_stage);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = bytes_behind(spec, i);
    options.report("");
  }
  bool random = false;
  const bool has_cache = std::any_of(spec["stages"].begin(), spec["stages"].end(),
                                     [](const Json& stage) { return name_of(stage) == "cache"; });
  for (StageCost& s : m.stages) {
    if (s.stage >= plain.batch_stage) break;
    s.bytes = bytes[s.stage];
    Json echo{{"stage", "echo"}, {"factor", 2}};
    s.takes_echo = s.takes_echo && can_be_made(with_echo(spec, s.stage, echo), /*defers=*/false);
    echo["device"] = true;
    s.device_echo = can_be_made(with_echo(spec, s.stage, echo), /*defers=*/true);
    random = random || s.augments;
    if (!random && !has_cache &&
        can_be_made(with_stage(spec, s.stage, {{"stage", "cache"}}), false))
      m.cacheable = s.stage;
  }
  m.samples = samples_of(spec, bytes.empty() ? 0 : bytes[0], options);
}

}  // namespace etr::study
