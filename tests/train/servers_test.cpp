// Trainers as workers of a parameter server, each a thread with its own device.
#include <gtest/gtest.h>

#include <cmath>
#include <future>

#include "core/error.h"
#include "support/data.h"
#include "train/servers.h"

namespace etr::test {
namespace {

using namespace workers;
using train::Event;
using train::EventKind;
using train::Job;
using train::Start;
using train::Trainer;

double mean_of(const std::vector<double>& values, size_t first, size_t last) {
  double sum = 0;
  for (size_t i = first; i < last; ++i) sum += values[i];
  return sum / static_cast<double>(last - first);
}

Json job_of(const TempDir& dir, const std::string& out, const Json& parallel) {
  const auto stages = [&](const char* name, int samples, uint64_t seed, bool drop) {
    return Json::array(
        {{{"stage", "webdataset"}, {"pattern", make_band_shard(dir, name, samples, seed)}},
         {{"stage", "label"}, {"classes", 4}},
         {{"stage", "decode"}},
         {{"stage", "batch"}, {"size", 20}, {"drop_remainder", drop}},
         {{"stage", "normalize"}}});
  };
  Json job{{"seed", 4},
           {"pipeline", {{"stages", stages("train", 200, 1, true)}}},
           {"model",
            {{"layers",
              {{{"layer", "flatten"}},
               {{"layer", "dense"}, {"units", 9}, {"activation", "relu"}},
               {{"layer", "dense"}, {"units", 4}}}}}},
           {"optimizer", {{"optimizer", "sgd"}}},
           {"schedule", {{"learning_rate", 0.05}}},
           {"train", {{"steps", 12}}},
           {"evaluation",
            {{"every_epochs", 0}, {"pipeline", {{"stages", stages("test", 60, 2, false)}}}}},
           {"output", {{"dir", out}, {"tensorboard", false}, {"checkpoint_every_steps", 4}}}};
  if (!parallel.is_null()) job["parallel"] = parallel;
  return job;
}

const Json kSequential{{"algorithm", "downpour"},
                       {"consistency", "sequential"},
                       {"server_optimizer", "sgd"},
                       {"servers", 2}};

// The servers' update replaces the worker's own, which is the same.
TEST(Workers, OneSequentialWorkerTrainsAsOneDevice) {
  TempDir dir;
  const ServersOutcome alone = run(job_of(dir, dir.path("alone"), nullptr), nullptr);
  ASSERT_FALSE(alone.error) << alone.error->what();
  const ServersOutcome worker = run_with_servers(
      job_of(dir, dir.path("worker"), kSequential), Start::new_run,
      [](Trainer& trainer, const Event& event) {
        if (event.kind != EventKind::end) return;
        EXPECT_NEAR(trainer.evaluate().loss, event.eval_loss, 1e-6) << "without its servers";
      });
  ASSERT_FALSE(worker.error) << worker.error->what();
  EXPECT_EQ(worker.end.step, 12u);
  EXPECT_NEAR(worker.end.eval_loss, alone.end.eval_loss, 1e-5);
  ASSERT_EQ(worker.weights.size(), alone.weights.size());
  for (size_t i = 0; i < alone.weights.size(); ++i)
    ASSERT_NEAR(worker.weights[i], alone.weights[i], 1e-5) << i;
  const auto losses = loss_values_of(dir.path("worker")),
             expected = loss_values_of(dir.path("alone"));
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << i;
}

// The servers' decay keeps their weights near 0, where no class is likelier than another, while the
// worker's own updates would soon tell the classes apart. By default the next fetch begins before
// the worker has used the weights of the latest.
TEST(Workers, UseTheWeightsThatTheyFetch) {
  TempDir dir;
  Json job =
      job_of(dir, dir.path("out"),
             {{"algorithm", "downpour"}, {"server_optimizer", "sgd"}, {"server_weight_decay", 1}});
  job["model"]["layers"][1]["units"] = 256;
  job["optimizer"]["clip_norm"] = 0.1;
  job["schedule"]["learning_rate"] = 1;
  // However slow the servers are, some weights arrive within so much time.
  job["train"] = {{"steps", 1'000'000}, {"seconds", 60}, {"progress_every", 0.01}};
  job["output"]["checkpoint_every_steps"] = 0;  // which take the servers' weights, too
  bool used = false;
  const ServersOutcome worker =
      run_with_servers(job, Start::new_run, [&](Trainer& trainer, const Event& event) {
        used = used || (event.step > 100 && event.loss > 0.8 * std::log(4.0));
        if (used) trainer.stop();
      });
  ASSERT_FALSE(worker.error) << worker.error->what();
  EXPECT_TRUE(used);
}

TEST(Workers, ThatAverageAtARateOfZeroTrainAlone) {
  TempDir dir;
  run(job_of(dir, dir.path("alone"), nullptr), nullptr);
  const ServersOutcome worker = run_with_servers(
      job_of(dir, dir.path("worker"), {{"algorithm", "easgd"}, {"elastic_rate", 0}}));
  ASSERT_FALSE(worker.error) << worker.error->what();
  EXPECT_EQ(loss_values_of(dir.path("worker")), loss_values_of(dir.path("alone"))) << "bit for bit";
}

TEST(Workers, GoOnFromACheckpointWithTheServersState) {
  TempDir dir;
  Json parallel = kSequential;
  parallel["server_optimizer"] = "adagrad";
  const std::string whole = dir.path("whole"), parts = dir.path("parts");
  ASSERT_FALSE(run_with_servers(job_of(dir, whole, parallel)).error);
  Json job = job_of(dir, parts, parallel);
  const auto stopped =
      run_with_servers(job, Start::new_run, [](Trainer& trainer, const Event& event) {
        if (event.kind == EventKind::checkpoint) trainer.stop();
      });
  EXPECT_LT(stopped.end.step, 12u);
  job["parallel"]["servers"] = 3;  // instead of 2: the state is divided again
  const auto resumed = run_with_servers(job, Start::resume);
  ASSERT_FALSE(resumed.error) << resumed.error->what();
  EXPECT_EQ(loss_values_of(parts), loss_values_of(whole)) << "bit for bit";
  job.erase("parallel");
  job["train"] = {{"steps", 14}};
  EXPECT_FALSE(run(job, nullptr, Start::resume).error) << "loads the weights without servers";
  job["parallel"] = parallel;
  job["train"] = {{"steps", 16}};
  const auto other = run_with_servers(job, Start::resume);
  ASSERT_TRUE(other.error);
  EXPECT_NE(std::string(other.error->what()).find("servers.safetensors"), std::string::npos);
}

// Workers with 40 and 25 steps train together, and a third one begins late. The second one pauses
// while the first one makes all its steps. Elastic averaging makes no exchange while one is in
// progress, however many steps that takes. With a bound, even one that is never reached, each
// exchange is over before the next step.
TEST(Workers, TrainTogetherEachAtItsOwnPace) {
  for (const char* algorithm : {"downpour", "easgd"}) {
    TempDir dir;
    const bool elastic = algorithm == std::string("easgd");
    const auto job = [&](const std::string& out, int steps) {
      Json parallel{{"algorithm", algorithm}, {"servers", 2}, {"n_push", 2}};
      if (elastic)
        parallel.update({{"consistency", "bounded"}, {"delay", 1000}, {"elastic_rate", 0.5}});
      Json made = job_of(dir, out, parallel);
      made["schedule"]["learning_rate"] = elastic ? 0.03 : 0.01;
      made["train"] = {{"steps", steps}, {"progress_every", 0.01}};
      return made;
    };
    const Json first = job(dir.path("out"), 40), second = job("", 25);
    Servers servers(first);
    auto a = servers.join(0, 2), b = servers.join(1, 2), c = servers.join(2, 2);
    std::promise<void> leader_ended;
    std::vector<Event> paused;
    auto other = std::async(std::launch::async, [&, ended = leader_ended.get_future()] {
      return run(second, std::move(b), Start::new_run, [&](Trainer&, const Event& event) {
        if (!paused.empty()) return;
        paused.push_back(event);
        EXPECT_EQ(ended.wait_for(std::chrono::seconds(30)), std::future_status::ready)
            << algorithm << ": the first worker waits for the second";
      });
    });
    const ServersOutcome leader = run(first, std::move(a));
    leader_ended.set_value();
    const ServersOutcome worker = other.get();
    ASSERT_FALSE(leader.error) << leader.error->what();
    ASSERT_FALSE(worker.error) << worker.error->what();
    EXPECT_EQ(leader.end.step, 40u);
    EXPECT_EQ(worker.end.step, 25u);
    const auto losses = loss_values_of(dir.path("out"));
    EXPECT_EQ(losses.size(), 40u);
    const double begin = mean_of(losses, 0, 5), end = mean_of(losses, 35, 40);
    EXPECT_LT(end, begin);
    // How far it comes depends on how old the weights are that it pushes gradients of.
    EXPECT_LT(worker.end.loss, begin) << algorithm;
    const uint64_t pushes = servers.first().status().roster.pushes;
    if (elastic) {
      EXPECT_EQ(pushes, 40u / 2 + 25 / 2 + 1) << "one more after the last of 25 steps";
    } else {
      EXPECT_LE(pushes, 40u + 25u);
    }
    // A worker that begins late starts with the trained weights.
    EXPECT_FALSE(servers.first().wait(0)) << "the third worker has yet to finish";
    const auto late = run(job("", 1), std::move(c));
    ASSERT_FALSE(late.error) << late.error->what();
    EXPECT_LT(late.end.loss, (begin + end) / 2) << algorithm;
    EXPECT_TRUE(servers.first().wait(kTimeout));
    EXPECT_EQ(servers.first().status().roster.finished, 3u) << "none was lost";
  }
}

TEST(Workers, EndWhenTheFirstHasReachedTheTarget) {
  TempDir dir;
  Json first = job_of(dir, "", {{"algorithm", "downpour"}});
  first["evaluation"]["every_steps"] = 5;
  first["evaluation"]["target_accuracy"] = 0.01;
  first["train"]["steps"] = 1000000;
  Servers servers(first);
  auto a = servers.join(0, 2), b = servers.join(1, 2);
  auto other = std::async(std::launch::async, [&] { return run(first, std::move(b)); });
  const ServersOutcome leader = run(first, std::move(a)), worker = other.get();
  EXPECT_TRUE(leader.end.target_reached);
  ASSERT_FALSE(worker.error) << worker.error->what();
  EXPECT_LT(worker.end.step, 1000000u);
}

// The first worker has nothing left to do, and the second one does not begin.
TEST(Workers, OfARunThatIsCompleteEndInOrder) {
  TempDir dir;
  const Json job = job_of(dir, dir.path("out"), kSequential);
  ASSERT_FALSE(run_with_servers(job).error);
  Servers servers(job);
  auto a = servers.join(0, 2), b = servers.join(1, 2);
  auto other =
      std::async(std::launch::async, [&] { return run(job, std::move(b), Start::resume); });
  const ServersOutcome leader = run(job, std::move(a), Start::resume), worker = other.get();
  ASSERT_FALSE(leader.error) << leader.error->what();
  ASSERT_FALSE(worker.error) << worker.error->what();
  EXPECT_EQ(leader.end.step, 12u);
  EXPECT_EQ(worker.end.step, 0u);
  EXPECT_TRUE(servers.first().wait(kTimeout));
  EXPECT_EQ(servers.first().status().roster.finished, 2u) << "none was lost";
}

// stop() ends a worker that waits for another one, before the time-out and in order.
TEST(Workers, AreStoppedWhileTheyWait) {
  TempDir dir;
  Json job = job_of(dir, "", kSequential);
  job["train"] = {{"steps", 1000000}, {"progress_every", 0.01}};
  job.erase("evaluation");
  for (const bool has_begun : {false, true}) {
    Servers servers(job);
    auto holds = servers.join(0, 2), waits = servers.join(1, 2);
    std::unique_ptr<Trainer> held;  // makes its first step, or none, and then nothing
    const auto trainer_of = [&](std::unique_ptr<train::Membership> membership, Start start) {
      return std::make_unique<Trainer>(
          std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options())),
          Job::parse(job.dump(), "job"), start, nullptr, std::move(membership));
    };
    if (has_begun) {
      held = trainer_of(std::move(holds), Start::new_run);
      while (held->next_event().step == 0) {
      }
    }
    // If the first worker has not begun, this one waits for its checkpoint.
    const auto trainer = trainer_of(std::move(waits), has_begun ? Start::new_run : Start::resume);
    auto end = std::async(std::launch::async, [&] {
      while (true)
        if (const Event event = trainer->next_event(); event.kind == EventKind::end) return event;
    });
    EXPECT_EQ(end.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
    trainer->stop();
    ASSERT_EQ(end.wait_for(std::chrono::seconds(40)), std::future_status::ready)
        << "before the time-out";
    end.get();
    EXPECT_EQ(servers.first().status().roster.finished, 1u) << "it has left in order";
  }
}

// A worker that makes fewer steps than n_push exchanges once, after its last step.
TEST(Workers, ThatAverageExchangeAfterTheirLastStep) {
  TempDir dir;
  Json job = job_of(
      dir, "", {{"algorithm", "easgd"}, {"servers", 2}, {"n_push", 1000}, {"elastic_rate", 1}});
  job.erase("evaluation");
  const ServersOutcome alone = run(job_of(dir, "", nullptr), nullptr);
  Servers servers(job);
  const ServersOutcome worker = run(job, servers.join());
  ASSERT_FALSE(worker.error) << worker.error->what();
  EXPECT_EQ(servers.first().status().roster.pushes, 1u);
  ASSERT_EQ(worker.weights.size(), alone.weights.size());
  for (size_t i = 0; i < alone.weights.size(); ++i)
    ASSERT_NEAR(worker.weights[i], alone.weights[i], 1e-5) << i;
}

TEST(Workers, NameAServerThatIsGone) {
  TempDir dir;
  Json job = job_of(dir, "", {{"algorithm", "downpour"}});
  job["train"] = {{"steps", 1000000}, {"progress_every", 0.01}};
  Servers servers(job);
  const ServersOutcome worker =
      run(job, servers.join(), Start::new_run, [&](Trainer&, const Event&) { servers.kill(); });
  ASSERT_TRUE(worker.error);
  EXPECT_EQ(worker.error->code(), Code::rank_lost);
  EXPECT_NE(std::string(worker.error->what()).find("shard 0 of 1 is lost"), std::string::npos)
      << worker.error->what();
}

TEST(Workers, AreToldOfMistakesInTheJob) {
  TempDir dir;
  Json job =
      job_of(dir, "", {{"algorithm", "downpour"}, {"rendezvous", "file:" + dir.path("meet")}});
  job["optimizer"]["weight_decay"] = 0.1;
  EXPECT_NE(std::string(run(job, nullptr).error->what()).find("server_weight_decay"),
            std::string::npos);
  job["optimizer"].erase("weight_decay");
  job["schedule"]["weight_decay_end"] = 0.1;
  EXPECT_NE(std::string(run(job, nullptr).error->what()).find("server_weight_decay"),
            std::string::npos);
  job["schedule"].erase("weight_decay_end");
  job["parallel"]["rendezvous"] = "";
  EXPECT_NE(std::string(run(job, nullptr).error->what()).find("parallel.rendezvous"),
            std::string::npos);
  EXPECT_THROW(train::open_server(Job::parse(job.dump(), "job"), 1), Error);
  job.erase("parallel");
  EXPECT_THROW(train::open_server(Job::parse(job.dump(), "job"), 0), Error);
}

TEST(Algorithms, RefuseWhatOnlySynchronousTrainingHas) {
  TempDir dir;
  const auto problem_of = [&](const char* algorithm, const Json& more) -> std::string {
    Json job = job_of(dir, "", {{"algorithm", algorithm}});
    job["parallel"].update(more);
    try {
      Job::parse(job.dump(), "job");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const Json devices{{"devices", {"cpu", "cpu"}}}, workers{{"mesh", {{"data", 2}}}};
  for (const char* algorithm : {"diloco", "downpour", "easgd"}) {
    EXPECT_EQ(problem_of(algorithm, Json::object()), "");
    for (const Json& more :
         {Json{{"elastic", true}}, Json{{"compression", "bf16"}}, Json{{"sync_batch_norm", true}},
          Json{{"mesh", {{"tensor", 2}}}}, Json{{"mesh", {{"pipeline", 2}}}}})
      EXPECT_NE(problem_of(algorithm, more).find(cat("'", algorithm, "' does not support ")),
                std::string::npos)
          << algorithm << " " << more;
    const bool has_servers = algorithm != std::string("diloco");
    for (const Json& more : {devices, workers})
      EXPECT_EQ(problem_of(algorithm, more).empty(), !has_servers) << algorithm << " " << more;
  }
}

}  // namespace
}  // namespace etr::test
