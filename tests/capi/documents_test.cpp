// Documents from outside that are nested deeper than any honest one, wherever one comes in.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "echotrain/echotrain.h"
#include "support/deep_json.h"
#include "support/temp_dir.h"

namespace {

class Documents : public testing::TestWithParam<std::string> {
 protected:
  std::string file(const char* name, const std::string& text) const {
    std::ofstream(dir_.path(name), std::ios::binary) << text;
    return dir_.path(name);
  }

  // An error that says what is wrong; the rest of the text may follow.
  static void expect_refused(int32_t status, const std::string& what) {
    EXPECT_LT(status, 0) << what;
    EXPECT_NE(std::string(etr_last_error()).find("256 levels deep"), std::string::npos)
        << what << ": " << std::string(etr_last_error()).substr(0, 300);
  }

  etr::test::TempDir dir_;
};

TEST(Statistics, WithoutStagesAreRefused) {
  char* text = nullptr;
  for (const char* stats : {"{}", "[]", "null", "{\"stages\": []}", "{\"stages\": 1}"})
    for (const char* format : {"json", "text", "svg"}) {
      EXPECT_EQ(etr_explain_stats(stats, format, &text), ETR_INVALID_ARGUMENT) << stats;
      EXPECT_NE(std::string(etr_last_error()).find("not the statistics of a pipeline"),
                std::string::npos)
          << etr_last_error();
    }
}

TEST_P(Documents, TextIsRefused) {
  const std::string& deep = GetParam();
  const std::string inside = "{\"x\": " + deep + "}";
  etr_options* options = nullptr;
  expect_refused(etr_options_create_from_json(inside.c_str(), &options), "options");
  etr_pipeline* pipeline = nullptr;
  expect_refused(etr_pipeline_create_from_json(deep.c_str(), &pipeline), "pipeline");
  etr_model* model = nullptr;
  expect_refused(etr_model_create_from_json(deep.c_str(), &model), "model");
  char* text = nullptr;
  expect_refused(etr_explain_stats(deep.c_str(), "json", &text), "statistics");
  expect_refused(etr_pipeline_tune(deep.c_str(), 1, 0, nullptr, nullptr, &text), "tune");
  const char* stages = R"({"stages": [{"stage": "files", "pattern": "*"}]})";
  ASSERT_EQ(etr_pipeline_create_from_json(stages, &pipeline), ETR_OK) << etr_last_error();
  expect_refused(etr_pipeline_restore(pipeline, deep.c_str()), "position");
  etr_pipeline_destroy(pipeline);
}

TEST_P(Documents, JobsAreRefused) {
  const std::string& deep = GetParam();
  etr_job* job = nullptr;
  expect_refused(etr_job_parse(deep.c_str(), nullptr, 0, &job), "job");
  expect_refused(etr_job_load(file("job.json", deep).c_str(), nullptr, 0, &job), "job file");
  const std::string value = "model.x=" + deep;
  const char* overrides[] = {value.c_str()};
  expect_refused(etr_job_parse("{}", overrides, 1, &job), "--set");
}

TEST_P(Documents, FilesAreRefused) {
  const std::string& deep = GetParam();
  const std::string tuning = file("kernels.json", deep);
  etr_runtime_options options{};
  options.struct_size = sizeof options;
  options.tuning = tuning.c_str();
  etr_runtime* runtime = nullptr;
  expect_refused(etr_runtime_create(&options, &runtime), "tuning file");
  const std::string rows = R"({"stages": [{"stage": "jsonl", "columns": "x:text", "pattern": ")" +
                           file("rows.jsonl", "{\"x\": " + deep + "}\n") + "\"}]}";
  etr_pipeline* pipeline = nullptr;
  ASSERT_EQ(etr_pipeline_create_from_json(rows.c_str(), &pipeline), ETR_OK) << etr_last_error();
  etr_batch* batch = nullptr;
  expect_refused(etr_pipeline_next(pipeline, &batch), "row");
  etr_pipeline_destroy(pipeline);
}

INSTANTIATE_TEST_SUITE_P(Deep, Documents, testing::ValuesIn(etr::test::deep_documents(100'000)));

// The path of --set makes objects, too.
TEST(DocumentPaths, AreRefused) {
  std::string path = "model";
  for (int i = 0; i < 100'000; ++i) path += ".a";
  path += "=1";
  const char* overrides[] = {path.c_str()};
  etr_job* job = nullptr;
  EXPECT_EQ(etr_job_parse("{}", overrides, 1, &job), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("256 levels deep"), std::string::npos);
}

// Shapes of the program's own: sizes that wrap would be read beyond.
TEST(Shapes, ThatWrapAreRefused) {
  etr_batch* batch = nullptr;
  ASSERT_EQ(etr_batch_create(&batch), ETR_OK);
  const float value = 1;
  constexpr int64_t kBig = int64_t{1} << 62;
  for (const auto& [a, b] :
       {std::pair{kBig, int64_t{4}}, {kBig, kBig}, {int64_t{-1}, int64_t{-1}}}) {
    etr_tensor tensor{sizeof tensor, ETR_F32, 2, 0, {a, b}, &value, 0};
    EXPECT_EQ(etr_batch_set(batch, "x", &tensor), ETR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(etr_last_error()).find("field 'x'"), std::string::npos);
    EXPECT_EQ(etr_batch_wrap(batch, "x", &tensor, nullptr, nullptr), ETR_INVALID_ARGUMENT);
  }
  etr_batch_destroy(batch);
}

}  // namespace
