// Several devices of one process, which train as one trainer.
#include "train/team.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <stdexcept>

#include "core/error.h"
#include "exchange/local.h"
#include "support/device.h"
#include "support/error_text.h"
#include "train/band_job.h"

namespace etr::test {
namespace {

using train::Event;
using train::EventKind;
using train::Job;
using train::Ranks;
using train::Start;
using train::Team;
using train::Trainer;

std::shared_ptr<gpu::Kernels> open_device() {
  return std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options()));
}

// Returns the job with the device under test listed `count` times.
Json on_devices(Json job, size_t count) {
  const std::string name = device()->info().name;
  job["parallel"] = {{"devices", std::vector<std::string>(count, name)}, {"timeout", 30}};
  return job;
}

std::unique_ptr<Team> team_of(const Json& job, Start start = Start::new_run) {
  return std::make_unique<Team>(open_device(), Job::parse(job.dump(), "job"), start, nullptr,
                                open_selected);
}

Event run(Team& team) {
  Event event;
  do event = team.next_event(0);
  while (event.kind != EventKind::end);
  return event;
}

// Runs the job on `size` ranks that are not a team.
void run_apart(const Json& job, int size) {
  auto groups = exchange::local_groups(size, 30);
  std::vector<std::future<void>> ranks;
  for (auto& group : groups)
    ranks.push_back(std::async(std::launch::async, [&] {
      Trainer trainer(open_device(), Job::parse(job.dump(), "job"), Start::new_run,
                      std::make_unique<Ranks>(std::move(group)));
      while (trainer.next_event().kind != EventKind::end) {
      }
    }));
  for (auto& rank : ranks) rank.get();
}

std::vector<float> team_weights(train::Learner& learner) {
  std::vector<float> out;
  for (const pipeline::Field& field : learner.weights("")) {
    const auto values = field.tensor.view<float>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

TEST(TeamOfDevices, MayShareOutItsUpdate) {
  TempDir dir;
  const std::string shared = dir.path("shared"), whole = dir.path("whole");
  for (const std::string& out : {shared, whole}) {
    Json job = on_devices(job_of(dir, 24, out), 2);
    job["parallel"]["zero_stage"] = out == shared ? 2 : 0;
    const auto team = team_of(job);
    run(*team);
    checkpoint::Files files;  // as etr_trainer_save() makes them
    EXPECT_EQ(team->learner().saves_together(), out == shared);
    if (out == whole) continue;
    team->on_learners([&, lead = &team->learner()](train::Learner& learner) {
      checkpoint::Files none;
      learner.save(&learner == lead ? files : none);
      EXPECT_TRUE(none.empty());
    });
    EXPECT_TRUE(files.contains("optimizer.safetensors"));
  }
  EXPECT_EQ(losses_of(shared), losses_of(whole)) << "bit for bit";
}

TEST(TeamOfDevices, TrainsAsSoManyRanks) {
  TempDir dir;
  const std::string apart = dir.path("apart"), team = dir.path("team");
  run_apart(job_of(dir, 16, apart), 3);
  const Event end = run(*team_of(on_devices(job_of(dir, 16, team), 3)));
  EXPECT_EQ(end.step, 15u);
  EXPECT_EQ(end.examples, 15u * 48);
  EXPECT_GT(end.eval_accuracy, 0);
  ASSERT_EQ(losses_of(team).size(), 15u);
  EXPECT_EQ(losses_of(team), losses_of(apart)) << "bit for bit";
}

TEST(TeamOfDevices, StopsInOrderAndResumes) {
  TempDir dir;
  const std::string whole = dir.path("whole"), parts = dir.path("parts");
  run(*team_of(on_devices(job_of(dir, 24, whole), 2)));
  const Json job = on_devices(job_of(dir, 24, parts), 2);
  {
    const auto team = team_of(job);
    while (team->next_event(0).kind != EventKind::checkpoint) {
    }
    team->stop();
    EXPECT_LT(run(*team).step, 15u);
  }
  EXPECT_EQ(run(*team_of(job, Start::resume)).step, 15u);
  EXPECT_EQ(losses_of(parts), losses_of(whole)) << "bit for bit";
}

// Calls between events reach all ranks, and the run goes on as it would have without them.
TEST(TeamOfDevices, EvaluatesAndTellsItsWeightsAtAnyTime) {
  TempDir dir;
  const std::string plain = dir.path("plain"), asked = dir.path("asked");
  run(*team_of(on_devices(job_of(dir, 24, plain), 2)));
  const auto team = team_of(on_devices(job_of(dir, 24, asked), 2));
  EXPECT_FALSE(team_weights(team->shaped_learner()).empty()) << "before the first step";
  int asks = 0;
  Event event;
  do {
    event = team->next_event(1e-6);  // after nearly every step
    const train::EvalMetrics metrics = team->evaluate();
    EXPECT_EQ(metrics.samples, 100);
    ++asks;
  } while (event.kind != EventKind::end);
  EXPECT_GT(asks, 5);
  std::filesystem::remove(dir.path("test.tar"));
  EXPECT_EQ(team->evaluate().loss, event.eval_loss) << "with the batches that were kept";
  EXPECT_EQ(losses_of(asked), losses_of(plain)) << "bit for bit";
}

// The others are told, and go on when the program does.
TEST(TeamOfDevices, AnEvaluationThatFailsOnTheFirstAloneEndsForAll) {
  TempDir dir;
  const auto team = team_of(on_devices(job_of(dir, 24), 2));
  team->next_event(1e-6);
  team->on_evaluation([](int64_t, int64_t) -> bool { fail(Code::io, "the display is gone"); });
  const std::string error = error_text([&] { team->evaluate(); });
  EXPECT_EQ(error, "evaluation: the display is gone");
  team->on_evaluation({});
  EXPECT_EQ(team->evaluate().samples, 100);
  EXPECT_EQ(run(*team).step, 15u);
}

// An exception that the runtime does not throw leaves the others where they are.
TEST(TeamOfDevices, WaitsWithinItsTimeOutForTheOthersIfTheFirstAloneFailed) {
  TempDir dir;
  Json job = on_devices(job_of(dir, 24), 2);
  job["parallel"]["timeout"] = 5;
  const auto team = team_of(job);
  team->next_event(1e-6);
  team->on_evaluation([](int64_t, int64_t) -> bool { throw std::runtime_error("foreign"); });
  EXPECT_THROW(team->evaluate(), std::runtime_error);
  EXPECT_NE(error_text([&] { team->next_event(0); }), "") << "the run is over";
}

// A device that lost the first one has a dead group: that is no failure that all share.
TEST(TeamOfDevices, IsOverIfTheOthersOnlyLostTheFirst) {
  TempDir dir;
  const auto team = team_of(on_devices(job_of(dir, 24), 2));
  const std::string error = error_text([&] {
    team->on_learners([lead = &team->learner()](train::Learner& learner) {
      if (&learner == lead) fail(Code::io, "the disk is full");
      fail(Code::rank_lost, "rank 0 is lost");
    });
  });
  EXPECT_EQ(error, "the disk is full");
  EXPECT_NE(error_text([&] { team->next_event(0); }), "") << "the run is over";
}

TEST(TeamOfDevices, ChangesTheWeightsOfAll) {
  TempDir dir;
  const auto team = team_of(on_devices(job_of(dir, 24, dir.path("out")), 2));
  auto weights = team->shaped_learner().weights("dense_4.weight");
  for (float& value : weights[0].tensor.mutable_view<float>()) value = 0.01f;
  team->on_learners([&](train::Learner& learner) { learner.set_weights(weights); });
  std::vector<std::vector<float>> all(2);
  std::mutex mutex;
  size_t next = 0;
  team->on_learners([&](train::Learner& learner) {
    const std::lock_guard lock(mutex);
    all[next++] = team_weights(learner);
  });
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(run(*team).step, 15u);
}

TEST(TeamOfDevices, IsNotProfiledWhileItTrains) {
  TempDir dir;
  const auto team = team_of(on_devices(job_of(dir, 24), 2));
  team->next_event(1e-6);
  EXPECT_NE(error_text([&] { team->profile(1); }).find("profile in a trial"), std::string::npos);
  EXPECT_EQ(run(*team).step, 15u);
}

// Destroyed between any two events, with steps in flight.
TEST(TeamOfDevices, MayBeClosedAtAnyTime) {
  TempDir dir;
  const Json job = on_devices(job_of(dir, 24), 2);
  for (int events = 0; events < 6; ++events) {
    const auto team = team_of(job);
    for (int i = 0; i < events; ++i) team->next_event(1e-6);
  }
}

TEST(TeamOfDevices, EndsWithTheErrorOfTheDeviceThatFailed) {
  TempDir dir;
  Json job = on_devices(job_of(dir, 24), 2);
  job["parallel"]["devices"][1] = "no such device";
  const std::string missing = error_text([&] { team_of(job); });
  EXPECT_NE(missing.find("no Vulkan device matches 'no such device'"), std::string::npos)
      << missing;
  // Device 1 has too little memory for a step, device 0 has enough.
  job = on_devices(job_of(dir, 24), 2);
  const auto open_small = [](const std::string& selector) {
    gpu::DeviceOptions options = device_options();
    options.selector = selector;
    options.memory_limit_bytes = 1 << 14;
    return std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options));
  };
  Team team(open_device(), Job::parse(job.dump(), "job"), Start::new_run, nullptr, open_small);
  const std::string error = error_text([&] { run(team); });
  EXPECT_NE(error.find("device 1 of the job"), std::string::npos) << error;
  EXPECT_NE(error.find("memory"), std::string::npos) << error;
  EXPECT_NE(error_text([&] { team.next_event(0); }), "") << "it does not go on alone";
}

TEST(TeamOfDevices, OneThatIsNamedIsTheOne) {
  TempDir dir;
  EXPECT_EQ(run(*team_of(on_devices(job_of(dir, 24), 1))).examples, 15u * 24);
  const Json two = on_devices(job_of(dir, 24), 2);
  auto ranks = std::make_unique<Ranks>(std::move(exchange::local_groups(1).front()));
  const std::string error = error_text([&] {
    Team team(open_device(), Job::parse(two.dump(), "job"), Start::new_run, std::move(ranks),
              open_selected);
  });
  EXPECT_NE(error.find("2 devices"), std::string::npos) << error;
}

}  // namespace
}  // namespace etr::test
