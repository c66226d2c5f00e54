// Steps on options, models, optimizers, jobs and what describes the library.
#include <fstream>

#include "world.h"

namespace walk {
namespace {

// Texts that are no JSON, or not the JSON that is wanted.
constexpr const char* kNoJson[] = {"",
                                   "{",
                                   "[1, 2",
                                   "\"text\"",
                                   "nul",
                                   "{\"a\": }",
                                   "\xff\xfe",
                                   "[[[[[[[[[[[[[[[[[[[[[[[[",
                                   "{\"a\": 1e999}",
                                   "17",
                                   "null",
                                   "[]"};
constexpr const char* kOptionNames[] = {"units",   "size", "factor", "learning_rate", "momentum",
                                        "threads", "seed", "epochs", "nonsense",      ""};

std::string quoted(const char* text) {
  return text ? "\"" + std::string(text) + "\"" : std::string("NULL");
}

const char* text_or_null(Walk& walk, const char* text) {
  return walk.random.one_in(40) ? nullptr : text;
}

OptionSet* add_options(Walk& walk, etr_options* made) {
  if (!made) return nullptr;
  return walk.world->options.add(
      walk.random, std::unique_ptr<OptionSet>(
                       new OptionSet{{walk, made, "etr_options_destroy", etr_options_destroy}}));
}

void create_options(Walk& walk) {
  if (walk.random.one_in(2)) {
    add_options(walk, walk.made<etr_options>("etr_options_create", "", kOk, etr_options_create));
    return;
  }
  const bool wrong = walk.random.one_in(3);
  const char* const json = text_or_null(
      walk, wrong ? walk.random.of(kNoJson)
                  : walk.random.of({"{}", "{\"units\": 2}", "{\"learning_rate\": 0.05}",
                                    "{\"momentum\": 0.5}", "{\"size\": 4}", "{\"threads\": 2}"}));
  add_options(walk, walk.made<etr_options>("etr_options_create_from_json", quoted(json),
                                           wrong ? kInvalid : Walk::needs(json, kOk),
                                           [&](etr_options** out) {
                                             return etr_options_create_from_json(json, out);
                                           }));
}

void set_option(Walk& walk) {
  etr_options* const options = walk.handle(walk.world->options.any(walk.random));
  const char* const name = text_or_null(walk, walk.random.of(kOptionNames));
  const Codes allowed = Walk::needs(options, Walk::needs(name, kOk));
  const int64_t value = walk.random.between(-3, 8);
  const std::string detail = quoted(name) + ", " + std::to_string(value);
  switch (walk.random.below(5)) {
    case 0:
      walk.call("etr_options_set_integer", detail, allowed,
                [&] { return etr_options_set_integer(options, name, value); });
      break;
    case 1: {
      const double number = walk.random.one_in(8) ? 0.0 / static_cast<double>(value * 0)
                                                  : static_cast<double>(value) / 4;
      walk.call("etr_options_set_number", quoted(name) + ", " + std::to_string(number), allowed,
                [&] { return etr_options_set_number(options, name, number); });
      break;
    }
    case 2:
      walk.call("etr_options_set_boolean", detail, allowed, [&] {
        return etr_options_set_boolean(options, name, static_cast<int32_t>(value));
      });
      break;
    case 3: {
      const char* const text =
          walk.random.of({"relu", "", "\xff", "softmax", (const char*)nullptr});
      const bool wrong = !text || *text == '\xff';
      walk.call("etr_options_set_string", quoted(name) + ", " + quoted(text),
                wrong ? kInvalid : allowed,
                [&] { return etr_options_set_string(options, name, text); });
      break;
    }
    default: {
      const double numbers[] = {0.5, -1, 3};
      const int64_t count = walk.random.between(-1, 3);
      const double* const values = walk.random.one_in(8) ? nullptr : numbers;
      walk.call("etr_options_set_numbers", quoted(name) + ", " + std::to_string(count),
                count < 0 || (count > 0 && !values) ? kInvalid : allowed,
                [&] { return etr_options_set_numbers(options, name, values, count); });
    }
  }
}

Model* add_model(Walk& walk, etr_model* made, bool trains) {
  if (!made) return nullptr;
  auto record =
      std::unique_ptr<Model>(new Model{{walk, made, "etr_model_destroy", etr_model_destroy}});
  record->trains = trains;
  return walk.world->models.add(walk.random, std::move(record));
}

void create_model(Walk& walk) {
  if (walk.random.one_in(3)) {
    add_model(walk, walk.made<etr_model>("etr_model_create", "", kOk, etr_model_create), false);
    return;
  }
  const bool wrong = walk.random.one_in(5);
  const char* const json = text_or_null(
      walk,
      wrong ? walk.random.of({"", "{", "[]", "7", "{\"layers\": [{\"layer\": \"nonsense\"}]}",
                              "{\"layers\": [{\"layer\": \"dense\"}]}", "{\"model\": \"nonsense\"}",
                              "{\"layers\": [{\"layer\": \"dense\", \"units\": -4}]}",
                              "{\"layers\": 3}"})
            : walk.random.of(
                  {"{\"layers\": [{\"layer\": \"dense\", \"units\": 2}]}",
                   "{\"layers\": [{\"layer\": \"dense\", \"units\": 3, \"activation\": \"relu\"}, "
                   "{\"layer\": \"dense\", \"units\": 2}]}",
                   "{\"layers\": [{\"layer\": \"dense\", \"units\": 4}, {\"layer\": \"dropout\", "
                   "\"rate\": 0.5}, {\"layer\": \"dense\", \"units\": 2}]}"}));
  add_model(
      walk,
      walk.made<etr_model>("etr_model_create_from_json", quoted(json),
                           wrong ? kInvalid | kNotFound : Walk::needs(json, kOk),
                           [&](etr_model** out) { return etr_model_create_from_json(json, out); }),
      true);
}

void create_model_from_onnx(Walk& walk) {
  const std::string rows = walk.folder + "/rows.jsonl";      // no ONNX file
  const std::string exported = walk.folder + "/model.onnx";  // if a trainer has exported one
  const char* const path = text_or_null(
      walk,
      walk.random.of({"", "/proc/nowhere.onnx", rows.c_str(), exported.c_str(), exported.c_str()}));
  const Codes wrong = kInvalid | kNotFound | kCorrupt | kUnsupported | kIo;
  add_model(
      walk,
      walk.made<etr_model>("etr_model_create_from_onnx", quoted(path),
                           path == exported.c_str() ? wrong | kOk : wrong,
                           [&](etr_model** out) { return etr_model_create_from_onnx(path, out); }),
      false);
}

void change_model(Walk& walk) {
  Model* const record = walk.world->models.any(walk.random);
  etr_model* const model = walk.handle(record);
  etr_options* const options =
      walk.random.one_in(2) ? nullptr : walk.handle(walk.world->options.any(walk.random));
  const auto note = [&](int32_t status) {
    if (status == ETR_OK) record->trains = false;  // its parameters are not what others expect
  };
  switch (walk.random.below(5)) {
    case 0: {
      const char* const layer =
          text_or_null(walk, walk.random.of({"dense", "flatten", "relu", "nonsense", ""}));
      note(walk.call("etr_model_add", quoted(layer), Walk::needs(model, kOk | kInvalid | kNotFound),
                     [&] { return etr_model_add(model, layer, options); }));
      break;
    }
    case 1: {
      const char* const loss = text_or_null(
          walk, walk.random.of({"softmax_cross_entropy", "mse", "huber", "nonsense", ""}));
      note(walk.call("etr_model_set_loss", quoted(loss), Walk::needs(model, kOk | kInvalid),
                     [&] { return etr_model_set_loss(model, loss, options); }));
      break;
    }
    case 2: {
      const char* const pattern = text_or_null(walk, walk.random.of({"*", "dense_1.*", "x", ""}));
      note(walk.call("etr_model_freeze", quoted(pattern), Walk::needs(model, kOk | kInvalid),
                     [&] { return etr_model_freeze(model, pattern); }));
      break;
    }
    case 3: {
      etr_options* fitting = nullptr;
      if (walk.random.one_in(2)) etr_options_create_from_json("{\"rank\": 2}", &fitting);
      etr_options* const given = fitting ? fitting : options;
      note(walk.call("etr_model_set_lora", given ? "options" : "NULL",
                     Walk::needs(model, Walk::needs(given, kOk | kInvalid)),
                     [&] { return etr_model_set_lora(model, given); }));
      etr_options_destroy(fitting);
      break;
    }
    default: {
      const auto bits = walk.random.of({0, 4, 8, 5, -1});
      const bool wrong = bits == 5 || bits == -1;
      note(walk.call("etr_model_quantize", std::to_string(bits),
                     wrong ? kInvalid | kOk : Walk::needs(model, kOk | kInvalid),
                     [&] { return etr_model_quantize(model, bits); }));
    }
  }
}

void describe_model(Walk& walk) {
  Model* const record = walk.world->models.any(walk.random);
  etr_model* const model = walk.handle(record);
  if (walk.random.one_in(2)) {
    walk.text("etr_model_json", "", Walk::needs(model, kOk | kInvalid),
              [&](char** out) { return etr_model_json(model, out); });
    return;
  }
  const char* const fields =
      text_or_null(walk, walk.random.of({"{\"image\": [6]}", "{\"image\": [28, 28, 1]}", "{}", "[",
                                         "{\"image\": \"x\"}", "{\"image\": [-1]}", "3"}));
  const char* const format = text_or_null(walk, walk.random.of({"text", "json", "xml", ""}));
  walk.text("etr_model_summary", quoted(fields) + ", " + quoted(format),
            Walk::needs(model, kOk | kInvalid | kNotFound),
            [&](char** out) { return etr_model_summary(model, fields, format, out); });
}

void create_optimizer(Walk& walk) {
  const char* const name = text_or_null(walk, walk.random.of({"sgd", "adam", "lars", "nonsense"}));
  etr_options* const options =
      walk.random.one_in(2) ? nullptr : walk.handle(walk.world->options.any(walk.random));
  etr_options* schedule = nullptr;
  if (etr_options_create(&schedule) != ETR_OK) walk.trace.fail("no options");
  etr_options_set_number(schedule, "learning_rate", walk.random.one_in(6) ? -1 : 0.01);
  etr_options* const given = walk.random.one_in(10) ? nullptr : schedule;
  etr_optimizer* const made = walk.made<etr_optimizer>(
      "etr_optimizer_create", quoted(name),
      Walk::needs(name, Walk::needs(given, kOk | kInvalid | kNotFound)),
      [&](etr_optimizer** out) { return etr_optimizer_create(name, options, given, out); });
  etr_options_destroy(schedule);
  if (made)
    walk.world->optimizers.add(walk.random,
                               std::unique_ptr<Optimizer>(new Optimizer{
                                   {walk, made, "etr_optimizer_destroy", etr_optimizer_destroy}}));
}

void describe_library(Walk& walk) {
  switch (walk.random.below(4)) {
    case 0: {
      const char* const kind =
          text_or_null(walk, walk.random.of({"stages", "layers", "models", "optimizers", "job",
                                             "study", "pack", "nonsense", ""}));
      const bool known = kind && *kind && std::string(kind) != "nonsense";
      walk.text("etr_schema", quoted(kind), known ? kOk : kInvalid,
                [&](char** out) { return etr_schema(kind, out); });
      break;
    }
    case 1: {
      const auto status = static_cast<int32_t>(walk.random.between(-20, 5));
      walk.trace.end(walk.trace.begin("etr_status_name", std::to_string(status)));
      if (!etr_status_name(status) || !*etr_status_name(status))
        walk.trace.fail("etr_status_name has no name for " + std::to_string(status));
      break;
    }
    case 2:
      walk.call_void("etr_log_subject", [&] {
        if (etr_log_subject() != ETR_LOG_ABOUT_OTHER)
          walk.trace.fail("etr_log_subject outside of a log function");
      });
      break;
    default: walk.call_void("etr_string_free", [] { etr_string_free(nullptr); });
  }
}

void describe_devices(Walk& walk) {
  if (walk.random.one_in(2)) {
    int32_t count = -1;
    walk.call("etr_device_count", "", kOk, [&] { return etr_device_count(&count); });
    if (count < 1) walk.trace.fail("there is no device");
    walk.call("etr_device_count", "NULL", kInvalid, [&] { return etr_device_count(nullptr); });
    return;
  }
  const auto index = walk.random.of({0, -1, 1000});
  walk.filled<etr_device_info>("etr_device_get", std::to_string(index),
                               index == 0 ? kOk : kNotFound,
                               [&](etr_device_info* out) { return etr_device_get(index, out); });
}

void explain_stats(Walk& walk) {
  Pipeline* const pipeline = walk.world->pipelines.any(walk.random);
  char* own = nullptr;
  if (pipeline && walk.random.one_in(2)) {
    etr_pipeline_stats(pipeline->handle.get(), &own);
    if (pipeline->has_stages) pipeline->used = true;
  }
  const char* const stats = own ? own : text_or_null(walk, walk.random.of(kNoJson));
  const char* const format = text_or_null(walk, walk.random.of({"text", "svg", "json", "x"}));
  walk.text("etr_explain_stats", (own ? "stats" : quoted(stats)) + ", " + quoted(format),
            own ? kOk | kInvalid | kState : kInvalid,
            [&](char** out) { return etr_explain_stats(stats, format, out); });
  etr_string_free(own);
}

void write_report(Walk& walk) {
  const std::string nowhere = walk.folder + "/nowhere", page = walk.folder + "/report.html";
  const char* const name = "run";
  const char* const path = walk.random.of({nowhere.c_str(), "", (const char*)nullptr});
  const double target = walk.random.of({0.0, 0.5, -1.0, 2.0});
  walk.text("etr_report_write", quoted(path), kInvalid | kNotFound | kIo | kCorrupt,
            [&](char** out) {
              return etr_report_write("walk", &name, &path, 1, target, page.c_str(), out);
            });
}

void describe_job(Walk& walk) {
  Job* const record = walk.world->jobs.any(walk.random);
  etr_job* const job = walk.handle(record);
  if (walk.random.one_in(2)) {
    walk.text("etr_job_json", "", Walk::needs(job, kOk),
              [&](char** out) { return etr_job_json(job, out); });
    return;
  }
  char* const directory = walk.made<char>("etr_job_output_dir", "", Walk::needs(job, kOk),
                                          [&](char** out) { return etr_job_output_dir(job, out); });
  if (directory && directory != record->output)
    walk.trace.fail("etr_job_output_dir: " + std::string(directory));
  etr_string_free(directory);
}

void parse_wrong_job(Walk& walk) {
  const char* const json = text_or_null(walk, walk.random.of(kNoJson));
  const char* overrides[] = {"train.steps=4", "nonsense", nullptr};
  const auto count = static_cast<int32_t>(walk.random.between(-1, 3));
  walk.made<etr_job>("etr_job_parse", quoted(json), kInvalid,
                     [&](etr_job** out) { return etr_job_parse(json, overrides, count, out); });
  const std::string right = walk.folder + "/a_job.json";
  std::ofstream(right) << job_text(walk, R"("train": {"steps": 4})");
  const char* const path =
      text_or_null(walk, walk.random.of({"", "/proc/nowhere.json", "/tmp", right.c_str()}));
  etr_job* const job = walk.made<etr_job>(
      "etr_job_load", quoted(path), path == right.c_str() ? kOk : kInvalid | kNotFound | kIo,
      [&](etr_job** out) { return etr_job_load(path, nullptr, 0, out); });
  if (job) walk.call_void("etr_job_destroy", [&] { etr_job_destroy(job); });
}

void destroy_null(Walk& walk) {
  walk.call_void("etr_X_destroy(NULL)", [] {
    etr_options_destroy(nullptr);
    etr_runtime_destroy(nullptr);
    etr_pipeline_destroy(nullptr);
    etr_batch_destroy(nullptr);
    etr_model_destroy(nullptr);
    etr_optimizer_destroy(nullptr);
    etr_trainer_destroy(nullptr);
    etr_job_destroy(nullptr);
    etr_run_destroy(nullptr);
    etr_server_destroy(nullptr);
    etr_study_destroy(nullptr);
  });
}

void destroy_something(Walk& walk) { destroy_any(walk); }

}  // namespace

const std::vector<Step> kDocumentSteps = {
    {20, create_options},        {60, set_option},      {15, create_model},
    {3, create_model_from_onnx}, {25, change_model},    {15, describe_model},
    {12, create_optimizer},      {5, describe_library}, {1, describe_devices},
    {8, explain_stats},          {3, write_report},     {8, describe_job},
    {5, parse_wrong_job},        {3, destroy_null},     {40, destroy_something}};

}  // namespace walk
