#include "pipeline/position_match.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "pipeline/pipeline.h"
#include "pipeline/stage.h"

namespace etr::pipeline {
namespace {

bool is_path(const OptionSpec& option) { return std::string_view(option.unit) == "path"; }

bool schema_has(const std::string& stage, const std::string& key) {
  const Schema schema = find_stage(stage).options;
  return std::any_of(schema.begin(), schema.end(),
                     [&](const OptionSpec& option) { return option.is_called(key); });
}

bool is_stage(const Json& spec) {
  return spec.is_object() && spec.contains("stage") && spec["stage"].is_string();
}

bool is_known(const Json& stage) {
  const auto table = stage_table();
  return std::any_of(table.begin(), table.end(),
                     [&](const StageSpec* known) { return stage == known->name; });
}

// Inner sources: {"stage": NAME, options...}, or lists of such. Unknown stages, as in positions of
// later versions, are left as they are.
Json nested_without_paths(Json spec) {
  if (spec.is_array()) {
    for (Json& part : spec) part = nested_without_paths(std::move(part));
  } else if (is_stage(spec) && is_known(spec["stage"])) {
    const auto name = spec["stage"].get<std::string>();
    remove_member(spec, "stage");
    return {{name, options_without_paths(name, spec)}};
  }
  return spec;
}

}  // namespace

Json options_without_paths(const std::string& stage, const Json& options) {
  Json out = Json::object();
  for (const OptionSpec& option : find_stage(stage).options) {
    if (is_path(option)) continue;
    Json& value = out[option.name];
    const char* name = options.contains(option.name) ? option.name : option.former;
    if (options.contains(name))
      value =
          option.type == OptionType::stages ? nested_without_paths(options[name]) : options[name];
    else if (option.default_json)
      value = Json::parse(option.default_json);
  }
  for (const auto& [key, value] : options.items())
    if (!schema_has(stage, key)) out[key] = value;  // from a later version
  return out;
}

namespace {

void erase_paths(Schema schema, Json& options);

// For a stage {"stage": NAME, options...}, or lists of such.
void erase_stage_paths(Json& stages) {
  if (stages.is_array())
    for (Json& stage : stages) erase_stage_paths(stage);
  else if (is_stage(stages))
    erase_paths(find_stage(stages["stage"].get<std::string>()).options, stages);
}

void erase_paths(Schema schema, Json& options) {
  for (const OptionSpec& option : schema)
    if (is_path(option))
      remove_member(options, option.name);
    else if (option.type == OptionType::stages && options.contains(option.name))
      erase_stage_paths(options[option.name]);
}

}  // namespace

Json spec_without_paths(Json spec) {
  erase_paths(pipeline_schema(), spec);
  erase_stage_paths(spec["stages"]);
  return spec;
}

namespace {

std::string text_of(const Json& value) { return value.is_null() ? "not set" : value.dump(); }

// The difference between two objects of options; "" if there is none.
std::string difference(const Json& saved, const Json& now) {
  Json keys = now;
  keys.update(saved);
  for (const auto& [key, unused] : keys.items()) {
    const Json before = saved.value(key, Json()), after = now.value(key, Json());
    if (before != after)
      return cat("'", key, "' was ", text_of(before), " and is ", text_of(after));
  }
  return "";
}

// For positions of versions that recorded only where the data was.
std::string place_difference(const std::string& stage, const Json& was, const Json& is) {
  for (const OptionSpec& option : find_stage(stage).options) {
    if (!is_path(option) && option.type != OptionType::stages) continue;
    const Json before = was.value(option.name, Json()), after = is.value(option.name, Json());
    if (before != after)
      return cat("'", option.name, "' was ", text_of(before), " and is ", text_of(after),
                 "; the position was saved by an earlier version, which recorded only the path of "
                 "the data, so the data must be at that path (a link will do)");
  }
  return "";
}

std::string stage_difference(const Json& saved, const Json& now, bool with_places) {
  if (!saved.is_object() || saved.size() != 1)
    fail(Code::corrupt_data, "the saved pipeline state is damaged: ", saved.dump(),
         " is not a stage");
  const std::string before = saved.begin().key(), after = now.begin().key();
  if (before != after) return cat("was '", before, "' and is '", after, "'");
  const Json &was = saved.begin().value(), &is = now.begin().value();
  std::string what =
      difference(options_without_paths(before, was), options_without_paths(after, is));
  if (what.empty() && with_places) what = place_difference(after, was, is);
  return what.empty() ? "" : cat("('", after, "'): ", what);
}

std::string list_difference(const Json& before, const Json& after, bool with_places) {
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i)
    if (const std::string what = stage_difference(before[i], after[i], with_places); !what.empty())
      return cat("stage ", i + 1, " ", what);
  return before.size() == after.size()
             ? ""
             : cat("it had ", before.size(), " stages and has ", after.size());
}

void check_stages(const Json& saved, const Json& now, bool with_places) {
  const auto other = [](const auto&... what) {
    fail(Code::invalid_argument,
         "the saved position belongs to a pipeline with other stages, options or seed: ", what...);
  };
  if (saved.at("seed") != now["seed"])
    other("the seed was ", saved["seed"].dump(), " and is ", now["seed"].dump());
  if (const std::string what = list_difference(saved.at("stages"), now["stages"], with_places);
      !what.empty())
    other(what);
}

std::string name_of(const Json& file) { return file.at(0).get<std::string>(); }

// The difference between two lists of files [NAME, BYTES or null], in reading order.
std::string file_difference(const Json& saved, const Json& now) {
  const auto has = [](const Json& list, const Json& file) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Json& other) { return other.at(0) == file.at(0); });
  };
  for (const Json& file : saved)
    if (!has(now, file)) return cat("'", name_of(file), "' is missing");
  for (const Json& file : now)
    if (!has(saved, file)) return cat("'", name_of(file), "' is new");
  if (saved.size() != now.size())  // one is named twice
    return cat("it had ", saved.size(), " files and has ", now.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    if (saved[i].at(0) != now[i].at(0))
      return cat("file ", i + 1, " was '", name_of(saved[i]), "' and is '", name_of(now[i]), "'");
    if (saved[i] != now[i])
      return cat("'", name_of(now[i]), "' had ", text_of(saved[i].at(1)), " bytes and has ",
                 text_of(now[i].at(1)));
  }
  return "";
}

// The difference between the class folders, each of which takes a class number.
std::string class_difference(const Json& saved, const Json& now) {
  if (saved == now) return "";
  const Json before = saved.at("count"), after = now.value("count", Json());
  if (before == after) return "its class folders have other names";
  return cat("it had ", text_of(before), " class folders and has ", text_of(after),
             ", and labels are counted over all of them, also those without a sample");
}

std::string words_for(const std::string& key) { return key == "count" ? "files" : key; }

}  // namespace

// Compares two results of Source::data().
std::string data_difference(const Json& saved, const Json& now) {
  if (saved.is_array() && now.is_array() && saved.size() == now.size()) {  // inner sources
    for (size_t i = 0; i < saved.size(); ++i)
      if (const std::string what = data_difference(saved[i], now[i]); !what.empty())
        return cat("source ", i + 1, ": ", what);
    return "";
  }
  if (!saved.is_object() || !now.is_object())
    return saved == now ? "" : cat("it was ", saved.dump(), " and is ", now.dump());
  if (saved.contains("files") && now.contains("files"))
    if (const std::string what = file_difference(saved["files"], now["files"]); !what.empty())
      return what;
  for (const char* key : {"count", "records", "bytes"})
    if (saved.value(key, Json()) != now.value(key, Json()))
      return cat("it had ", text_of(saved.value(key, Json())), " ", words_for(key), " and has ",
                 text_of(now.value(key, Json())));
  if (saved.value("digest", Json()) != now.value("digest", Json()))
    return "its files have other names or sizes";
  // Earlier versions did not note the classes.
  return saved.contains("classes")
             ? class_difference(saved["classes"], now.value("classes", Json::object()))
             : "";
}

std::string stages_difference(const Json& before, const Json& after) {
  return list_difference(before, after, /*with_places=*/false);
}

void check_position(const Json& saved, const Json& now) {
  const bool knows_data = saved.contains("data");
  check_stages(saved.at("pipeline"), now.at("pipeline"), /*with_places=*/!knows_data);
  if (!knows_data) return;
  if (const std::string what = data_difference(saved["data"], now.at("data")); !what.empty())
    fail(Code::invalid_argument, "the saved position belongs to another data set: ", what,
         ". Go on with the data of then, or begin a new run");
}

}  // namespace etr::pipeline
