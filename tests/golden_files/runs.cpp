// Checkpoints of runs and trainers, and jobs with names of options that have been replaced.
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "golden_files/set.h"

namespace golden {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 5;       // before the checkpoint
constexpr int kEnd = 10;        // of the run that goes on from there
constexpr double kNear = 1e-4;  // of losses and weights, which depend on the device

Json pipeline() {
  return {
      {"threads", 2},
      {"stages",
       {{{"stage", "jsonl"}, {"pattern", "data/rows.jsonl"}, {"columns", "image:f32=x,label:i32"}},
        {{"stage", "label"}},
        {{"stage", "shuffle"}, {"buffer", 16}},
        {{"stage", "echo"}, {"factor", 2}, {"buffer", 8}},
        {{"stage", "batch"}, {"size", 5}}}}};
}

Json job(const std::string& name, const Json& changes) {
  Json out{{"seed", 3},
           {"pipeline", pipeline()},
           {"model",
            {{"layers",
              {{{"layer", "dense"}, {"units", 4}, {"activation", "tanh"}},
               {{"layer", "dense"}, {"units", 3}}}}}},
           {"optimizer", {{"optimizer", "sgd"}}},
           {"schedule", {{"learning_rate", 0.05}}},
           {"train", {{"steps", kSteps}}},
           {"output",
            {{"dir", "runs/" + name},
             {"tensorboard", false},
             {"checkpoint_every_epochs", 0},
             {"checkpoint_every_steps", kSteps}}}};
  out.update(changes);
  return out;
}

Json optimizer(const std::string& name, const Json& options = Json::object()) {
  Json out{{"optimizer", name}};
  out.update(options);
  return {{"optimizer", out}};
}

// By name: what differs from the job above.
std::vector<std::pair<std::string, Json>> changes() {
  const Json dense{{"layer", "dense"}, {"units", 3}};
  std::vector<std::pair<std::string, Json>> out = {
      {"sgd", optimizer("sgd", {{"momentum", 0.9}})},
      {"ema", optimizer("adam", {{"ema_decay", 0.9}})},
      {"accumulate", optimizer("sgd", {{"accumulate", 3}, {"momentum", 0.5}})},
      {"proximal", optimizer("sgd", {{"proximal", 0.1}})},
      {"rmsprop", optimizer("rmsprop", {{"momentum", 0.5}})},
      {"batch_norm", {{"model", {{"layers", {dense, {{"layer", "batch_norm"}}, dense}}}}}},
      {"lora",
       {{"model",
         {{"layers", {{{"layer", "dense"}, {"units", 32}, {"name", "base"}}, dense}},
          {"quantize", 4},
          {"lora", {{"layers", {"base"}}, {"rank", 1}, {"train", {"dense_2.*"}}}}}}}},
      {"fp16", {{"model", {{"layers", {dense, dense}}, {"precision", "fp16"}}}}},
      {"two ranks", {{"parallel", {{"zero_stage", 1}}}, {"optimizer", {{"optimizer", "adam"}}}}},
      {"diloco", {{"parallel", {{"algorithm", "diloco"}, {"outer_every", 2}}}}},
  };
  for (const char* name : {"adam", "adamw", "adagrad", "lion", "lamb", "lars"})
    out.emplace_back(name, optimizer(name));
  return out;
}

bool has_ranks(const Json& job) { return job.contains("parallel"); }

et::Job parse(const Json& job, const et::Runtime& device, int steps) {
  std::vector<std::string> overrides{"train.steps=" + std::to_string(steps)};
  if (has_ranks(job)) {
    const std::string name = "\"" + std::string(device.device().name) + "\"";
    overrides.push_back("parallel.devices=[" + name + ", " + name + "]");
  }
  return et::Job::parse(job.dump(), overrides);
}

Json weights_of(const et::Trainer& trainer) {
  const et::Batch weights = trainer.weights();
  Json out = Json::object();
  for (const std::string& name : weights.fields()) {
    const et::TensorView tensor = weights[name];
    const auto* values = tensor.as<float>();
    out[name] = std::vector<float>(values, values + tensor.size_bytes / sizeof(float));
  }
  return out;
}

// The losses of the steps after the checkpoint.
Json losses(const std::string& folder) {
  std::istringstream rows(read_text(folder + "/metrics.jsonl"));
  Json out = Json::array();
  for (std::string line; std::getline(rows, line);) {
    const Json row = Json::parse(line);
    if (row.at("kind") == "step" && row.at("step") > kSteps) out.push_back(row.at("loss"));
  }
  return out;
}

// What a run that goes on from its checkpoint has at first, and then does.
Json go_on(const Json& job) {
  const et::Runtime device = open_device();
  et::Run run(device, parse(job, device, kEnd), et::Start::resume);
  Json out{{"loaded", weights_of(run.trainer())}};
  while (run.next_event()) continue;
  out["losses"] = losses(job.at("output").at("dir"));
  out["weights"] = weights_of(run.trainer());
  return out;
}

void expect_near(const Json& got, const Json& expected, const std::string& what) {
  const Json a = got.flatten(), b = expected.flatten();
  expect(a.size() == b.size() && a.size() > 0,
         what + ": " + got.dump() + " instead of " + expected.dump());
  for (const auto& [key, value] : b.items())
    expect(a.contains(key) && std::abs(a.at(key).get<double>() - value.get<double>()) <= kNear,
           what + key + ": " + got.dump() + " instead of " + expected.dump());
}

Json write_run(const std::string& name, const Json& job) {
  const std::string folder = job.at("output").at("dir");
  {
    const et::Runtime device = open_device();
    et::Run run(device, parse(job, device, kSteps));
    while (run.next_event()) continue;
  }
  fs::copy(folder, "before", fs::copy_options::recursive);
  Json out{{"name", name}, {"job", job}};
  out.update(go_on(job));
  fs::remove_all(folder);
  fs::rename("before", folder);
  fs::remove(folder + "/lock");
  return out;
}

Json write_runs() {
  Json out = Json::array();
  for (const auto& [name, changed] : changes()) out.push_back(write_run(name, job(name, changed)));
  return out;
}

void check_runs(const Json& cases, const std::string&) {
  for (const Json& each : cases) {
    const std::string name = each.at("name");
    Json got;
    try {
      got = go_on(each.at("job"));
    } catch (const std::exception& error) {
      throw std::runtime_error(name + ": " + error.what());
    }
    expect(got.at("loaded") == each.at("loaded"), name + ": the weights of the checkpoint are " +
                                                      got.at("loaded").dump() + ", and were " +
                                                      each.at("loaded").dump());
    expect(got.at("losses").size() == kEnd - kSteps,
           name + ": the run went on for " + got.at("losses").dump());
    expect_near(got.at("losses"), each.at("losses"), name + ": losses after the checkpoint");
    expect_near(got.at("weights"), each.at("weights"), name + ": weights at the end");
  }
}

// Checkpoints of trainers without a run -----------------------------------------------------------

constexpr const char* kModel = R"({"layers": [{"layer": "dense", "units": 3}]})";

et::Trainer trainer(const et::Runtime& device) {
  return et::Trainer(device, et::Model(kModel),
                     et::Optimizer("adam", {}, {{"learning_rate", 0.05}}), 4);
}

void step(et::Trainer& trainer) {
  const float x[6] = {1, 2, 3, -1, 0, 1};
  const int32_t labels[2] = {0, 2};
  et::Batch batch;
  batch.set("image", x, {2, 3});
  batch.set("label", labels, {2});
  trainer.step(batch);
  while (trainer.result(true)) continue;
}

Json load_trainer(const std::string& folder) {
  const et::Runtime device = open_device();
  et::Trainer later = trainer(device);
  step(later);
  later.load(folder);
  Json out{{"folder", folder}, {"loaded", weights_of(later)}};
  step(later);
  out["weights"] = weights_of(later);
  return out;
}

Json write_trainers() {
  {
    const et::Runtime device = open_device();
    et::Trainer first = trainer(device);
    for (int i = 0; i < 3; ++i) step(first);
    first.set_hyperparameter("beta1", 0.5);
    first.save("trainer");
  }
  return Json::array({load_trainer("trainer")});
}

void check_trainers(const Json& cases, const std::string&) {
  for (const Json& each : cases) {
    const Json got = load_trainer(each.at("folder"));
    expect(got.at("loaded") == each.at("loaded"),
           "the weights of a trainer's checkpoint are " + got.at("loaded").dump());
    expect_near(got.at("weights"), each.at("weights"),
                "weights after a step from a trainer's checkpoint");
  }
}

// Jobs with former names ------------------------------------------------------------------------

Json train(const Json& job) {
  const et::Runtime device = open_device();
  et::Run run(device, et::Job::parse(job.dump()));
  while (run.next_event()) continue;
  return weights_of(run.trainer());
}

Json former_names(bool former) {
  Json out = job("", optimizer("adagrad", {{former ? "initial" : "initial_accumulator", 0.1},
                                           {former ? "average" : "ema_decay", 0.5}}));
  out["output"] = {{"dir", ""}};
  out["pipeline"][former ? "world" : "world_size"] = 2;
  out["pipeline"][former ? "drop_rest" : "drop_remainder"] = false;
  out["pipeline"]["rank"] = 1;
  return out;
}

Json write_former() {
  const Json weights = train(former_names(true));
  expect(weights == train(former_names(false)), "a job does not mean the same under former names");
  return Json::array(
      {{{"until", et::version()}, {"job", former_names(true)}, {"weights", weights}}});
}

// Former names are gone in the next minor version.
void check_former(const Json& cases, const std::string& version) {
  for (const Json& each : cases) {
    try {
      et::Job::parse(each.at("job").dump());
    } catch (const et::Error& error) {
      expect(!is_of_today(version) && error.status() == ETR_INVALID_ARGUMENT,
             std::string("a job with names that are gone: ") + error.what());
      continue;
    }
    expect_near(train(each.at("job")), each.at("weights"), "weights of a job with former names");
  }
}

}  // namespace

std::vector<Kind> runs() {
  return {{"checkpoints of runs", write_runs, check_runs},
          {"checkpoints of trainers", write_trainers, check_trainers},
          {"former names", write_former, check_former}};
}

}  // namespace golden
