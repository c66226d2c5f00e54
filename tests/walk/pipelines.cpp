// Steps on pipelines.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "world.h"

namespace walk {
namespace {

// What statuses an unfinished pipeline gives: one without a source cannot run.
Codes runs(const Pipeline* pipeline, Codes allowed) {
  return pipeline && pipeline->has_stages ? allowed : kInvalid;
}

void note_use(Pipeline* pipeline, int32_t status) {
  if (pipeline && (status == ETR_OK || status == ETR_END)) pipeline->used = true;
}

// A call that uses the pipeline and hands out text.
std::string text_of(Walk& walk, Pipeline* record, etr_pipeline* pipeline, const char* function,
                    Codes allowed, int32_t (*body)(etr_pipeline*, char**)) {
  const std::string out = walk.text(function, "", Walk::needs(pipeline, runs(record, allowed)),
                                    [&](char** text) { return body(pipeline, text); });
  // Also with an error, the call may have begun to use the pipeline.
  if (pipeline && record->has_stages) record->used = true;
  return out;
}

void build(Walk& walk) {
  Random& random = walk.random;
  const bool skips = random.one_in(3), traced = random.one_in(4);
  const std::string options = "{\"epochs\": " + std::to_string(random.below(3)) +
                              ", \"threads\": " + std::to_string(random.between(1, 3)) +
                              ", \"seed\": " + std::to_string(random.below(100)) +
                              (skips ? ", \"on_error\": \"skip\"" : "") +
                              (traced ? ", \"trace_events\": 100" : "") + "}";
  std::unique_ptr<Pipeline> made = new_pipeline(walk, options);
  if (!made) return;
  made->traced = traced;
  if (random.one_in(8)) add_stage(walk, *made, "shuffle", "{\"buffer\": 4}");  // no source yet
  if (!random.one_in(12)) {
    const uint64_t misbehaves = random.one_in(3) ? static_cast<uint64_t>(random.between(2, 30)) : 0;
    add_source(walk, *made, random.between(0, 30), misbehaves);
    if (random.one_in(4)) add_source(walk, *made, 3, 0);  // there is one already
    if (random.one_in(3)) add_stage(walk, *made, "echo", "{\"factor\": 2}");
    if (random.one_in(3)) add_stage(walk, *made, "shuffle", "{\"buffer\": 4}");
    if (!random.one_in(4)) add_stage(walk, *made, "batch", "{\"size\": 4}");
    if (random.one_in(4)) add_stage(walk, *made, "nonsense", "{}");
  }
  walk.world->pipelines.add(random, std::move(made));
}

void create_from_json(Walk& walk) {
  const bool wrong = walk.random.one_in(3);
  const std::string rows =
      row_stages(walk, walk.random.of<const char*>({"", "{\"stage\": \"shuffle\", \"buffer\": 5},",
                                                    "{\"stage\": \"echo\", \"factor\": 3},"}));
  const char* const json =
      wrong ? walk.random.of<const char*>(
                  {"", "{", "{}", "[]", "3", "{\"stages\": []}", "{\"stages\": [{\"stage\": 3}]}",
                   "{\"stages\": [{\"stage\": \"batch\", \"size\": 2}]}",
                   "{\"stages\": [{\"stage\": \"source\", \"function\": \"mine\"}]}", nullptr})
            : rows.c_str();
  etr_pipeline* const made = walk.made<etr_pipeline>(
      "etr_pipeline_create_from_json", wrong && json ? json : "rows",
      wrong ? kInvalid | kNotFound : kOk,
      [&](etr_pipeline** out) { return etr_pipeline_create_from_json(json, out); });
  if (!made) return;
  auto record = std::unique_ptr<Pipeline>(
      new Pipeline{{walk, made, "etr_pipeline_destroy", etr_pipeline_destroy}});
  record->has_stages = true;
  walk.world->pipelines.add(walk.random, std::move(record));
}

void add_something(Walk& walk) {
  Pipeline* const record = walk.world->pipelines.any(walk.random);
  if (!record) return build(walk);
  switch (walk.random.below(4)) {
    case 0: add_stage(walk, *record, "prefetch", "{\"items\": 2}"); break;
    case 1: add_stage(walk, *record, "take", "{\"count\": 12}"); break;
    case 2: add_stage(walk, *record, "batch", "{\"size\": \"x\"}"); break;
    default: add_source(walk, *record, 4, 0);
  }
}

void add_map(Walk& walk) {
  Pipeline* const record = walk.world->pipelines.any(walk.random);
  etr_pipeline* const pipeline = walk.handle(record);
  const std::string fresh = "map" + std::to_string(walk.random.below(1000000));
  const char* const name =
      walk.random.one_in(8) ? walk.random.of<const char*>({"", "a\x02", nullptr}) : fresh.c_str();
  const bool valid_name = name && *name && name[1] != '\x02';
  const bool known = valid_name && record && record->names.contains(name);
  auto* const function = walk.keep(std::make_unique<StageFunction>(walk));
  function->seed = walk.random.below(1u << 30);
  function->misbehaves = walk.random.one_in(4) ? 20 : 0;
  const etr_map_function called = walk.random.one_in(12) ? nullptr : StageFunction::give;
  const bool wrong = !valid_name || known || !called;
  Codes allowed = record && record->used ? kState : kOk;
  if (wrong) allowed = (allowed & kState) | kInvalid;
  const int32_t status = walk.call(
      "etr_pipeline_add_map", name ? name : "NULL", Walk::needs(pipeline, runs(record, allowed)),
      [&] { return etr_pipeline_add_map(pipeline, name, called, function, UserData::destroy); });
  if (status == ETR_OK) {
    record->names.insert(name);
    record->may_fail |= function->misbehaves > 0;
  } else if (function->destroyed != 1) {
    walk.trace.fail("etr_pipeline_add_map has failed and not called destroy");
  }
}

Codes next_codes(const Pipeline& pipeline) {
  if (pipeline.cancelled) return kCancelled;
  if (pipeline.failed) return code(pipeline.failed);
  return kOk | kEnd | (pipeline.may_fail ? kCallback | kInvalid : 0);
}

void read(Walk& walk) {
  Pipeline* const record = walk.world->pipelines.any(walk.random);
  etr_pipeline* const pipeline = walk.handle(record);
  for (int i = 0; i < 3; ++i) {
    int32_t status = ETR_INTERNAL;
    etr_batch* const made = walk.made<etr_batch>(
        "etr_pipeline_next", "",
        Walk::needs(pipeline, runs(record, record ? next_codes(*record) : kInvalid)),
        [&](etr_batch** out) { return status = etr_pipeline_next(pipeline, out); });
    if (!pipeline || !record->has_stages) return;
    if (status != ETR_INVALID_ARGUMENT) record->used = true;
    if (status < 0 && status != ETR_CANCELLED && status != ETR_INVALID_ARGUMENT)
      record->failed = status;
    if (!made) return;
    record->read = true;
    walk.world->batches.add(walk.random, batch_of(walk, made));
  }
}

void wait(Walk& walk) {
  Pipeline* const record = walk.world->pipelines.any(walk.random);
  etr_pipeline* const pipeline = walk.handle(record);
  const double seconds = walk.random.of({0.0, 0.001, 0.01, -1.0, 2e6, std::nan("")});
  const bool valid = seconds >= 0 && seconds < 1e6;
  const int32_t status =
      walk.call("etr_pipeline_wait", std::to_string(seconds),
                valid ? Walk::needs(pipeline, runs(record, kOk | kEnd)) : kInvalid,
                [&] { return etr_pipeline_wait(pipeline, seconds); });
  note_use(record, status);
}

void ask_length(Walk& walk) {
  Pipeline* const record = walk.world->pipelines.any(walk.random);
  etr_pipeline* const pipeline = walk.handle(record);
  int64_t length = -7;
  // Known without replaying the epoch, or not.
  const Codes allowed = kOk | (record && record->cancelled ? kCancelled : 0);
  const int32_t status =
      walk.call("etr_pipeline_length", "", Walk::needs(pipeline, runs(record, allowed)),
                [&] { return etr_pipeline_length(pipeline, &length); });
  note_use(record, status);
  if (status == ETR_OK ? length < -1 : length != -7)
    walk.trace.fail("etr_pipeline_length: " + std::to_string(length));
}

void ask(Walk& walk) {
  Pipeline* const record = walk.world->pipelines.any(walk.random);
  etr_pipeline* const pipeline = walk.handle(record);
  switch (walk.random.below(5)) {
    case 0: text_of(walk, record, pipeline, "etr_pipeline_stats", kOk, etr_pipeline_stats); break;
    case 1:
      text_of(walk, record, pipeline, "etr_pipeline_bad_records", kOk, etr_pipeline_bad_records);
      break;
    case 2:
      text_of(walk, record, pipeline, "etr_pipeline_trace", record && record->traced ? kOk : kState,
              etr_pipeline_trace);
      break;
    case 3: {
      const std::string position =
          text_of(walk, record, pipeline, "etr_pipeline_save", kOk, etr_pipeline_save);
      if (!position.empty()) record->positions.push_back(position);
      break;
    }
    default: {
      const auto* const format = walk.random.of<const char*>({"text", "svg", "json", "x", nullptr});
      const bool known = format && *format != 'x';
      const Codes allowed = (record && record->read ? kOk : kState | kOk) | (known ? 0 : kInvalid);
      walk.text("etr_pipeline_explain", format ? format : "NULL",
                Walk::needs(pipeline, runs(record, known ? allowed : allowed & ~kOk)),
                [&](char** out) { return etr_pipeline_explain(pipeline, format, out); });
      if (pipeline && record->has_stages) record->used = true;
    }
  }
}

void restore(Walk& walk) {
  Pipeline* const record = walk.world->pipelines.any(walk.random);
  etr_pipeline* const pipeline = walk.handle(record);
  const Pipeline* const other = walk.world->pipelines.any(walk.random);
  std::string json = walk.random.of<const char*>({"", "{", "{}", "[]", "3", "{\"epoch\": -1}"});
  if (other && !other->positions.empty() && !walk.random.one_in(4))
    json = other->positions[walk.random.below(other->positions.size())];
  const Codes any = kOk | kInvalid | kCorrupt | kUnsupported | kState;
  const Codes allowed = record && record->read ? any & ~kOk : any;
  const int32_t status =
      walk.call("etr_pipeline_restore", json, Walk::needs(pipeline, runs(record, allowed)),
                [&] { return etr_pipeline_restore(pipeline, json.c_str()); });
  if (pipeline && record->has_stages) record->used = true;
  // Of another length of the epoch, of which the position may be past the end.
  if (status == ETR_OK) record->may_fail = true;
}

void cancel(Walk& walk) {
  Pipeline* const record = walk.world->pipelines.any(walk.random);
  etr_pipeline* const pipeline = walk.handle(record);
  if (walk.call("etr_pipeline_cancel", "", Walk::needs(pipeline, runs(record, kOk)),
                [&] { return etr_pipeline_cancel(pipeline); }) != ETR_OK)
    return;
  record->used = record->cancelled = true;
}

int32_t stop_at_once(void*, const char*) { return 0; }

void tune(Walk& walk) {
  const std::string rows = row_stages(walk, "");
  const double seconds = walk.random.of({0.005, 0.0, -1.0});
  const char* const spec = walk.random.of<const char*>({rows.c_str(), rows.c_str(), "{", nullptr});
  const Codes allowed = spec == rows.c_str() && seconds > 0 ? kCancelled : kInvalid;
  walk.text("etr_pipeline_tune", std::to_string(seconds), allowed, [&](char** out) {
    return etr_pipeline_tune(spec, seconds, 0, stop_at_once, nullptr, out);
  });
}

// What a packing calls while it reads the options.
struct Packing {
  Walk& walk;
  etr_options* options;
  int32_t answer;

  static int32_t progress(void* self, int64_t, int64_t) {
    auto& mine = *static_cast<Packing*>(self);
    if (etr_options* const options = std::exchange(mine.options, nullptr)) {
      mine.walk.call("etr_options_set_integer", "in use", kState,
                     [&] { return etr_options_set_integer(options, "seed", 1); });
      mine.walk.call_void("etr_options_destroy", [&] { etr_options_destroy(options); });
    }
    return mine.answer;
  }
};

void pack(Walk& walk) {
  namespace fs = std::filesystem;
  const std::string images = walk.folder + "/images", packed = walk.folder + "/packed";
  fs::create_directories(images + "/a");
  std::ofstream(images + "/a/1.png") << "\x89PNG\r\n\x1a\n, and nothing that is decoded here";
  etr_options* options = nullptr;
  etr_options_create(&options);
  Packing packing{walk, walk.random.one_in(2) ? options : nullptr, walk.random.one_in(2)};
  const bool destroys = packing.options != nullptr;
  const char* const root =
      walk.random.of<const char*>({images.c_str(), "/proc/nowhere", "", nullptr});
  const std::string prefix = packed + "/p";
  const int32_t status = walk.call(
      "etr_pack", root ? root : "NULL",
      root == images.c_str() ? kOk | kCancelled : kInvalid | kNotFound, [&] {
        return etr_pack(root, prefix.c_str(), options, Packing::progress, &packing, nullptr);
      });
  if (status == ETR_CANCELLED && packing.answer != 0) walk.trace.fail("etr_pack: cancelled");
  if (!destroys || packing.options) etr_options_destroy(options);
  fs::remove_all(packed);
}

void set_hooks(Walk& walk) {
  auto* const data = walk.keep(std::make_unique<UserData>());
  if (walk.random.one_in(2)) {
    walk.call("etr_set_log_hook", "", kOk, [&] {
      return etr_set_log_hook([](void*, int32_t, const char*) { etr_log_subject(); }, data,
                              UserData::destroy);
    });
    return;
  }
  const auto allocate = [](void*, uint64_t size, uint64_t alignment) {
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  };
  const auto release = [](void*, void* memory, uint64_t) { std::free(memory); };
  const bool wrong = walk.random.one_in(4);
  walk.call("etr_set_allocator", wrong ? "one function" : "", wrong ? kInvalid : kOk, [&] {
    return etr_set_allocator(allocate, wrong ? nullptr : +release, data, UserData::destroy);
  });
}

}  // namespace

std::string row_stages(const Walk& walk, const std::string& more) {
  return R"({"threads": 2, "stages": [{"stage": "jsonl", "pattern": ")" + walk.folder +
         R"(/rows.jsonl", "columns": "image:f32,label:i32"}, {"stage": "label"}, )" + more +
         R"({"stage": "batch", "size": 4}]})";
}

std::unique_ptr<Pipeline> new_pipeline(Walk& walk, const std::string& options_json) {
  etr_options* options = nullptr;
  walk.call("etr_options_create_from_json", options_json, kOk,
            [&] { return etr_options_create_from_json(options_json.c_str(), &options); });
  etr_pipeline* const made = walk.made<etr_pipeline>(
      "etr_pipeline_create", "", kOk,
      [&](etr_pipeline** out) { return etr_pipeline_create(options, out); });
  etr_options_destroy(options);
  if (!made) return nullptr;
  return std::unique_ptr<Pipeline>(
      new Pipeline{{walk, made, "etr_pipeline_destroy", etr_pipeline_destroy}});
}

StageFunction* add_source(Walk& walk, Pipeline& pipeline, int64_t samples, uint64_t misbehaves) {
  auto* const function = walk.keep(std::make_unique<StageFunction>(walk));
  function->is_source = true;
  function->samples = samples;
  function->misbehaves = misbehaves;
  function->seed = walk.random.below(1u << 30);
  const std::string name = "source" + std::to_string(walk.random.below(1000000));
  const Codes wrong = (pipeline.used ? kState : 0) | kInvalid;
  const int32_t status =
      walk.call("etr_pipeline_add_source", name, pipeline.has_stages ? wrong : kOk, [&] {
        return etr_pipeline_add_source(pipeline.handle.get(), name.c_str(), StageFunction::give,
                                       function, UserData::destroy);
      });
  if (status != ETR_OK) {
    if (function->destroyed != 1)
      walk.trace.fail("etr_pipeline_add_source has failed and not called destroy");
    return nullptr;
  }
  pipeline.has_stages = true;
  pipeline.names.insert(name);
  // An endless pipeline whose passes have no samples is an error, too.
  pipeline.may_fail |= misbehaves > 0 || samples == 0;
  return function;
}

void add_stage(Walk& walk, Pipeline& pipeline, const char* stage, const char* json) {
  etr_options* options = nullptr;
  etr_options_create_from_json(json, &options);
  const bool nonsense = std::string(stage) == "nonsense" || std::strchr(json, 'x');
  Codes allowed = pipeline.used ? kState | kInvalid : kOk | kInvalid;
  if (nonsense || !pipeline.has_stages) allowed = (allowed & ~kOk) | kNotFound;
  walk.call("etr_pipeline_add", stage, allowed,
            [&] { return etr_pipeline_add(pipeline.handle.get(), stage, options); });
  etr_options_destroy(options);
}

const std::vector<Step> kPipelineSteps = {{20, build},         {6, create_from_json},
                                          {15, add_something}, {20, add_map},
                                          {60, read},          {15, wait},
                                          {10, ask_length},    {40, ask},
                                          {12, restore},       {6, cancel},
                                          {2, tune},           {4, pack},
                                          {5, set_hooks}};

}  // namespace walk
