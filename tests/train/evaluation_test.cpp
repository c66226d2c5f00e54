// The evaluations of a run: what they read, how they are stopped and resumed, their errors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "core/platform.h"
#include "train/small_learner.h"
#include "train/trainer_job.h"

namespace etr::test {
namespace {

using train::Event;
using train::EventKind;
using train::Job;
using train::Trainer;

// Evaluations have four batches; stop() is called after the first one.
TEST(Trainer, StopEndsAnEvaluationAndStillSaves) {
  TempDir dir;
  Json spec = job_json(dir, dir.path("out"));
  spec["evaluation"]["every_steps"] = 3;
  Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
  int batches = 0;
  trainer.on_evaluation([&](int64_t, int64_t) {
    ++batches;
    trainer.stop();
    return true;
  });
  const Event end = run_to_end(trainer);
  EXPECT_EQ(batches, 1) << "this evaluation does not go on, and none follows at the end";
  EXPECT_EQ(end.step, 3u);
  EXPECT_EQ(end.eval_loss, 0);
  EXPECT_EQ(platform::read_file(dir.path("out/metrics.jsonl")).find("evaluation"),
            std::string::npos);
  Trainer resumed(shared_kernels(), Job::parse(spec.dump(), "job"), true);
  EXPECT_EQ(run_to_end(resumed).step, 30u);
}

// A named pipe into which nothing is written.
class SilentPipe {
 public:
  // `then` is called in another thread once somebody has opened the pipe to read.
  SilentPipe(std::string path, std::function<void()> then) : path_(std::move(path)) {
    if (mkfifo(path_.c_str(), 0600) != 0) throw std::runtime_error("cannot make " + path_);
    writer_ = std::thread([this, then = std::move(then)] {
      file_ = ::open(path_.c_str(), O_WRONLY);  // waits for a reader
      then();
    });
  }
  ~SilentPipe() {
    const int reader = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK);  // if nobody has read
    writer_.join();
    ::close(file_);
    ::close(reader);
  }
  SilentPipe(const SilentPipe&) = delete;
  SilentPipe& operator=(const SilentPipe&) = delete;

 private:
  const std::string path_;
  int file_ = -1;
  std::thread writer_;
};

// Also if the program asks for it between two events of the run.
TEST(Trainer, AnEvaluationIsNotTrainingTime) {
  TempDir dir;
  Trainer trainer(shared_kernels(), Job::parse(job_json(dir).dump(), "job"), /*resume=*/false);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto seconds = [](auto from, auto to) {
    return std::chrono::duration<double>(to - from).count();
  };
  Event event;
  auto begin = now();
  while (event.step < 3) {  // the first step does not count
    begin = now();
    event = trainer.next_event(1e-9);
  }
  const double before = event.seconds;
  std::optional<std::chrono::steady_clock::time_point> first_batch;
  trainer.on_evaluation([&](int64_t, int64_t) {
    if (!first_batch) first_batch = now();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return true;
  });
  trainer.evaluate();
  const auto end = now();
  const double after = trainer.next_event(1e-9).seconds;
  const double others = seconds(begin, *first_batch) + seconds(end, now());
  EXPECT_LE(after - before, others) << "evaluated for " << seconds(*first_batch, end) << " seconds";
}

TEST(Trainer, EvaluationsAfterTheFirstReadNothing) {
  TempDir dir;
  for (const double cache_mb : {64.0, 0.01, 0.0}) {
    Json job = job_json(dir);  // also writes the data
    job["evaluation"]["cache_mb"] = cache_mb;
    Trainer trainer(shared_kernels(), Job::parse(job.dump(), "job"), /*resume=*/false);
    const train::EvalMetrics first = trainer.evaluate();
    EXPECT_EQ(first.samples, 100);
    std::filesystem::remove(dir.path("test.tar"));
    if (cache_mb == 64)
      EXPECT_EQ(trainer.evaluate().loss, first.loss);
    else
      EXPECT_THROW(trainer.evaluate(), Error) << cache_mb;
  }
}

// Batches are read again if the first evaluation was stopped or dropped bad records, or if the
// pipeline depends on timing or has a memory budget.
TEST(Trainer, EvaluationsThatMayDifferAreNotKept) {
  TempDir dir;
  for (const char* what : {"stopped", "bad record", "clock", "budget"}) {
    SCOPED_TRACE(what);
    Json job = job_json(dir);
    Json& pipeline = job["evaluation"]["pipeline"];
    if (what == std::string("budget")) pipeline["budget_bytes"] = 64 << 20;
    if (what == std::string("clock"))
      pipeline["stages"].insert(pipeline["stages"].begin() + 2, Json{{"stage", "overtake"}});
    if (what == std::string("bad record")) {
      pipeline["on_error"] = "skip";
      std::filesystem::resize_file(dir.path("test.tar"),
                                   std::filesystem::file_size(dir.path("test.tar")) / 2 + 100);
    }
    Trainer trainer(shared_kernels(), Job::parse(job.dump(), "job"), /*resume=*/false);
    if (what == std::string("stopped")) {
      trainer.on_evaluation([](int64_t, int64_t) { return false; });
      EXPECT_EQ(error_of([&] { trainer.evaluate(); }).code(), Code::cancelled);
      trainer.on_evaluation({});
    } else {
      EXPECT_GT(trainer.evaluate().samples, 0);
    }
    std::filesystem::remove(dir.path("test.tar"));
    EXPECT_THROW(trainer.evaluate(), Error);
  }
}

TEST(Trainer, StopEndsAnEvaluationThatWaitsForData) {
  TempDir dir;
  Json spec = job_json(dir, dir.path("out"));
  spec["evaluation"]["every_steps"] = 3;
  spec["evaluation"]["pipeline"]["stages"][0]["pattern"] = dir.path("pipe.tar");
  {
    std::optional<Trainer> trainer;
    const SilentPipe pipe(dir.path("pipe.tar"), [&] { trainer->stop(); });
    trainer.emplace(shared_kernels(), Job::parse(spec.dump(), "job"), false);
    const Event end = run_to_end(*trainer);
    EXPECT_EQ(end.step, 3u);
    EXPECT_EQ(end.eval_loss, 0);
    EXPECT_FALSE(std::filesystem::is_empty(dir.path("out/checkpoints"))) << "the work is saved";
  }
  std::filesystem::remove(dir.path("pipe.tar"));
  Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), train::Start::evaluate);
  const SilentPipe pipe(dir.path("pipe.tar"), [&] { trainer.stop(); });
  trainer.on_evaluation([](int64_t, int64_t) { return true; });
  EXPECT_EQ(error_of([&] { trainer.evaluate(); }).code(), Code::cancelled);
}

TEST(Trainer, ErrorsOfAnEvaluationSaySo) {
  TempDir dir;
  Json spec = job_json(dir);
  spec["train"]["steps"] = 1;
  const auto error_with = [&](const Json& stage, size_t place) {
    Json broken = spec;
    broken["evaluation"]["pipeline"]["stages"][place] = stage;
    Trainer trainer(shared_kernels(), Job::parse(broken.dump(), "job"), false);
    return std::string(error_of([&] { run_to_end(trainer); }).what());
  };
  const std::string missing =
      error_with({{"stage", "webdataset"}, {"pattern", dir.path("none-*.tar")}}, 0);
  EXPECT_EQ(missing.rfind("evaluation: ", 0), 0u) << missing;
  EXPECT_NE(missing.find("none-*.tar"), std::string::npos) << missing;
  const std::string shape = error_with({{"stage", "center_crop"}, {"height", 2}, {"width", 2}}, 3);
  EXPECT_EQ(shape.rfind("evaluation: ", 0), 0u) << shape;
  const std::string empty = error_with({{"stage", "batch"}, {"size", 4096}}, 3);
  EXPECT_EQ(empty.rfind("evaluation: the pipeline gave no samples: there are fewer", 0), 0u)
      << empty;
}

// Returns the rows of evaluations, without durations.
std::vector<std::string> evaluation_lines(const std::string& out) {
  std::vector<std::string> found;
  std::stringstream lines(platform::read_file(out + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Json row = parse_json(line, "metrics");
    for (const char* key : {"seconds", "device_wait_share"}) row.erase(key);
    if (row["kind"] == "evaluation") found.push_back(row.dump());
  }
  return found;
}

// Evaluations are stopped within an epoch, at its end (step 18) and at the end of the run. The
// callback returns false, and in all cases but one also calls stop().
TEST(Trainer, ResumingMakesUpForAnEvaluationThatWasStopped) {
  TempDir dir;
  Json spec = job_json(dir, dir.path("whole"));
  spec["evaluation"]["every_steps"] = 7;
  const auto job = [&] { return Job::parse(spec.dump(), "job"); };
  Trainer whole(shared_kernels(), job(), false);
  const Event whole_end = run_to_end(whole);
  const auto expected = evaluation_lines(dir.path("whole"));
  ASSERT_EQ(expected.size(), 6u) << "at steps 7, 14, 18, 21, 28 and 30";
  for (const int stopped : {1, 3, 5, 6, 7}) {  // 7: the last one, without stop()
    const std::string out = dir.path(cat("stopped-", stopped));
    spec["output"]["dir"] = out;
    {
      Trainer trainer(shared_kernels(), job(), false);
      int evaluations = 0;
      trainer.on_evaluation([&](int64_t done, int64_t) {
        evaluations += done == 1;
        if (evaluations == stopped) trainer.stop();
        return evaluations < std::min(stopped, 6);
      });
      run_to_end(trainer);
    }
    EXPECT_EQ(evaluation_lines(out).size(), static_cast<size_t>(std::min(stopped, 6) - 1));
    Trainer resumed(shared_kernels(), job(), true);
    const Event end = run_to_end(resumed);
    EXPECT_EQ(evaluation_lines(out), expected) << stopped;
    EXPECT_EQ(losses_of(out), losses_of(dir.path("whole")));
    EXPECT_EQ(end.eval_loss, whole_end.eval_loss);
    Trainer again(shared_kernels(), job(), true);
    const Event complete = again.next_event();
    EXPECT_EQ(complete.kind, EventKind::end) << "the last evaluation is not repeated";
    EXPECT_EQ(complete.eval_loss, whole_end.eval_loss);
  }
}

TEST(Trainer, EvaluationsTellHowTheyGoOnAndMayBeStopped) {
  TempDir dir;
  Json spec = job_json(dir);
  spec["train"] = {{"steps", 2}};
  Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
  run_to_end(trainer);
  std::vector<int64_t> told;
  trainer.on_evaluation([&](int64_t done, int64_t batches) {
    EXPECT_TRUE(batches == -1 || batches == 4) << "100 samples in batches of 32";
    told.push_back(done);
    return true;
  });
  const train::EvalMetrics whole = trainer.evaluate();
  EXPECT_EQ(told, (std::vector<int64_t>{1, 2, 3, 4}));
  trainer.on_evaluation([](int64_t done, int64_t) { return done < 2; });
  EXPECT_THROW(trainer.evaluate(), Error);
  trainer.on_evaluation({});
  const train::EvalMetrics again = trainer.evaluate();
  EXPECT_EQ(again.samples, 100) << "without what was in flight when it was stopped";
  EXPECT_EQ(again.loss, whole.loss);
}

}  // namespace
}  // namespace etr::test
