// The host has no memory left, at every allocation for the library in turn, and at all from there
// on: a typed error, nothing hangs, nothing is lost but the call, and the next one works.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "failing/heap.h"
#include "failing/system_calls.h"
#include "failing/workloads.h"
#include "sources/data_of_sources.h"
#include "support/http_server.h"
#include "support/images.h"

namespace etr::failing {
namespace {

namespace fs = std::filesystem;

class Memory final : public Injector {
 public:
  ~Memory() override { disarm(); }
  void arm(int64_t call, size_t error) override {
    // Which of the two comes first changes, so that a part of the cases has both.
    const bool swaps = (static_cast<uint64_t>(call) * 0x9E3779B97F4A7C15) >> 63;
    heap::fail(call, (error == 1) != swaps);
  }
  void disarm() override { heap::fail(0, false); }
  int64_t calls() const override { return heap::allocations(); }
  size_t errors_of(int64_t) const override { return 2; }
  std::string failed_call() const override { return heap::failed(); }
  std::string left_behind() const override { return system_.left_behind(); }

 private:
  const SystemCalls system_{Calls::threads};
};

// `runs`: by default; of more, so many that lie evenly.
void fail_in(const Scenario& scenario, size_t runs) {
  Memory memory;
  size_t met = 0, errors = 0;
  const auto after = [&](const Outcome& outcome) {
    ++met;
    errors += outcome.status != ETR_OK;
  };
  fail_everywhere(
      memory, scenario,
      {.statuses = {ETR_OUT_OF_MEMORY}, .after = after, .runs = runs, .least_calls = 50});
  EXPECT_GE(3 * errors, met) << "most of the failures were no error";
}

void fail_in_reading(const Json& spec, size_t runs = 100) {
  const std::string text = spec.dump();
  fail_in([&](std::string& results) { return read_epochs(text, results); }, runs);
}

const Json kTwoEpochs{{"epochs", 2}};

class AllocationOfASource : public testing::TestWithParam<const char*> {};

TEST_P(AllocationOfASource, MayFailAnywhere) {
  const test::TempDir dir;
  fail_in_reading(test::spec_of_source(dir, GetParam(), {{"threads", 2}, {"epochs", 2}}));
}

INSTANTIATE_TEST_SUITE_P(Sources, AllocationOfASource, testing::ValuesIn(test::every_source()),
                         [](const auto& source) { return std::string(source.param); });

class Allocation : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream lines(dir_.path("rows.jsonl"));
    for (int i = 0; i < 60; ++i)
      lines << "{\"image\": [" << i % 7 << ".5, 1.5, " << i % 3 << ".25], \"label\": " << i % 2
            << "}\n";
  }

  // `more` between the source and the batches.
  Json rows(const Json& options, const Json& more) const {
    Json spec = options;
    spec["seed"] = 3;
    spec["stages"] = {{{"stage", "jsonl"},
                       {"pattern", dir_.path("rows.jsonl")},
                       {"columns", "image:f32,label:i32"}},
                      {{"stage", "label"}}};
    for (const Json& stage : more) spec["stages"].push_back(stage);
    spec["stages"].push_back({{"stage", "batch"}, {"size", 8}});
    return spec;
  }

  // Images of every decoder, in two classes.
  std::string images() const {
    const std::string folder = dir_.path("images");
    for (int i = 0; i < 12; ++i) {
      const std::string name = folder + "/" + std::to_string(i % 2) + "/" + std::to_string(i);
      if (i % 3 == 0)
        test::put(name + ".jpg", test::smooth_jpeg({}, 16, 12));
      else
        test::put(name + ".png",
                  test::write_png({.bits = i % 3 == 1 ? 8 : 16, .interlaced = i % 4 == 0}, 16, 12,
                                  static_cast<uint32_t>(i)));
    }
    return folder;
  }

  const test::TempDir dir_;
};

TEST_F(Allocation, MayFailInAFunctionOfTheProgram) {
  const auto count = [](void*, etr_batch* item) -> int32_t {
    etr_batch_info info{};
    info.struct_size = sizeof info;
    ETR_TRY(etr_batch_get_info(item, &info));
    const auto number = static_cast<int32_t>(info.ordinal & 0xFFFFFFFFFF);
    if (number >= 20) return ETR_END;
    etr_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.dtype = ETR_I32;
    tensor.data = const_cast<int32_t*>(&number);
    tensor.size_bytes = sizeof number;
    return etr_batch_set(item, "label", &tensor);
  };
  const auto read = [&](std::string& results) -> int32_t {
    Handle<etr_options, etr_options_destroy> options, size;
    ETR_TRY(etr_options_create_from_json(R"({"threads": 2, "epochs": 1})", &options.p));
    ETR_TRY(etr_options_create_from_json(R"({"size": 4})", &size.p));
    Pipeline pipeline;
    ETR_TRY(etr_pipeline_create(options.p, &pipeline.p));
    ETR_TRY(etr_pipeline_add_source(pipeline.p, "count", count, nullptr, nullptr));
    ETR_TRY(etr_pipeline_add(pipeline.p, "batch", size.p));
    return read_epoch(pipeline.p, results);
  };
  // What the function returns is an error of the program: the reason names the lack of memory.
  Memory memory;
  fail_everywhere(memory, through_c(read),
                  {.statuses = {ETR_OUT_OF_MEMORY, ETR_CALLBACK}, .runs = 100, .least_calls = 50});
}

TEST_F(Allocation, MayFailInTarFilesOfAnyCompression) {
  const std::string tar = test::make_shards(dir_, 1, 37, 0, 10, ".tar");
  fail_in_reading(test::spec_of("webdataset", {{"pattern", tar}}, kTwoEpochs));
  test::write_gz(dir_.path("all.tar.gz"), platform::read_file(dir_.path("shard-0.tar")));
  fail_in_reading(test::spec_of("webdataset", {{"pattern", dir_.path("all.tar.gz")}}, kTwoEpochs));
}

// Of files in the order of reading, and of one that is kept on the disk.
TEST_F(Allocation, MayFailOverTheNetwork) {
  std::string text;
  for (int i = 10000; i < 22000; ++i) text += "line " + std::to_string(i) + "\n";
  test::write_fast_shards(dir_);
  const test::HttpServer server(
      {{"/lines.txt", text}, {"/0.ets", platform::read_file(dir_.path("0.ets"))}});
  const Json options{{"epochs", 2}, {"remote_part_bytes", 65536}, {"remote_retries", 1}};
  Json lines = test::spec_of("text_lines", {{"pattern", server.address() + "/lines.txt"}}, options);
  lines["stages"].push_back({{"stage", "batch"}, {"size", 1000}});
  fail_in_reading(lines, 50);
  Json kept = test::spec_of("fast_shard", {{"pattern", server.address() + "/0.ets"}}, options);
  kept["remote_cache_dir"] = dir_.path("kept");
  const std::string spec = kept.dump();
  const auto read = [&](std::string& results) {
    fs::remove_all(dir_.path("kept"));
    return read_epochs(spec, results);
  };
  fail_in(read, 50);
}

TEST_F(Allocation, MayFailInAPipeline) {
  for (const int threads : {1, 4})
    fail_in_reading(
        rows({{"epochs", 2}, {"threads", threads}}, {{{"stage", "shuffle"}, {"buffer", 20}},
                                                     {{"stage", "cache"}, {"bytes", 100000}},
                                                     {{"stage", "echo"}, {"factor", 2}},
                                                     {{"stage", "prefetch"}, {"items", 3}}}),
        200);
}

TEST_F(Allocation, MayFailInAPipelineOfABudget) {
  fail_in_reading(rows({{"epochs", 2}, {"threads", 2}, {"budget_bytes", 20000000}},
                       Json::array({{{"stage", "shuffle"}, {"buffer", 20}}})));
}

TEST_F(Allocation, MayFailInCachesOnTheDisk) {
  for (const char* where : {"directory", "shared"}) {
    Json cache{{"stage", "cache"}, {"bytes", 1000000}};
    cache[where] = dir_.path("cache");
    if (where == std::string("directory")) cache["bytes"] = 100;  // what is more goes to the disk
    const std::string spec = rows({{"epochs", 2}, {"threads", 2}}, Json::array({cache})).dump();
    const auto read = [&](std::string& results) {
      fs::remove_all(dir_.path("cache"));
      fs::create_directories(dir_.path("cache"));
      return read_epochs(spec, results);
    };
    fail_in(read, 100);
  }
}

TEST_F(Allocation, MayFailInImages) {
  Json spec = test::spec_of("folder", {{"root", images()}}, {{"threads", 2}, {"epochs", 2}});
  spec["seed"] = 3;
  for (const Json& stage :
       {Json{{"stage", "label"}}, Json{{"stage", "decode"}},
        Json{{"stage", "shuffle"}, {"buffer", 10}}, Json{{"stage", "random_crop"}, {"pad", 1}},
        Json{{"stage", "flip"}}, Json{{"stage", "color_jitter"}, {"hue", 0.1}},
        Json{{"stage", "batch"}, {"size", 6}}, Json{{"stage", "normalize"}}})
    spec["stages"].push_back(stage);
  fail_in_reading(spec, 200);
}

TEST_F(Allocation, MayFailInPacking) {
  const std::string root = images();
  for (const std::string format : {"webdataset", "fast"}) {
    const std::string packed = dir_.path("packed/" + format);
    Json spec = test::spec_of(format == "fast" ? "fast_shard" : format.c_str(),
                              {{"pattern", packed + (format == "fast" ? "*.ets" : "*.tar.zst")}},
                              kTwoEpochs);
    for (const char* stage : {"label", "decode"}) spec["stages"].push_back({{"stage", stage}});
    const std::string options = R"({"overwrite": true, "format": ")" + format + "\"}";
    const auto pack = [&]() -> int32_t {
      Handle<etr_options, etr_options_destroy> all;
      ETR_TRY(etr_options_create_from_json(options.c_str(), &all.p));
      return etr_pack(root.c_str(), packed.c_str(), all.p, nullptr, nullptr, nullptr);
    };
    const std::string text = spec.dump();
    const auto pack_and_read = [&](std::string& results) {
      const int32_t status = pack();
      return status < 0 ? outcome_of(status) : read_epochs(text, results);
    };
    fail_in(pack_and_read, 150);
  }
}

// Threads of interleave, and a log of decisions that is completed where the stage goes. What it
// decides depends on time, but is repeated.
TEST_F(Allocation, MayFailInThreadsThatReadAheadAndInLogs) {
  for (int file = 0; file < 3; ++file) {
    std::ofstream lines(dir_.path("part" + std::to_string(file) + ".jsonl"));
    for (int i = 0; i < 20; ++i)
      lines << "{\"image\": [" << i << ".5], \"label\": " << i % 2 << "}\n";
  }
  const Json parts{{"stage", "jsonl"},
                   {"pattern", dir_.path("part*.jsonl")},
                   {"columns", "image:f32,label:i32"}};
  const auto spec_of = [&](const char* log) {
    Json echo{{"stage", "echo"}, {"mode", "on_demand"}, {"factor", 2}};
    echo[log] = dir_.path("echo.jsonl");
    Json spec = test::spec_of("interleave", {{"cycle_length", 3}, {"sources", {parts}}},
                              {{"threads", 2}, {"epochs", 2}, {"seed", 3}});
    spec["stages"].push_back(echo);
    spec["stages"].push_back({{"stage", "take"}, {"count", 48}});
    spec["stages"].push_back({{"stage", "batch"}, {"size", 8}});
    return spec.dump();
  };
  const std::string logged = spec_of("log"), replayed = spec_of("replay");
  const auto log = [&](std::string&) {
    std::string of_this_time;
    return read_epochs(logged, of_this_time);
  };
  fail_in(log, 200);
  fs::remove(dir_.path("echo.jsonl"));
  std::string results;
  ASSERT_EQ(read_epochs(logged, results).status, ETR_OK);
  fail_in([&](std::string& again) { return read_epochs(replayed, again); }, 200);
}

TEST_F(Allocation, MayFailInDescriptions) {
  const auto describe = [&](std::string& results) -> int32_t {
    for (const char* kind : {"stages", "layers", "models", "optimizers", "job", "pack", "study"}) {
      char* text = nullptr;
      ETR_TRY(etr_schema(kind, &text));
      results += text;
      etr_string_free(text);
    }
    return ETR_OK;
  };
  fail_in(through_c(describe), 200);
}

// Parts of JSON values that are made when they are needed: they must not be left half made.
TEST_F(Allocation, MayFailInModelsJobsAndStudies) {
  write_images(dir_.path("small"));
  const std::string job = job_on(dir_.path("small"), dir_.path("run"), false);
  const Json study{{"job", Json::parse(job)},
                   {"set", {"schedule.learning_rate=${rate}"}},
                   {"for", {{"rate", {0.1, 0.2}}}},
                   {"goal", {{"metric", "loss"}}},
                   {"budget", {{"steps", 40}}}};
  std::ofstream(dir_.path("study.json")) << study.dump();
  const auto make = [&](std::string& results) -> int32_t {
    char* text = nullptr;
    const auto take = [&](int32_t status) {
      if (status == ETR_OK) results += text;
      if (status == ETR_OK) etr_string_free(text);
      return status;
    };
    Handle<etr_options, etr_options_destroy> size;
    ETR_TRY(etr_options_create_from_json(R"({"units": 3})", &size.p));
    Handle<etr_model, etr_model_destroy> model;
    ETR_TRY(etr_model_create(&model.p));
    ETR_TRY(etr_model_freeze(model.p, "dense_1.bias"));
    ETR_TRY(etr_model_add(model.p, "dense", size.p));
    ETR_TRY(take(etr_model_json(model.p, &text)));
    const char* const overrides[] = {"vars.more=1"};  // the job has no 'vars'
    Handle<etr_job, etr_job_destroy> parsed;
    ETR_TRY(etr_job_parse(job.c_str(), overrides, 1, &parsed.p));
    ETR_TRY(take(etr_job_json(parsed.p, &text)));
    Handle<etr_study, etr_study_destroy> loaded;
    ETR_TRY(etr_study_load(dir_.path("study.json").c_str(), nullptr, 0, &loaded.p));
    return take(etr_study_json(loaded.p, &text));
  };
  fail_in(through_c(make), 300);
}

TEST_F(Allocation, MayFailInBadRecordsAndPositions) {
  const std::string bad = dir_.path("bad");
  test::put(images() + "/0/damaged.png", "no image");
  Json spec = test::spec_of("folder", {{"root", dir_.path("images")}}, kTwoEpochs);
  spec["on_error"] = "quarantine";
  spec["quarantine_dir"] = bad;
  for (const char* stage : {"label", "decode"}) spec["stages"].push_back({{"stage", stage}});
  const std::string with_bad = spec.dump();
  const auto read = [&](std::string& results) {
    fs::remove_all(bad);
    return read_epochs(with_bad, results);
  };
  fail_in(read, 150);
  // The position names the copies that the filter has dropped.
  const std::string filtered =
      rows(kTwoEpochs, {{{"stage", "echo"}, {"factor", 2}},
                        {{"stage", "filter"}, {"field", "label"}, {"max", 0.5}}})
          .dump();
  const auto save = [&](std::string& results) -> int32_t {
    Pipeline pipeline;
    ETR_TRY(etr_pipeline_create_from_json(filtered.c_str(), &pipeline.p));
    Batch batch;
    ETR_TRY(etr_pipeline_next(pipeline.p, &batch.p));
    ETR_TRY(append_fields(batch.p, results));
    char* text = nullptr;
    ETR_TRY(etr_pipeline_save(pipeline.p, &text));
    EXPECT_NE(std::string(text).find("dropped_copies"), std::string::npos);
    etr_string_free(text);
    return ETR_OK;
  };
  fail_in(through_c(save), 150);
}

TEST_F(Allocation, MayFailInTraining) {
  Runtime runtime;
  ASSERT_EQ(open(runtime), ETR_OK) << etr_last_error();
  const std::string folder = dir_.path("loop");
  const auto train = [&](std::string& results) -> int32_t {
    ETR_TRY(train_loop(runtime.p, folder, results));
    Handle<etr_model, etr_model_destroy> imported;
    return etr_model_create_from_onnx((folder + "/model.onnx").c_str(), &imported.p);
  };
  fail_in(through_c(train), 300);
}

// A whole job: its own pipeline, metrics, checkpoints, an evaluation; once more, from its last
// checkpoint. With the echo node on the host and on the device.
class AllocationOfAJob : public Allocation, public testing::WithParamInterface<bool> {};

TEST_P(AllocationOfAJob, MayFailAnywhere) {
  Runtime runtime;
  ASSERT_EQ(open(runtime), ETR_OK) << etr_last_error();
  write_images(dir_.path("small"));
  const std::string folder = dir_.path("run"), job = job_on(dir_.path("small"), folder, GetParam());
  const auto run = [&](std::string& results) {
    fs::remove_all(folder);
    Outcome outcome = run_job(runtime.p, job, ETR_START_NEW);
    if (outcome.status == ETR_OK) outcome = run_job(runtime.p, job, ETR_START_RESUME);
    if (outcome.status == ETR_OK) results = tensors(folder) + failing::rows(folder);
    return outcome;
  };
  fail_in(run, 200);
}

INSTANTIATE_TEST_SUITE_P(Echo, AllocationOfAJob, testing::Bool(), [](const auto& echo) {
  return std::string(echo.param ? "OnTheDevice" : "OnTheHost");
});

}  // namespace
}  // namespace etr::failing
