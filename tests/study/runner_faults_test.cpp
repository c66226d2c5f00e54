// Studies that lose their device or are stopped, and how many trials run at once.
#include <gtest/gtest.h>

#include "core/error.h"
#include "study/small_study.h"
#include "support/error_text.h"
#include "support/eventually.h"
#include "support/faults.h"

namespace etr::test {
namespace {

using study::EventKind;

class StudyFaults : public testing::Test {
 protected:
  static std::shared_ptr<gpu::Kernels> new_kernels() {
    return std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options()));
  }
  static study::Event run_to_end(Runner& runner) {
    study::Event event;
    do event = runner.next_event(1);
    while (event.kind != EventKind::end);
    return event;
  }
  std::string folder() const { return dir_.path("study"); }

  TempDir dir_;
  Json json_ = study_json(dir_);
};

TEST_F(StudyFaults, ATrialBeginsAgainOnANewDeviceIfItsOwnIsLost) {
  const auto kernels = new_kernels();
  Faults faults(*kernels->device());
  faults.fail_at(60, VK_ERROR_DEVICE_LOST, /*for_ever=*/true);
  Runner runner(kernels, parsed(json_), run_options(folder()));
  EXPECT_EQ(run_to_end(runner).done, 8u);
  EXPECT_GE(faults.calls(), 60) << "the device was not lost";
  const auto records = records_in(folder());
  ASSERT_EQ(records.size(), 8u);
  for (const Record& record : records) EXPECT_NE(record.status, Status::failed) << record.error;
}

TEST_F(StudyFaults, ATrialThatRunsOutOfMemoryBesideOthersRunsAgainAlone) {
  std::shared_ptr<gpu::Kernels> kernels;  // outlive the faults on their device
  std::optional<Faults> faults;
  RunOptions options = run_options(folder(), 2);
  options.open = [&](const std::string&) {  // for the second thread
    faults.reset();
    kernels = new_kernels();
    faults.emplace(*kernels->device());
    faults->fail_at(60, VK_ERROR_OUT_OF_DEVICE_MEMORY);
    return kernels;
  };
  Runner runner(new_kernels(), parsed(json_), options);
  EXPECT_EQ(run_to_end(runner).done, 8u);
  ASSERT_TRUE(faults);
  EXPECT_GE(faults->calls(), 60) << "there was always memory";
  const auto records = records_in(folder());
  ASSERT_EQ(records.size(), 8u);
  for (const Record& record : records) EXPECT_NE(record.status, Status::failed) << record.error;
}

TEST_F(StudyFaults, AStudyEndsIfItsDeviceCannotBeOpenedAgain) {
  const auto kernels = new_kernels();
  Faults faults(*kernels->device());
  faults.fail_at(60, VK_ERROR_DEVICE_LOST, /*for_ever=*/true);
  RunOptions options = run_options(folder());
  options.open = [](const std::string&) -> std::shared_ptr<gpu::Kernels> {
    fail(Code::device, "the device is gone");
  };
  Runner runner(kernels, parsed(json_), options);
  const std::string text = error_text([&] { run_to_end(runner); });
  EXPECT_NE(text.find("the device is gone"), std::string::npos) << text;
  EXPECT_TRUE(records_in(folder()).empty()) << "so that the trial runs again";
}

TEST_F(StudyFaults, AStudyStopsForACallerThatNeverWaits) {
  json_["budget"]["steps"] = 100000000;
  json_["evaluate"]["every_steps"] = 100000000;
  json_["goal"].erase("target");
  Runner runner(study_kernels(), parsed(json_), run_options(folder(), 2));
  EXPECT_TRUE(eventually([&] { return runner.next_event(0).running == 2; }));
  runner.stop();
  EXPECT_TRUE(eventually([&] { return runner.next_event(0).kind == EventKind::end; }));
}

TEST_F(StudyFaults, RunAsManyTrialsAtOnceAsThereIsRoom) {
  RunOptions options = run_options(folder(), 0);
  options.cores = 6;
  Runner runner(study_kernels(), parsed(json_), options);
  EXPECT_EQ(run_to_end(runner).parallel, 3u);
  json_["budget"] = {{"seconds", 0.05}, {"steps", 1000000}};
  options.folder = dir_.path("timed");
  Runner timed(study_kernels(), parsed(json_), options);
  EXPECT_EQ(run_to_end(timed).parallel, 1u);
}

}  // namespace
}  // namespace etr::test
