// What runs on several devices or ranks, or many times over: devices of one process, a transport of
// the program, a parameter server, a study.
#include <cstring>
#include <filesystem>
#include <memory>

#include "soak/data.h"
#include "soak/jobs.h"
#include "soak/scenario.h"

namespace soak {
namespace {

void train(const et::Job& job, std::unique_ptr<et::Transport> transport = nullptr) {
  const et::Runtime device = open_device();
  et::Run run = transport ? et::Run(device, job, et::Start::new_run, std::move(transport))
                          : et::Run(device, job);
  uint64_t step = 0;
  while (const auto event = run.next_event()) step = event->step;
  expect(step == 12, "a run on several ranks gets to its end");
}

void two_devices(Round& round) {
  const std::string name = "\"" + std::string(open_device().device().name) + "\"";
  const char* const how[] = {R"("zero_stage": 0)", R"("zero_stage": 2)",
                             R"("mesh": {"pipeline": 2}, "micro_batches": 2)",
                             R"("compression": "bf16")"};
  train(et::Job::parse(
      job_text(
          round, "",
          R"(, "parallel": {"devices": [)" + name + ", " + name + "], " + how[round.roll(4)] + "}"),
      {R"(model={"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 4}, {"layer": "dense", "units": 2}]})"}));
}

// The first of two ranks, of which the other brings the same.
class Mirrored : public et::Transport {
 public:
  int32_t rank() const override { return 0; }
  int32_t size() const override { return 2; }
  void all_reduce(void* data, uint64_t count, int32_t number, int32_t reduction, double) override {
    if (reduction != ETR_REDUCE_SUM) return;
    if (number == ETR_NUMBER_F32) twice<float>(data, count);
    if (number == ETR_NUMBER_F64) twice<double>(data, count);
    if (number == ETR_NUMBER_I64) twice<int64_t>(data, count);
  }
  void all_gather(const void* part, const uint64_t* sizes, void* data, double) override {
    auto* const to = static_cast<char*>(data);
    std::memmove(to, part, sizes[0]);
    std::memmove(to + sizes[0], to, sizes[1]);
  }
  void broadcast(void*, uint64_t, int32_t, double) override {}
  std::unique_ptr<et::Transport> split(int32_t, int32_t, double) override {
    return std::make_unique<Mirrored>();
  }
  void abort(const std::string&) override {}

 private:
  template <typename T>
  static void twice(void* data, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) static_cast<T*>(data)[i] *= 2;
  }
};

void own_transport(Round& round) {
  train(et::Job::parse(job_text(round, R"({"stage": "echo", "factor": 2}, )")),
        std::make_unique<Mirrored>());
}

// A shard and a worker; and a shard that nobody needs any more.
void parameter_server(Round& round) {
  const et::Job job =
      et::Job::parse(job_text(round, "",
                              R"(, "parallel": {"algorithm": "downpour", "servers": 1, "size": 1,
      "timeout": 60, "rendezvous": "file:)" +
                                  round.work + "/meeting\"}"));
  std::filesystem::create_directory(round.work + "/meeting");
  {
    et::Server server(job, 0);
    train(job);
    expect(server.wait(60), "a shard ends with its worker");
  }
  et::Server unused(job, 0);
  expect(!unused.wait(0), "a shard waits for workers");
  unused.stop();
  expect(unused.wait(60), "a shard that is stopped ends");
}

std::string study_text(const Round& round) {
  return R"({"job": )" + job_text(round, R"({"stage": "repeat"}, )") +
         R"(, "budget": {"steps": 4}, "evaluate": {"every_steps": 4},
      "search": {"trials": 2, "searches": 1, "space": {"schedule.learning_rate": {"from": 1e-3, "to": 1e-1}}}})";
}

// Stopped, continued, reported.
void study(Round& round) {
  const std::string path = round.work + "/study.json", out = round.work + "/study";
  write_file(path, study_text(round));
  for (const bool stops : {true, false}) {
    const et::Runtime device = open_device();
    et::Study study = et::Study::load(path);
    study.start(device, out, 2);
    for (int events = 0; const auto event = study.next_event(5); ++events)
      if (stops && events == 0) study.stop();
    if (stops) continue;
    study.write_report(out);
    expect(study.results(out).find("\"trials\"") != std::string::npos, "a study has results");
  }
}

}  // namespace

std::vector<Scenario> groups() {
  return {{"two devices", two_devices},
          {"own transport", own_transport},
          {"parameter server", parameter_server},
          {"study", study}};
}

}  // namespace soak
