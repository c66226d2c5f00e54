// Records of studies, metrics, and the tuning of kernels.
#include <filesystem>

#include "golden_files/set.h"

namespace golden {
namespace {

namespace fs = std::filesystem;

// Studies ---------------------------------------------------------------------------------------

Json study_file() {
  const Json stages = {
      {{"stage", "jsonl"}, {"pattern", "data/rows.jsonl"}, {"columns", "image:f32=x,label:i32"}},
      {{"stage", "batch"}, {"size", 8}}};
  Json endless = stages;
  endless.insert(endless.begin() + 1, Json::object({{"stage", "repeat"}}));
  const Json job = {{"pipeline", {{"stages", endless}}},
                    {"model", {{"layers", {{{"layer", "dense"}, {"units", 3}}}}}},
                    {"optimizer", {{"optimizer", "sgd"}}},
                    {"schedule", {{"learning_rate", 0.01}}},
                    {"evaluation", {{"pipeline", {{"stages", stages}}}}}};
  return {{"job", job},
          {"budget", {{"steps", 6}}},
          {"evaluate", {{"every_steps", 3}}},
          {"search",
           {{"trials", 2},
            {"searches", 2},
            {"space", {{"schedule.learning_rate", {{"from", 1e-3}, {"to", 1e-1}}}}}}}};
}

Json run_study(const std::string& file, const std::string& folder) {
  const et::Runtime device = open_device();
  et::Study study = et::Study::load(file);
  study.start(device, folder, 1);
  Json last;
  while (const auto event = study.next_event(5)) last = Json::parse(*event);
  return last;
}

Json write_studies() {
  fs::create_directories("study");
  write_text("study/study.json", study_file().dump(1));
  run_study("study/study.json", "study/out");
  for (const auto& entry : fs::directory_iterator("study/out"))
    if (entry.path().filename() != "trials.jsonl" && entry.path().filename() != "study.json")
      fs::remove_all(entry.path());
  const et::Study study = et::Study::load("study/study.json");
  return Json::array({{{"file", "study/study.json"},
                       {"folder", "study/out"},
                       {"trials", 4},
                       {"results", Json::parse(study.results("study/out"))}}});
}

// What a later version adds to results does not count.
void check_studies(const Json& cases, const std::string&) {
  for (const Json& each : cases) {
    const std::string file = each.at("file"), folder = each.at("folder");
    const Json results = Json::parse(et::Study::load(file).results(folder));
    expect(results.size() == each.at("results").size(),
           "a study has the results " + results.dump());
    for (const char* key : {"trials", "counts", "best", "best_metric"})
      expect(results[0].at(key) == each.at("results")[0].at(key),
             std::string("results of a study: '") + key + "' is " + results[0].at(key).dump() +
                 " instead of " + each.at("results")[0].at(key).dump());
    const Json end = run_study(file, folder);
    expect(end.at("resumed") == each.at("trials") && end.at("done") == each.at("trials"),
           "trials of a study were run again: " + end.dump());
  }
}

// Metrics ---------------------------------------------------------------------------------------

Json report_on(const std::string& folder) {
  const Json table = Json::parse(et::write_report("golden", {{"run", folder}}, "report.html"));
  fs::remove("report.html");
  return {{"steps", table[0].at("steps")},
          {"examples", table[0].at("examples")},
          {"fresh", table[0].at("fresh")},
          {"final_training_loss", table[0].at("final_training_loss")}};
}

Json write_metrics() {
  fs::create_directories("metrics");
  fs::copy("runs/sgd/metrics.jsonl", "metrics/metrics.jsonl");
  return Json::array({{{"folder", "metrics"}, {"report", report_on("metrics")}}});
}

void check_metrics(const Json& cases, const std::string&) {
  for (const Json& each : cases) {
    const Json got = report_on(each.at("folder"));
    expect(got == each.at("report"),
           "a report has " + got.dump() + " instead of " + each.at("report").dump());
  }
}

// Tuning ----------------------------------------------------------------------------------------

// How many products are measured, with the choices of `file`, for a step of a small network.
int64_t measured(const std::string& file) {
  const char* name = std::getenv("ECHOTRAIN_TEST_DEVICE");
  const et::Runtime device(name ? name : "", 0, file);
  et::Trainer trainer(device, et::Model(R"({"layers": [{"layer": "dense", "units": 2}]})"),
                      et::Optimizer("sgd", {}, {{"learning_rate", 0.1}}));
  const float x[24] = {};
  const int32_t labels[4] = {};
  et::Batch batch;
  batch.set("image", x, {4, 6});
  batch.set("label", labels, {4});
  trainer.step(batch);
  while (trainer.result(true)) continue;
  int64_t count = 0;
  et::check(etr_runtime_tune(
      device.get(), "tuning.json",
      [](void* counted, int64_t, int64_t, const char*, const char*) -> int32_t {
        return ++*static_cast<int64_t*>(counted), 1;
      },
      &count));
  return count;
}

Json write_tuning() {
  const int64_t count = measured("");
  expect(count > 0, "nothing was measured");
  return Json::array(
      {{{"file", "tuning.json"}, {"device", open_device().device().name}, {"measured", count}}});
}

// Choices are for a device. On another one they stay in the file; as that of this one, if it is a
// CPU with as wide vectors, too, they spare measuring.
void check_tuning(const Json& cases, const std::string&) {
  for (const Json& each : cases) {
    const std::string file = each.at("file"), text = read_text(file), from = each.at("device");
    const et::Runtime device = open_device();
    const etr_device_info info = device.device();
    measured(file);
    expect(read_text(file).find(from) != std::string::npos, "choices for another device are lost");
    const auto width = [](const std::string& name) { return name.substr(name.rfind(',') + 1); };
    if (info.kind != ETR_DEVICE_CPU || width(info.name) != width(from)) continue;
    std::string renamed = text;
    for (size_t at = 0; (at = renamed.find(from, at)) != std::string::npos;
         at += std::string(info.name).size())
      renamed.replace(at, from.size(), info.name);
    write_text(file, renamed);
    // Those of other kernels than this version's are measured again; 0.1 did not note with which.
    const int64_t again = measured(file);
    expect(again == 0 || again == each.at("measured"), "a tuning file is used in part");
    expect(again > 0 || text.find("\"kernels\"") != std::string::npos,
           "choices are used, of which nobody knows with which kernels they were measured");
    expect(measured(file) == 0, "choices of a tuning file are not used");
  }
}

}  // namespace

std::vector<Kind> records() {
  return {{"studies", write_studies, check_studies},
          {"metrics", write_metrics, check_metrics},
          {"tuning", write_tuning, check_tuning}};
}

}  // namespace golden
