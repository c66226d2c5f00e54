// The system has no thread to give, at every place where the library starts one: an error that says
// so, no thread is left behind, and the next attempt works.
#include <gtest/gtest.h>

#include <fstream>

#include "failing/system_calls.h"
#include "failing/workloads.h"

namespace etr::failing {
namespace {

namespace fs = std::filesystem;

class FailingThreads : public testing::Test {
 protected:
  void SetUp() override {
    write_images(images_);
    for (const char* name : {"a", "b", "c"}) {
      std::ofstream lines(dir_.path(name) + std::string(".txt"));
      for (int i = 10; i < 30; ++i) lines << name << i << "\n";
    }
  }

  void fail_in(const Scenario& work, int least) {
    SystemCalls system(Calls::threads);
    fail_everywhere(system, work,
                    {.statuses = {ETR_OUT_OF_MEMORY},
                     .after =
                         [](const Outcome& outcome) {
                           EXPECT_EQ(outcome.status, ETR_OUT_OF_MEMORY) << "went unnoticed";
                           EXPECT_NE(outcome.message.find("thread"), std::string::npos);
                         },
                     .runs = 0,
                     .least_calls = least});
  }

  // `more`: of the job.
  void fail_in_a_run(const std::string& more, int least) {
    Runtime runtime;
    ASSERT_EQ(open(runtime), ETR_OK) << etr_last_error();
    const std::string folder = dir_.path("run");
    std::string job = job_on(images_, folder, false);
    job.insert(1, more);
    const auto train = [&](std::string& results) {
      fs::remove_all(folder);
      const Outcome outcome = run_job(runtime.p, job, ETR_START_NEW);
      if (outcome.status == ETR_OK) results = tensors(folder);
      return outcome;
    };
    fail_in(train, least);
  }

  const test::TempDir dir_;
  const fs::path images_ = dir_.path("images");
};

TEST_F(FailingThreads, OfAPipeline) {
  const std::string stages =
      R"([{"stage": "folder", "root": ")" + images_.string() +
      R"("}, {"stage": "label"}, {"stage": "decode"}, {"stage": "delay", "milliseconds": 0.1},
          {"stage": "shuffle", "buffer": 10}, {"stage": "batch", "size": 6}])";
  for (const std::string more : {"", R"("budget_bytes": 20000000, )"}) {
    const std::string spec =
        R"({"seed": 3, "threads": 2, )" + more + R"("stages": )" + stages + "}";
    fail_in([&](std::string& results) { return read_epochs(spec, results); }, 2);
  }
}

TEST_F(FailingThreads, ThatReadPartsOfTheFiles) {
  const std::string spec =
      R"({"epochs": 2, "stages": [{"stage": "interleave", "cycle_length": 3, "sources":
      [{"stage": "text_lines", "pattern": ")" +
      dir_.path("*.txt") + R"("}]}, {"stage": "batch", "size": 4}]})";
  fail_in([&](std::string& results) { return read_epochs(spec, results); }, 3);
}

TEST_F(FailingThreads, OfARun) { fail_in_a_run("", 2); }

// Ranks that are threads of this process: each device has one, and one for its host turns.
TEST_F(FailingThreads, OfSeveralDevices) {
  fail_in_a_run(R"("parallel": {"devices": ["0", "0", "0"], "timeout": 120}, )", 4);
}

}  // namespace
}  // namespace etr::failing
