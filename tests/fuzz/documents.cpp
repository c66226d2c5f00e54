// Fuzz targets for the documents that EchoTrain writes and reads again: positions, logs, records,
// manifests, tuned choices. Each starts from a valid document, whose values the input changes; an
// empty input, with which libFuzzer begins, leaves it valid. One program a target, as in data.cpp.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/options.h"
#include "core/packed.h"
#include "core/parse_json.h"
#include "core/platform.h"
#include "echo/decisions.h"
#include "fuzz/target.h"
#include "pipeline/pipeline.h"
#include "pipeline/tune.h"
#ifdef ETR_FUZZ_TRAINING  // the targets that link both wings
#include "checkpoint/manifest.h"
#include "checkpoint/store.h"
#include "gpu/device.h"
#include "gpu/tuning.h"
#include "gpu/verdicts.h"
#include "study/outline.h"
#include "study/records.h"
#include "study/report.h"
#include "study/summary.h"
#include "train/report.h"
#endif

namespace etr::fuzz {
namespace {

Json nasty(Choices& choose) {
  constexpr const char* kOthers[] = {
      "true",     "{}",          "\"\"",   "[[]]",    "1e-320",
      "-1e308",   "-0.0",        "[0]",    "0.1",     "9007199254740993",
      "\"../x\"", "\"\\u0000\"", "[null]", "{\"\":0}"};
  return Json::parse(choose.below(2) ? choose.of(kOthers) : choose.of(kNumbers));
}

constexpr const char* kKeys[] = {
    "x",        "",    "0",     "2",    "-1",    "18446744073709551616",
    "../x",     "a/b", "epoch", "done", "drops", "dropped_copies",
    "decisions"};

// Replaces, removes, repeats or adds one value of a document, or moves it to another key.
void change(Json& document, Choices& choose) {
  Json* parent = nullptr;
  Json* node = &document;
  size_t index = 0;
  while (node->is_structured() && !node->empty() && choose.below(8) != 7) {
    parent = node;
    index = choose.below(node->size());
    node = &*std::next(node->begin(), static_cast<std::ptrdiff_t>(index));
  }
  switch (choose.below(7)) {
    case 0:
      if (parent) parent->erase(std::next(parent->begin(), static_cast<std::ptrdiff_t>(index)));
      return;
    case 1:
      if (parent && parent->is_array()) parent->push_back(Json(*node));
      return;
    case 2:
      if (node->is_array()) return node->push_back(nasty(choose));
      if (node->is_object()) {
        (*node)[choose.of(kKeys)] = nasty(choose);
        return;
      }
      break;
    case 3:  // another value of the same kind, so that it passes the first checks
      if (node->is_number_integer()) {
        *node = node->get<uint64_t>() + choose.below(5) - 2;  // may wrap around
        return;
      }
      if (node->is_string() && !node->get_ref<const std::string&>().empty()) {
        auto& text = node->get_ref<std::string&>();
        text[choose.below(text.size())] = static_cast<char>(33 + choose.below(90));
        return;
      }
      break;
    case 4:  // a packed list of other numbers
      if (node->is_string()) {
        std::vector<uint64_t> numbers(choose.below(6));
        for (uint64_t& number : numbers) number = choose.below(3) ? choose.below(9) : ~uint64_t{0};
        *node = pack_numbers(numbers);
        return;
      }
      break;
    case 5:
      if (parent && parent->is_object()) {
        Json moved = std::move(*node);
        parent->erase(std::next(parent->begin(), static_cast<std::ptrdiff_t>(index)));
        (*parent)[choose.of(kKeys)] = std::move(moved);
        return;
      }
      break;
    default: break;
  }
  *node = nasty(choose);
}
void change_all(Json& document, Choices& choose) {
  for (int i = 0; i < 8 && choose.left(); ++i) change(document, choose);
}

// Lines of JSON: rows are changed, repeated and left out, and the last one may be cut off.
std::string changed_lines(std::vector<Json> rows, Choices& choose) {
  for (int i = 0; i < 8 && choose.left(); ++i) {
    const size_t at = choose.below(rows.size());
    if (const size_t how = choose.below(6); how == 0)
      rows.push_back(rows[at]);
    else if (how == 1 && rows.size() > 1)
      rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(at));
    else
      change(rows[at], choose);
  }
  std::string text;
  for (const Json& row : rows) text += row.dump() + "\n";
  if (choose.below(8) == 1) text.resize(text.size() - std::min<size_t>(text.size(), 3));
  return text;
}

Json pipeline_spec() {
  std::string lines = "x\n";
  for (int i = 0; i < 20; ++i) lines += i % 7 == 5 ? "not a number\n" : cat(i, "\n");
  return {{"stages",
           {{{"stage", "csv"}, {"columns", "x:f32"}, {"pattern", as_file(lines, ".csv")}},
            {{"stage", "echo"}, {"factor", 2}, {"buffer", 4}},
            {{"stage", "repeat"}, {"count", 3}},
            {{"stage", "shuffle"}, {"buffer", 5}},
            {{"stage", "batch"}, {"size", 3}}}},
          {"on_error", "skip"},
          {"threads", 1},
          {"seed", 3}};
}

// The position of a pipeline that has begun at `from`, unless that is null, and given `items`.
Json position_of(const Json& spec, int items, const Json& from = nullptr) {
  pipeline::Pipeline pipeline(spec);
  if (!from.is_null()) pipeline.restore(from);
  pipeline::Item item;
  for (int i = 0; i < items; ++i) pipeline.next(item);
  return pipeline.save();
}

struct Start {
  Json spec, saved;
};

// Positions with all that one may hold: bad records left out, decisions of an echo node on demand,
// all ranks of a world, and what they had delivered when the rest of an epoch was shared out.
std::vector<Start> starts() {
  const Json plain = pipeline_spec();
  Json on_demand = plain;
  on_demand["stages"][1]["mode"] = "on_demand";
  Json ranks = Json::array();
  for (const int rank : {0, 1}) {
    Json of_rank = plain;
    of_rank["world_size"] = 2;
    of_rank["rank"] = rank;
    ranks.push_back(position_of(of_rank, 4));
  }
  return {{plain, position_of(plain, 18)},
          {on_demand, position_of(on_demand, 10)},
          {plain, ranks},
          {plain, position_of(plain, 3, ranks)}};
}

void position(Bytes bytes) {
  static const std::vector<Start> all = starts();
  Choices choose(bytes);
  const Start& start = all[choose.below(all.size())];
  Json state = start.saved;
  change_all(state, choose);
  pipeline::Pipeline pipeline(start.spec);
  pipeline.restore(parse_json(state.dump(), "the position"));
  pipeline::Item item;
  for (int i = 0; i < 4; ++i) pipeline.next(item);
  if (bytes.empty() || start.spec["stages"][1].contains("mode")) return;
  // What was accepted is saved and restored again. Another thread may not have read as far.
  const Json saved = pipeline.save();
  pipeline::Pipeline again(start.spec);
  require_no_error([&] { again.restore(saved); });
}

void decisions(Bytes bytes) {
  static const std::vector<Json> rows = {
      {{"epoch", 0}, {"after", 1}, {"echoes", 2}},
      {{"epoch", 0}, {"after", 2}, {"echoes", 1}, {"size", 3}},
      {{"epoch", 1}, {"after", 0}, {"restored", true}},
      {{"epoch", 1}, {"after", 4}, {"echoes", 7}, {"again", true}},
      {{"epoch", 1}, {"after", 4}, {"echoes", 8}},
  };
  Choices choose(bytes);
  const std::string path = as_file(changed_lines(rows, choose), ".jsonl");
  echo::Decisions replayed("", path);
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    replayed.start_epoch(epoch);
    replayed.begin_run();
    for (uint64_t after = 0; after < 9; ++after) {
      replayed.reach(after);
      if (const auto due = replayed.due(after)) replayed.note(after, *due, nullptr);
    }
    replayed.end_pass();
    Json saved = replayed.save(epoch);
    require_no_error([&] { echo::Decisions("", "").load(epoch, saved); });
    change_all(saved, choose);
    echo::Decisions restored("", "");
    try {
      restored.load(epoch, saved);
      restored.start_epoch(epoch);
      for (uint64_t after = 0; after < 9; ++after)
        if (restored.replaying(after)) restored.due(after);
    } catch (const Error&) {
    }
  }
}

void tuned(Bytes bytes) {
  Choices choose(bytes);
  Json file{{"options", {{"threads", 2}, {"remote_connections", 4}, {"prefetch", 2}}},
            {"samples_per_s", 1000.0},
            {"trials", {{{"threads", 1}, {"samples_per_s", 800.0}}}}};
  change_all(file, choose);
  Json spec = pipeline_spec();
  spec.erase("threads");
  spec["tuned"] = as_file(file.dump(), ".json");
  // Not built: a file that says 64 threads gets 64.
  const Json all = pipeline::with_tuned(spec);
  Json options = all;
  for (const char* key : {"stages", "tuned"}) options.erase(key);
  Options(pipeline::pipeline_schema(), "pipeline", options);
}

#ifdef ETR_FUZZ_TRAINING
// A manifest beside files that are as it says.
void manifest(Bytes bytes) {
  static const std::string folder = [] {
    checkpoint::Files files;
    checkpoint::put_text(files, "state.json", R"({"step": 3})");
    checkpoint::put_text(files, "weights.safetensors", "not really");
    return checkpoint::Store(path_of(".checkpoints")).save(3, files);
  }();
  static const Json original =
      parse_json(platform::read_document(folder + "/" + checkpoint::kManifestName), "m");
  Choices choose(bytes);
  Json changed = original;
  change_all(changed, choose);
  const auto write = [&](const Json& json) {
    const std::string text = json.dump();
    write_file(folder + "/" + checkpoint::kManifestName, std::as_bytes(std::span(text)));
  };
  write(changed);
  const Json read = checkpoint::manifest_json(checkpoint::read_manifest(folder));
  write(read);
  require(checkpoint::manifest_json(checkpoint::read_manifest(folder)) == read);
  const checkpoint::Loaded loaded = checkpoint::load_checkpoint(folder);
  checkpoint::json_of(loaded.files, "state.json", "fuzz");
}

// The choices of kernels, and the verdicts over them.
void tuning(Bytes bytes) {
  constexpr auto kKind = gpu::DeviceKind::cpu;
  static const Json choices{
      {"format", "echotrain kernels 1"},
      {"devices",
       {{"a", {{"conv 1x2x3 fp32", "gemm 0 0 1"}, {"other", ""}}}, {"b", Json::object()}}},
      {"kernels", {{"a", gpu::Tuning::checksum_of_kernels(kKind)}, {"b", "1"}}}};
  static const Json verdicts{{"format", "echotrain verdicts 1"},
                             {"kernels", {{"k", "right"}, {"l", "right without optimizer"}}}};
  Choices choose(bytes);
  Json changed = choices;
  change_all(changed, choose);
  const std::string path = as_file(changed.dump(), ".tuning");
  bool readable = true;
  gpu::Tuning read(kKind);
  try {
    read.read(path, "a");
  } catch (const Error&) {
    readable = false;
  }
  if (bytes.empty() && read.size() != 2) std::abort();
  if (readable) {
    read.choice("other", {"x"}, {});
    read.write(path, "a");
    gpu::Tuning again(kKind);
    require_no_error([&] { again.read(path, "a"); });
    require(again.size() == read.size());
  }
  changed = verdicts;
  change_all(changed, choose);
  const std::string kept = as_file(changed.dump(), ".verdicts");
  gpu::Verdicts known(kept);
  if (bytes.empty() && known.of("k") != gpu::Verdict::right) std::abort();
  known.set("m", known.of("k"));
  known.save();
  require(gpu::Verdicts(kept).of("m") == known.of("m"));
}

// What the report of runs reads.
void metrics(Bytes bytes) {
  std::vector<Json> rows;
  for (int step = 1; step < 4; ++step) {
    const double seconds = 0.1 * step;
    const int examples = 8 * step;
    rows.push_back({{"kind", "step"},
                    {"step", step},
                    {"seconds", seconds},
                    {"loss", 2.0},
                    {"examples", examples},
                    {"fresh", examples},
                    {"busy_seconds", seconds / 2},
                    {"noise_scale", 9.0}});
    rows.push_back({{"kind", "evaluation"},
                    {"step", step},
                    {"seconds", seconds},
                    {"eval_loss", 1.0},
                    {"eval_accuracy", 0.5},
                    {"fresh", examples}});
  }
  Choices choose(bytes);
  const std::string path = as_file(changed_lines(rows, choose), ".metrics.jsonl");
  train::write_report("Fuzz", {{"one", path}, {"two", path}}, 0.4, path + ".html");
}

std::string lines_of(const std::vector<study::Record>& records) {
  std::string lines;
  for (const study::Record& record : records) lines += study::to_json(record).dump() + "\n";
  return lines;
}

// What the report of a study reads. What is read can be written again.
void records(Bytes bytes) {
  std::vector<Json> rows;
  for (uint64_t trial = 0; trial < 3; ++trial) {
    study::Record record;
    record.workload = "w";
    record.condition = {{"factor", trial + 1}};
    record.trial = trial;
    record.point = {{"schedule.learning_rate", 0.1}};
    record.unit = {0.5};
    record.status = study::Status::reached;
    record.to_target = study::Clock{100, 200, 10, 1};
    record.best_metric = record.final_metric = 0.7;
    record.curve = {{{100, 200, 10, 1}, 0.7, 0.8, 0.6}, {{200, 400, 20, 2}, 0.6, 0.9, 0.5}};
    rows.push_back(study::to_json(record));
  }
  Choices choose(bytes);
  const std::string path = as_file(changed_lines(rows, choose), ".trials.jsonl");
  const std::vector<study::Record> read = study::read_records(path);
  const std::string written = lines_of(read);
  require_no_error(
      [&] { require(lines_of(study::read_records(as_file(written, ".again.jsonl"))) == written); });
  study::Outline outline;
  outline.objectives.push_back({.workload = "w", .accuracy = true, .target = 0.6});
  const study::Summary summary = study::summarize(outline, read);
  study::to_json(summary, read).dump();
  study::conditions_csv(summary, read);
  study::trials_csv(read);
  std::filesystem::create_directories(path + ".d");
  study::write_study_report(outline, read, path + ".d");
}
#endif

}  // namespace
}  // namespace etr::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {  // an Error ends the program: the target would test nothing
    etr::fuzz::ETR_FUZZ_TARGET({});
    return 0;
  }
  return etr::fuzz::run(etr::fuzz::ETR_FUZZ_TARGET, data, size);
}
