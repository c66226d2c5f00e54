// The C API as its users see it: only the public header and the shared library.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <thread>

#include "capi/support.h"
#include "echotrain/echotrain.h"

namespace {

TEST(CApi, VersionStatusAndSchemas) {
  EXPECT_STREQ(etr_version(), "0.1.0");
  EXPECT_STREQ(etr_status_name(ETR_NO_DEVICE), "no Vulkan device");
  for (const char* kind : {"stages", "layers", "models", "optimizers", "job", "pack", "study"}) {
    char* json = nullptr;
    ASSERT_OK(etr_schema(kind, &json));
    EXPECT_GT(std::string(json).size(), 200u);
    etr_string_free(json);
  }
  char* json = nullptr;
  ASSERT_OK(etr_schema("stages", &json));
  const std::string stages = json;
  etr_string_free(json);
  const auto prepares = [&](const std::string& name) {  // the indentation tells stages from options
    const size_t at = stages.find("\n  \"name\": \"" + name + "\"");
    return stages.substr(stages.find("\n  \"prepares\": ", at))
        .starts_with("\n  \"prepares\": true");
  };
  for (const char* name : {"decode", "resize", "normalize", "batch"})
    EXPECT_TRUE(prepares(name)) << name;
  for (const char* name : {"flip", "label", "random_crop", "shuffle"})
    EXPECT_FALSE(prepares(name)) << name;
  EXPECT_EQ(etr_schema("stage", &json), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("did you mean 'stages'?"), std::string::npos);
}

TEST(CApi, NullAndMisuseAreErrorsNotCrashes) {
  EXPECT_EQ(etr_pipeline_next(nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_options_create(nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_model_add(nullptr, "dense", nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_job_load(nullptr, nullptr, 0, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_job_load("/none.json", nullptr, 1, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_step(nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_run_stop(nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_run_start(nullptr, nullptr, ETR_START_NEW, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_run_next_event(nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_run_evaluate(nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_run_profile(nullptr, 1, "text", nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_run_pipeline_stats(nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_run_trainer(nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_get_weights(nullptr, nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_set_weights(nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_set_hyperparameter(nullptr, "momentum", 0), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_summary(nullptr, "text", nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_model_summary(nullptr, "{}", "text", nullptr), ETR_INVALID_ARGUMENT);
  etr_pipeline_destroy(nullptr);
  etr_trainer_destroy(nullptr);
  etr_run_destroy(nullptr);
  etr_batch_destroy(nullptr);
  etr_string_free(nullptr);
  etr_device_info info{};  // struct_size not set
  EXPECT_EQ(etr_device_get(0, &info), ETR_INVALID_ARGUMENT);
  etr_pipeline* pipeline = nullptr;
  EXPECT_EQ(etr_pipeline_create_from_json("{\"stages\": [{\"stage\": \"fold\"}]}", &pipeline),
            ETR_NOT_FOUND);
  EXPECT_EQ(pipeline, nullptr);
  EXPECT_NE(std::string(etr_last_error()).find("did you mean 'folder'?"), std::string::npos);
}

TEST(CApi, ErrorsBelongToTheThread) {
  etr_options_create(nullptr);
  const std::string mine = etr_last_error();
  std::thread([] { EXPECT_STREQ(etr_last_error(), ""); }).join();
  EXPECT_EQ(etr_last_error(), mine);
}

TEST(CApi, StructsOfOlderHeadersAreFilledAsFarAsTheyGo) {
  int32_t count = 0;
  ASSERT_OK(etr_device_count(&count));
  ASSERT_GE(count, 1);
  etr_device_info info{};
  info.struct_size = offsetof(etr_device_info, memory_bytes);
  info.memory_bytes = 77;
  ASSERT_OK(etr_device_get(0, &info));
  EXPECT_EQ(info.memory_bytes, 77u) << "beyond the caller's struct";
  EXPECT_GE(info.api_major, 1u);
}

TEST(CApi, StringsAreUtf8) {
  etr_options* options = nullptr;
  ASSERT_OK(etr_options_create(&options));
  EXPECT_EQ(etr_options_set_string(options, "pattern", "caf\xE9"), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("'caf\\xE9' is not UTF-8"), std::string::npos);
  EXPECT_EQ(etr_options_set_string(options, "pattern", "caf\xC3\xA9"), ETR_OK);
  etr_options_destroy(options);
}

// The first call that gets them says what is wrong; those after it would only repeat it.
TEST(CApi, OptionsOfAPipelineAreCheckedWhenItIsMade) {
  etr_options* options = nullptr;
  ASSERT_OK(etr_options_create(&options));
  ASSERT_OK(etr_options_set_integer(options, "thread", 2));
  etr_pipeline* pipeline = nullptr;
  EXPECT_EQ(etr_pipeline_create(options, &pipeline), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("'thread' (did you mean 'threads'?)"),
            std::string::npos)
      << etr_last_error();
  EXPECT_EQ(pipeline, nullptr);
  etr_options_destroy(options);
}

TEST(CApi, EmptyPathsAreRefused) {
  const auto refused = [](int32_t status) {
    EXPECT_EQ(status, ETR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(etr_last_error()).find("empty path"), std::string::npos)
        << etr_last_error();
  };
  etr_job* job = nullptr;
  refused(etr_job_load("", nullptr, 0, &job));
  refused(etr_pack("", "x", nullptr, nullptr, nullptr, nullptr));
  refused(etr_pack("x", "", nullptr, nullptr, nullptr, nullptr));
  const char *name = "run", *none = "";
  refused(etr_report_write("", &name, &none, 1, 0, "out.html", nullptr));
  etr_pipeline* pipeline = nullptr;
  for (const char* spec : {R"({"stages": [{"stage": "folder", "root": ""}]})",
                           R"({"stages": [{"stage": "webdataset", "pattern": ""}]})"})
    refused(etr_pipeline_create_from_json(spec, &pipeline));
}

TEST(CApi, LogHookIsDestroyedOnce) {
  static int destroyed = 0;
  destroyed = 0;
  ASSERT_OK(etr_set_log_hook([](void*, int32_t, const char*) {}, &destroyed,
                             [](void* p) { ++*static_cast<int*>(p); }));
  ASSERT_OK(etr_set_log_hook(nullptr, nullptr, nullptr));
  EXPECT_EQ(destroyed, 1);
}

TEST(CApi, ALogHooksDestroyMaySetAnother) {
  static int destroyed = 0;
  destroyed = 0;
  static constexpr auto ignore = [](void*, int32_t, const char*) {};
  ASSERT_OK(etr_set_log_hook(ignore, nullptr, [](void*) {
    EXPECT_EQ(etr_set_log_hook(ignore, nullptr, [](void*) { ++destroyed; }), ETR_OK);
  }));
  ASSERT_OK(etr_set_log_hook(nullptr, nullptr, nullptr));
  EXPECT_EQ(destroyed, 0) << "it was set last";
  ASSERT_OK(etr_set_log_hook(nullptr, nullptr, nullptr));
  EXPECT_EQ(destroyed, 1);
}

}  // namespace
