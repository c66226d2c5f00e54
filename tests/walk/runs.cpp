// Steps on runs of jobs, and on evaluations.
#define ETR_NO_DEPRECATION_WARNINGS
#include <cmath>
#include <filesystem>

#include "world.h"

namespace walk {
namespace {

constexpr Codes kRunFails = kState | kRankLost | kCancelled;  // of several ranks, of stopped runs

std::string new_folder(Walk& walk) {
  return walk.folder + "/run" + std::to_string(++walk.world->folders);
}

void create_job(Walk& walk) {
  Random& random = walk.random;
  const bool stalls = random.one_in(4);
  const int devices = random.one_in(6) ? 2 : 1;
  const std::string output = random.one_in(2) ? "" : new_folder(walk);
  walk.world->jobs.add(random, parse_job(walk, stalls, random.one_in(2), devices, output));
}

Codes codes_of_start(const Job& job, int32_t start) {
  switch (start) {
    case ETR_START_NEW: return kOk | (job.output.empty() ? 0 : kState);
    case ETR_START_RESUME:
    case ETR_START_EVALUATE:
      return job.output.empty() ? kInvalid | kNotFound | kState : kOk | kNotFound | kState;
    case ETR_START_OVERWRITE: return kOk | (job.output.empty() ? 0 : kState);
    case ETR_START_TRIAL: return kOk;
    default: return kInvalid;
  }
}

void start(Walk& walk) {
  Job* const job = walk.world->jobs.any(walk.random);
  if (!job) return create_job(walk);
  const auto how =
      static_cast<int32_t>(walk.random.between(ETR_START_NEW - 1, ETR_START_TRIAL + 1));
  if (walk.random.one_in(20)) {
    walk.made<etr_run>("etr_run_start", "NULL", kInvalid, [&](etr_run** out) {
      return etr_run_start(nullptr, job->handle.get(), ETR_START_NEW, out);
    });
    return;
  }
  if (auto run = start_run(walk, *job, how, codes_of_start(*job, how)))
    walk.world->runs.add(walk.random, std::move(run));
}

// What a run may answer that may have failed, or been stopped, before.
Codes with_odds(const Run* run, Codes allowed) {
  if (!run) return allowed;
  if (run->failed || run->devices > 1) allowed |= kRunFails;
  return allowed;
}

void next_event(Walk& walk) {
  Run* const record = walk.world->runs.any(walk.random);
  etr_run* const run = walk.handle(record);
  const double seconds = walk.random.of({0.001, 0.01, 0.05, -1.0, 2e6, std::nan("")});
  const bool valid = seconds >= 0 && seconds < 1e6;
  Codes allowed = kOk;
  if (record && record->ended) allowed = kEnd;
  if (record && record->start == ETR_START_EVALUATE) allowed = kState;
  int32_t status = ETR_INTERNAL;
  etr_event event{};
  walk.filled<etr_event>(
      "etr_run_next_event_within", std::to_string(seconds),
      valid ? Walk::needs(run, with_odds(record, allowed)) : kInvalid,
      [&](etr_event* out) { return status = etr_run_next_event_within(run, seconds, out); },
      &event);
  if (!run) return;
  if (status == ETR_OK && event.kind == ETR_EVENT_END) record->ended = true;
  if (status < 0 && status != ETR_INVALID_ARGUMENT && record->start != ETR_START_EVALUATE)
    record->failed = true;
}

void stop(Walk& walk) {
  Run* const record = walk.world->runs.any(walk.random);
  etr_run* const run = walk.handle(record);
  walk.call(
      "etr_run_stop", "", run ? kOk : kInvalid, [&] { return etr_run_stop(run); }, true);
  if (run) *record->stopped = true;
}

void evaluate_run(Walk& walk) {
  Run* const record = walk.world->runs.any(walk.random);
  if (record && record->stalls && record->devices > 1) return;  // would wait for a batch
  etr_run* const run = walk.handle(record);
  Codes allowed = kOk;
  if (record && *record->stopped) allowed = kCancelled;
  if (record && !record->evaluates) allowed = kState;
  const bool began = run && !*record->stopped;
  walk.filled<etr_eval_result>("etr_run_evaluate", "", Walk::needs(run, with_odds(record, allowed)),
                               [&](etr_eval_result* out) { return etr_run_evaluate(run, out); });
  if (began && record->devices > 1) record->failed = true;
}

void ask_run(Walk& walk) {
  Run* const record = walk.world->runs.any(walk.random);
  etr_run* const run = walk.handle(record);
  switch (walk.random.below(3)) {
    case 0:
      walk.text("etr_run_pipeline_stats", "", Walk::needs(run, with_odds(record, kOk)),
                [&](char** out) { return etr_run_pipeline_stats(run, out); });
      break;
    case 1: {
      auto* const data = walk.keep(std::make_unique<UserData>());
      const auto goes_on = [](void*, int64_t, int64_t) -> int32_t { return 1; };
      walk.call("etr_run_on_evaluation", "", Walk::needs(run, with_odds(record, kOk)),
                [&] { return etr_run_on_evaluation(run, goes_on, data, UserData::destroy); });
      break;
    }
    default: {
      const char* const format = walk.random.of<const char*>({"text", "x", nullptr});
      const auto steps = walk.random.of<int32_t>({1, 0});
      const bool known = format && *format == 't' && steps > 0;
      if (known && record && (record->stalls || record->start != ETR_START_TRIAL)) return;
      walk.text("etr_run_profile", format ? format : "NULL",
                known
                    ? Walk::needs(run, with_odds(record, kOk | kUnsupported | kState | kCancelled))
                    : kInvalid,
                [&](char** out) { return etr_run_profile(run, steps, format, out); });
    }
  }
}

void take_trainer(Walk& walk) {
  Run* const record = walk.world->runs.any(walk.random);
  etr_run* const run = walk.handle(record);
  etr_trainer* const made =
      walk.made<etr_trainer>("etr_run_trainer", "", Walk::needs(run, kOk),
                             [&](etr_trainer** out) { return etr_run_trainer(run, out); });
  if (!made) return;
  auto trainer = std::unique_ptr<Trainer>(
      new Trainer{{walk, made, "etr_trainer_destroy", etr_trainer_destroy}});
  trainer->of_run = trainer->shaped = true;
  trainer->run_stopped = record->stopped;
  // With several ranks calls fail when the run has; a stalled one has no batch to give shapes.
  trainer->odd = true;
  if (record->stalls) return;
  walk.world->trainers.add(walk.random, std::move(trainer));
}

void destroy_run(Walk& walk) {
  Run* const record = walk.world->runs.any(walk.random);
  if (record) walk.world->runs.take(record);
}

struct Progress : UserData {
  explicit Progress(Walk& its_walk) : walk(its_walk) {}
  Walk& walk;
  etr_trainer* trainer = nullptr;
  bool destroys = false;  // the trainer, in the first call
  bool has_destroyed = false;
  int32_t answer = 1;

  static int32_t tell(void* self, int64_t, int64_t) {
    auto& mine = *static_cast<Progress*>(self);
    if (mine.has_destroyed) return mine.answer;
    mine.walk.call("etr_trainer_set_hyperparameter", "in its own call", kState,
                   [&] { return etr_trainer_set_hyperparameter(mine.trainer, "weight_decay", 0); });
    if (mine.destroys) {
      mine.walk.call_void("etr_trainer_destroy", [&] { etr_trainer_destroy(mine.trainer); });
      mine.has_destroyed = true;
    }
    return mine.answer;
  }
};

// Evaluates on a pipeline, and lets the function that is told of it use the trainer, or destroy it.
void evaluate(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  if (!record) return;
  auto input = new_pipeline(walk, "{\"epochs\": 2, \"threads\": 2}");
  if (!input) return;
  const auto samples = walk.random.between(0, 9);
  add_source(walk, *input, samples, walk.random.one_in(5) ? 3 : 0);
  add_stage(walk, *input, "batch", "{\"size\": 4}");
  const bool has_batches = samples >= 4;
  auto* const told = walk.keep(std::make_unique<Progress>(walk));
  told->trainer = record->handle.get();
  told->destroys = walk.random.one_in(6);
  told->answer = !walk.random.one_in(3);
  const Codes alive = record->odd ? kOk | kState : kOk;
  if (walk.call("etr_trainer_on_evaluation", "", alive, [&] {
        return etr_trainer_on_evaluation(told->trainer, Progress::tell, told, UserData::destroy);
      }) != ETR_OK)
    return;
  etr_eval_result result{};
  result.struct_size = sizeof result;
  Codes allowed = kOk | (input->may_fail ? kCallback | kInvalid : 0) |
                  (has_batches ? 0 : kInvalid) | (told->answer ? 0 : kCancelled) |
                  (record->odd ? kInvalid | kNotFound | kState | kUnsupported | kRankLost : 0) |
                  (record->may_diverge ? kNotFinite : 0);
  const int32_t status =
      walk.call("etr_trainer_evaluate", told->destroys ? "destroys the trainer" : "", allowed,
                [&] { return etr_trainer_evaluate(told->trainer, input->handle.get(), &result); });
  if (told->has_destroyed) {
    record->handle.forget();
    walk.world->trainers.take(record);
    if (told->destroyed != 1) walk.trace.fail("the function of a destroyed trainer is alive");
    return;
  }
  (status == ETR_OK ? record->shaped : record->may_be_shaped) = true;
  walk.call("etr_trainer_on_evaluation", "NULL", alive,
            [&] { return etr_trainer_on_evaluation(told->trainer, nullptr, nullptr, nullptr); });
  if (told->destroyed != 1) walk.trace.fail("a function that was removed is alive");
}

// What was deprecated treats a run as a trainer.
void run_as_trainer(Walk& walk) {
  etr_trainer* const trainer = walk.handle(walk.world->trainers.any(walk.random));
  etr_event event{};
  event.struct_size = sizeof event;
  switch (walk.random.below(3)) {
    case 0:
      walk.call("etr_trainer_next_event", "no run", Walk::needs(trainer, kState),
                [&] { return etr_trainer_next_event(trainer, &event); });
      break;
    case 1:
      walk.call(
          "etr_trainer_stop", "no run", kInvalid, [&] { return etr_trainer_stop(trainer); }, true);
      break;
    default:
      walk.text("etr_trainer_pipeline_stats", "no run", Walk::needs(trainer, kState),
                [&](char** out) { return etr_trainer_pipeline_stats(trainer, out); });
  }
}

void start_as_trainer(Walk& walk) {
  const auto job = parse_job(walk, false, false, 1, "");
  etr_trainer* const made =
      walk.made<etr_trainer>("etr_trainer_start_job", "", kOk, [&](etr_trainer** out) {
        return etr_trainer_start_job(runtime_of(walk)->handle.get(), job->handle.get(),
                                     ETR_START_NEW, out);
      });
  if (!made) return;
  const Handle<etr_trainer> owner(walk, made, "etr_trainer_destroy", etr_trainer_destroy);
  etr_event event{};
  event.struct_size = sizeof event;
  walk.call("etr_trainer_next_event_within", "", kOk,
            [&] { return etr_trainer_next_event_within(made, 0.01, &event); });
  walk.call("etr_trainer_stop", "", kOk, [&] { return etr_trainer_stop(made); });
  walk.text("etr_trainer_pipeline_stats", "", kOk,
            [&](char** out) { return etr_trainer_pipeline_stats(made, out); });
  while (walk.call("etr_trainer_next_event", "", kOk | kEnd,
                   [&] { return etr_trainer_next_event(made, &event); }) == ETR_OK) {
  }
}

}  // namespace

std::unique_ptr<Job> parse_job(Walk& walk, bool stalls, bool evaluates, int devices,
                               const std::string& output) {
  const std::string delay = "{\"stage\": \"delay\", \"milliseconds\": 1000000},";
  std::string json = R"({"pipeline": )" + row_stages(walk, stalls ? delay : "") +
                     R"(, "model": {"layers": [{"layer": "dense", "units": 2}]},
      "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02},
      "train": {"steps": )" +
                     std::to_string(walk.random.of({4, 40, 1000000})) +
                     R"(, "progress_every": 0.05}, "output": {"dir": ")" + output + "\"}";
  if (evaluates) json += R"(, "evaluation": {"pipeline": )" + row_stages(walk, "") + "}";
  if (devices > 1) {
    etr_device_info info{};
    info.struct_size = sizeof info;
    etr_runtime_device(runtime_of(walk)->handle.get(), &info);
    const std::string name = std::string("\"") + info.name + "\"";
    json += R"(, "parallel": {"devices": [)" + name + ", " + name + "]}";
  }
  json += "}";
  etr_job* made = nullptr;
  walk.call("etr_job_parse", stalls ? "stalls" : "", kOk,
            [&] { return etr_job_parse(json.c_str(), nullptr, 0, &made); });
  auto job = std::unique_ptr<Job>(new Job{{walk, made, "etr_job_destroy", etr_job_destroy}});
  job->output = output;
  job->stalls = stalls;
  job->evaluates = evaluates;
  job->devices = devices;
  return job;
}

std::unique_ptr<Run> start_run(Walk& walk, const Job& job, int32_t start, Codes allowed) {
  namespace fs = std::filesystem;
  etr_runtime* const runtime = runtime_of(walk)->handle.get();
  const bool had_folder = !job.output.empty() && fs::exists(job.output);
  etr_run* const made = walk.made<etr_run>(
      "etr_run_start",
      std::to_string(start) + (job.stalls ? ", stalls" : "") + ", " + std::to_string(job.devices) +
          " devices",
      allowed, [&](etr_run** out) { return etr_run_start(runtime, job.handle.get(), start, out); });
  if (!made && !had_folder && !job.output.empty() && fs::exists(job.output))
    walk.trace.fail("etr_run_start has failed and left the folder " + job.output);
  if (!made) return nullptr;
  auto run = std::unique_ptr<Run>(new Run{{walk, made, "etr_run_destroy", etr_run_destroy}});
  run->start = start;
  run->stalls = job.stalls;
  run->evaluates = job.evaluates;
  const bool alone = start == ETR_START_TRIAL || start == ETR_START_EVALUATE;
  run->devices = alone ? 1 : job.devices;
  return run;
}

const std::vector<Step> kRunSteps = {{8, create_job},     {6, start},           {25, next_event},
                                     {5, stop},           {6, evaluate_run},    {15, ask_run},
                                     {8, take_trainer},   {4, destroy_run},     {6, evaluate},
                                     {6, run_as_trainer}, {1, start_as_trainer}};

}  // namespace walk
