// Runs of jobs: stopped, resumed, evaluated, measured and compared.
#include <atomic>
#include <thread>

#include "soak/data.h"
#include "soak/jobs.h"
#include "soak/scenario.h"

namespace soak {

std::string job_text(const Round& round, const std::string& echo, const std::string& more) {
  const std::string images = R"({"stage": "folder", "root": ")" + round.data +
                             R"(/images"}, {"stage": "label"}, {"stage": "decode"})";
  const std::string batches = R"({"stage": "batch", "size": 8}, {"stage": "normalize"})";
  return R"({"seed": 3, "pipeline": {"threads": 2, "stages": [)" + images + ", " + echo +
         R"({"stage": "random_crop", "height": 8, "width": 8, "pad": 1}, )" + batches +
         R"(]}, "evaluation": {"pipeline": {"stages": [)" + images + ", " + batches +
         R"(]}}, "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
      "optimizer": {"optimizer": "sgd", "momentum": 0.9}, "schedule": {"learning_rate": 0.02}, "train": {"steps": 12},
      "output": {"dir": ")" +
         round.work + R"(/run", "checkpoint_every_steps": 4})" + more + "}";
}

namespace {

constexpr const char* kEchoes[] = {
    "",
    R"({"stage": "echo", "factor": 2, "buffer": 20}, )",
    R"({"stage": "echo", "factor": 3, "mode": "on_demand", "buffer": 20}, )",
    R"({"stage": "echo", "factor": 2, "device": true, "buffer": 20}, )",
};

uint64_t to_the_end(et::Run& run) {
  uint64_t step = 0;
  while (const auto event = run.next_event()) step = event->step;
  return step;
}

// Stopped in order, given up, resumed, begun again.
void run_and_resume(Round& round) {
  const et::Runtime device = open_device();
  const et::Job job = et::Job::parse(job_text(round, kEchoes[round.roll(4)]));
  {
    et::Run run(device, job, et::Start::new_run);
    const auto last = static_cast<uint64_t>(1 + round.roll(10));
    while (run.next_event(1e-6).value().step < last) continue;
    run.stop();
    to_the_end(run);
  }
  {
    et::Run given_up(device, job, et::Start::resume);
    given_up.next_event(1e-6);
  }
  et::Run resumed(device, job, et::Start::resume);
  expect(to_the_end(resumed) == 12, "a run that is resumed gets to its end");
  et::Trainer trainer = resumed.trainer();
  et::Run(device, job, et::Start::overwrite).next_event(1e-6);
  expect(!trainer.weights().fields().empty(), "a trainer outlives its run");
}

void evaluate_and_measure(Round& round) {
  const et::Runtime device = open_device();
  const et::Job job = et::Job::parse(job_text(round, kEchoes[round.roll(4)]));
  et::Run run(device, job, et::Start::new_run);
  to_the_end(run);
  et::Run later(device, job, et::Start::evaluate);
  expect(later.evaluate().samples == kSamples, "a finished run is evaluated");
  later.trainer().export_onnx(round.work + "/model.onnx");
  et::Run trial(device, job, et::Start::trial);
  try {
    trial.profile(1, "json");
  } catch (const et::Error& error) {
    expect(error.status() == ETR_UNSUPPORTED,
           std::string("a device may lack timestamps only: ") + error.what());
  }
  expect(!trial.pipeline_stats().empty(), "a run has statistics");
  et::write_report("soak", {{"a", round.work + "/run"}, {"b", round.work + "/run"}},
                   round.work + "/report.html");
}

// Stopped by another thread while it waits for data or trains.
void stopped(Round& round) {
  const et::Runtime device = open_device();
  const et::Job job = et::Job::parse(job_text(round, R"({"stage": "delay", "milliseconds": 3}, )"),
                                     {"train.steps=1000000"});
  et::Run run(device, job, et::Start::new_run);
  std::atomic<bool> begun{false};
  std::thread other([&] {
    while (!begun) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(round.roll(50)));
    run.stop();
  });
  run.next_event(1e-6);
  begun = true;
  to_the_end(run);
  other.join();
}

}  // namespace

std::vector<Scenario> runs() {
  return {
      {"runs", run_and_resume}, {"measured runs", evaluate_and_measure}, {"stopped runs", stopped}};
}

}  // namespace soak
