#include "pipeline/cache_upstream.h"

#include <atomic>
#include <filesystem>
#include <span>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "core/parse_json.h"
#include "core/platform.h"
#include "core/sha256.h"
#include "core/text.h"
#include "pipeline/position_match.h"
#include "pipeline/stage.h"

namespace etr::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "upstream.json";

// Collects the fields of options of the form FIELD=FILE,...: the fields determine the samples, the
// files are only a location.
void add_fields(const Json& options, Json& fields) {
  if (options.is_structured())
    for (const Json& option : options) add_fields(option, fields);
  if (!options.is_string()) return;
  const auto text = options.get<std::string>();
  for (const std::string_view entry : split(text, ','))
    if (const size_t equals = entry.find('='); equals < entry.find('/'))
      fields.push_back(trim(entry.substr(0, equals)));
}

// {NAME: options}, reduced to what determines the samples.
Json essence(const Json& stage) {
  const std::string name = stage.begin().key();
  const StageSpec& spec = find_stage(name);
  if (spec.kind == StageKind::serial) return {{name, Json::object()}};
  return {{name, options_without_paths(name, stage.begin().value())}};
}

// Describes how the modification times differ; "" if they do not. Names the first changed file if
// the files are listed.
std::string time_difference(const Json& data, const Json& before, const Json& now) {
  if (before == now) return "";
  if (before.is_array() && now.is_array() && before.size() == now.size())
    for (size_t i = 0; i < now.size(); ++i) {
      if (before[i] == now[i]) continue;
      if (data.is_array() && i < data.size()) return time_difference(data[i], before[i], now[i]);
      if (data.is_object() && data.contains("files") && i < data["files"].size())
        return cat("'", data["files"][i].at(0).get<std::string>(), "' has been changed since");
    }
  return "files of its data have been changed since";
}

std::string claim_text(const Json& upstream) { return upstream.dump(1) + "\n"; }

// Creates the file if it does not exist, atomically, so that one of two concurrent upstreams wins.
void write_once(const std::string& path, const std::string& text) {
  // Threads, and containers with equal process ids, may write at once.
  static std::atomic<uint64_t> number{0};
  const fs::path target = path;
  const fs::path temporary =  // a path: removing it takes no memory
      cat(path, ".", platform::process_id(), "-", now_ns(), "-", number++, ".tmp");
  std::error_code error, ignored;
  try {
    platform::write_file_synced(temporary.string(), std::as_bytes(std::span(text)));
  } catch (...) {
    fs::remove(temporary, ignored);
    throw;
  }
  fs::create_hard_link(temporary, target, error);
  fs::remove(temporary, ignored);
  if (error && !fs::exists(target, ignored))  // no hard links on this file system
    platform::write_file_atomic(path, std::as_bytes(std::span(text)));
}

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail(Code::io, "cannot make the shared cache's folder '", folder, "': ", error.message());
}

// Says how the existing claim differs from this one.
std::string claim_difference(const std::string& path, const Json& upstream) {
  const auto damaged = [&](Code code, const char* why) {
    fail(code, "the shared cache's description '", path, "' cannot be used: ", why,
         ". Remove the folder, and it is made anew");
  };
  try {
    const Json held = parse_json(platform::read_document(path), path);
    if (!held.is_object()) fail(Code::corrupt_data, "it is not a JSON object");
    return upstream_difference(held, upstream);
  } catch (const Error& error) {
    damaged(error.code(), error.what());
  } catch (const Json::exception& error) {  // valid JSON with unexpected types
    damaged(Code::corrupt_data, error.what());
  }
  return "";
}

}  // namespace

Json cache_upstream(const Json& stages, Json data, Json changed) {
  Json out{{"stages", Json::array()}, {"data", std::move(data)}, {"changed", std::move(changed)}};
  for (const Json& stage : stages) out["stages"].push_back(essence(stage));
  add_fields(stages[0], out["fields"] = Json::array());
  return out;
}

std::string upstream_difference(const Json& held, const Json& now) {
  if (held == now) return "";
  for (const char* key : {"format", "library", "version", "fields"})
    if (held.value(key, Json()) != now.value(key, Json()))
      return cat("its '", key, "' was ", held.value(key, Json()).dump(), " and is ",
                 now.value(key, Json()).dump());
  for (const char* key : {"stages", "data"})
    if (!held.contains(key)) return cat("it does not say of which ", key, " it is");
  if (const std::string what = stages_difference(held["stages"], now.at("stages")); !what.empty())
    return what;
  if (const std::string what = data_difference(held["data"], now.at("data")); !what.empty())
    return what;
  // What is left may differ in words only: by options' former names, or by what an earlier version
  // did not note.
  return time_difference(now["data"], held.value("changed", Json()), now.value("changed", Json()));
}

bool calls_functions(const Json& stages) {
  if (stages.is_object() && (stages.contains("map") || stages.value("stage", Json()) == "map"))
    return true;
  if (stages.is_structured())
    for (const Json& part : stages)
      if (calls_functions(part)) return true;
  return false;
}

std::string claim_cache_folder(const std::string& folder, const Json& upstream) {
  const std::string path = (fs::path(folder) / kName).string(), text = claim_text(upstream);
  make_folder(folder);
  std::error_code error;
  if (!fs::exists(path, error)) write_once(path, text);
  const std::string what = claim_difference(path, Json::parse(text));
  if (!what.empty())
    fail(Code::state, "the shared cache '", folder,
         "' holds samples of other data, stages or options: ", what,
         ". Remove the folder, and it is made anew, or let 'shared' name another one");
  // The digest is that of the file's text, which may have former names of options.
  return sha256(platform::read_document(path));
}

}  // namespace etr::pipeline
