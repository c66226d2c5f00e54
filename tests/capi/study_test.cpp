// Studies through the C API and echotrain.hpp.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "capi/support.h"
#include "echotrain/echotrain.hpp"
#include "support/eventually.h"

namespace {

namespace et = echotrain;
using Json = nlohmann::ordered_json;

class CStudy : public testing::Test {
 protected:
  // Two searches of a learning rate, of two trials each; its path.
  std::string file(int64_t steps = 4) const {
    const Json stages = {{{"stage", "folder"}, {"root", images_.path()}},
                         {{"stage", "repeat"}},
                         {{"stage", "label"}},
                         {{"stage", "decode"}},
                         {{"stage", "batch"}, {"size", 8}},
                         {{"stage", "normalize"}}};
    Json test = stages;
    test.erase(1);
    const Json job = {
        {"pipeline", {{"stages", stages}}},
        {"model", {{"layers", {{{"layer", "flatten"}}, {{"layer", "dense"}, {"units", 2}}}}}},
        {"optimizer", {{"optimizer", "sgd"}}},
        {"schedule", {{"learning_rate", 0.01}}},
        {"evaluation", {{"pipeline", {{"stages", test}}}}}};
    const Json study = {
        {"job", job},
        {"budget", {{"steps", steps}}},
        {"evaluate", {{"every_steps", steps}}},
        {"search",
         {{"trials", 2},
          {"searches", 2},
          {"space", {{"schedule.learning_rate", {{"from", 1e-3}, {"to", 1e-1}}}}}}}};
    const std::string path = folder_.path("small.json");
    std::ofstream(path) << study.dump();
    return path;
  }
  static et::Runtime runtime() {
    const char* device = std::getenv("ECHOTRAIN_TEST_DEVICE");
    return et::Runtime(device ? device : "");
  }

  Images images_;
  etr::test::TempDir folder_;
};

TEST_F(CStudy, TellsOfItsTrialsAndKeepsThem) {
  et::Study study = et::Study::load(file());
  EXPECT_EQ(study.output_dir(), "runs/studies/small");
  const std::string out = folder_.path("out");
  study.start(runtime(), out, 2);
  std::vector<std::string> kinds;
  Json event;
  while (const auto text = study.next_event(5)) {
    event = Json::parse(*text);
    if (event["kind"] != "progress") kinds.push_back(event["kind"]);
    if (event["kind"] == "trial") {
      EXPECT_EQ(event["trial"]["status"], "missed");
    }
  }
  EXPECT_EQ(kinds,
            (std::vector<std::string>{"trial", "trial", "trial", "trial", "condition", "end"}));
  EXPECT_EQ(event["done"], 4);
  EXPECT_FALSE(study.next_event(0)) << "again";
  const Json results = Json::parse(study.results(out));
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0]["trials"], 4);
  EXPECT_EQ(results[0]["searches"].size(), 2u);
  EXPECT_EQ(Json::parse(et::Study::load(file()).results(out)), results) << "of another handle";
  study.write_report(out);
  EXPECT_GT(std::filesystem::file_size(out + "/report.html"), 1000u);
  std::ifstream written(out + "/results.json");
  EXPECT_FALSE(Json::parse(written).empty());
}

TEST_F(CStudy, StopsFromAnotherThread) {
  et::Study study = et::Study::load(file(1'000'000'000));
  study.start(runtime(), folder_.path("out"), 1);
  EXPECT_TRUE(
      etr::test::eventually([&] { return Json::parse(*study.next_event(0.05))["running"] == 1; }));
  std::thread([&] { study.stop(); }).join();
  Json event;
  while (const auto text = study.next_event(1)) event = Json::parse(*text);
  EXPECT_EQ(event["done"], 0);
}

TEST_F(CStudy, ResultsAndReportsAreThereWhileAnotherThreadWaits) {
  et::Study study = et::Study::load(file(1'000'000'000));
  const std::string out = folder_.path("out");
  study.start(runtime(), out, 1);
  std::atomic<int> told = 0;
  std::thread waiting([&] {
    while (study.next_event(0.02)) ++told;
  });
  while (told < 20) {
    EXPECT_EQ(Json::parse(study.results(out)).size(), 0u);
    EXPECT_FALSE(study.json().empty());
  }
  study.write_report(out);
  std::thread other([&] { study.write_report(out); });
  study.write_report(out);
  other.join();
  study.stop();
  waiting.join();
  EXPECT_TRUE(std::filesystem::exists(out + "/report.html"));
}

TEST_F(CStudy, DestroyingItEndsTheWaitOfAnotherThread) {
  const et::Runtime device = runtime();
  etr_study* study = nullptr;
  const std::string path = file(1'000'000'000), out = folder_.path("out");
  ASSERT_OK(etr_study_load(path.c_str(), nullptr, 0, &study));
  ASSERT_OK(etr_study_start(study, device.get(), out.c_str(), 1, 0));
  char* begun = nullptr;
  ASSERT_OK(etr_study_next_event(study, 0.05, &begun));
  etr_string_free(begun);
  std::string event;
  std::thread waiting([&] {
    char* text = nullptr;
    int32_t status = ETR_STATE;
    while (status == ETR_STATE)  // refused while the other thread has it
      status = etr_study_next_event(study, 1e6, &text);
    EXPECT_EQ(status, ETR_OK);
    event = text;
    etr_string_free(text);
  });
  EXPECT_TRUE(etr::test::eventually([&] {  // until it waits
    char* text = nullptr;
    const int32_t status = etr_study_next_event(study, 0, &text);
    etr_string_free(text);
    return status == ETR_STATE;
  }));
  etr_study_destroy(study);
  waiting.join();
  EXPECT_EQ(Json::parse(event)["kind"], "end");
}

TEST_F(CStudy, WritesNoReportIntoAFolderOfOthers) {
  const et::Study study = et::Study::load(file());
  std::filesystem::create_directory(folder_.path("photos"));
  std::ofstream(folder_.path("photos/photo.txt")) << "x";
  EXPECT_EQ(etr_study_write_report(study.get(), folder_.path("photos").c_str()), ETR_STATE);
}

TEST_F(CStudy, MisuseIsRefused) {
  etr_study* study = nullptr;
  EXPECT_EQ(etr_study_load("", nullptr, 0, &study), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_study_load("nowhere.json", nullptr, 0, &study), ETR_NOT_FOUND);
  const std::string path = file();
  EXPECT_EQ(etr_study_load(path.c_str(), nullptr, 0, nullptr), ETR_INVALID_ARGUMENT);
  const char* searched = "schedule.learning_rate=0.5";
  EXPECT_EQ(etr_study_load(path.c_str(), &searched, 1, &study), ETR_INVALID_ARGUMENT);
  ASSERT_OK(etr_study_load(path.c_str(), nullptr, 0, &study));
  char* text = nullptr;
  EXPECT_EQ(etr_study_next_event(study, 0, &text), ETR_STATE) << "not started";
  EXPECT_EQ(etr_study_stop(study), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_study_stop(nullptr), ETR_INVALID_ARGUMENT);
  const et::Runtime device = runtime();
  const std::string out = folder_.path("out");
  EXPECT_EQ(etr_study_start(study, device.get(), "", -1, 0), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_study_start(study, device.get(), out.c_str(), -2, 0), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_study_start(study, nullptr, out.c_str(), -1, 0), ETR_INVALID_ARGUMENT);
  for (const int32_t overwrite : {-1, 2})  // which would remove results
    EXPECT_EQ(etr_study_start(study, device.get(), out.c_str(), -1, overwrite),
              ETR_INVALID_ARGUMENT);
  ASSERT_OK(etr_study_start(study, device.get(), out.c_str(), -1, 0));
  EXPECT_EQ(etr_study_start(study, device.get(), out.c_str(), -1, 0), ETR_STATE);
  EXPECT_EQ(etr_study_next_event(study, -1, &text), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_study_next_event(study, 0, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_study_results(study, "", &text), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_study_results(nullptr, nullptr, &text), ETR_INVALID_ARGUMENT);
  etr_study_destroy(study);
  etr_study_destroy(nullptr);
}

}  // namespace
