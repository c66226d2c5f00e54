// What goes wrong on the way: bad files, bad options, numbers that are not finite, no memory.
#include <filesystem>
#include <limits>

#include "soak/data.h"
#include "soak/jobs.h"
#include "soak/scenario.h"

namespace soak {
namespace {

namespace fs = std::filesystem;

// Cut or changed at a random place. The library may read what was changed where it says nothing, so
// success is allowed.
std::string damaged(Round& round, const std::string& bytes) {
  const auto at = static_cast<size_t>(round.roll(static_cast<int64_t>(bytes.size())));
  if (round.roll(2)) return bytes.substr(0, at);
  std::string out = bytes;
  out[at] = static_cast<char>(out[at] ^ (1 << round.roll(8)));
  return out;
}

template <typename Call>
void may_fail(Call&& call) {
  try {
    call();
  } catch (const et::Error& error) {
    expect(error.status() != ETR_INTERNAL,
           std::string("damaged data is no internal error: ") + error.what());
  }
}

template <typename Call>
void must_fail(const std::string& what, Call&& call) {
  bool failed = true;
  may_fail([&] {
    call();
    failed = false;
  });
  expect(failed, what + " is an error");
}

void damaged_data(Round& round) {
  const char* const files[][3] = {{"shard-000000.tar.zst", "webdataset", ""},
                                  {"fast-000000.ets", "fast_shard", ""},
                                  {"cifar.bin", "cifar", ""},
                                  {"rows-0.tfrecord", "tfrecord", ""},
                                  {"rows-0.csv", "csv", R"(, "columns": "x:f32=a+b")"},
                                  {"rows-0.jsonl", "jsonl", R"(, "columns": "x:f32")"}};
  for (const auto& [name, stage, more] : files) {
    const std::string path = round.work + "/" + name;
    write_file(path, damaged(round, read_file(round.data + "/" + name)));
    may_fail([&] {
      et::Pipeline pipeline = et::Pipeline::from_json(
          R"({"threads": 2, "stages": [{"stage": ")" + std::string(stage) + R"(", "pattern": ")" +
          path + "\"" + more + R"(}, {"stage": "echo", "factor": 2}]})");
      read(pipeline, 60);
    });
  }
}

void damaged_files(Round& round) {
  const et::Runtime device = open_device();
  const std::string text = job_text(round, "");
  const et::Job job = et::Job::parse(text);
  et::Run run(device, job);
  while (run.next_event()) continue;
  et::Trainer trainer = run.trainer();
  trainer.export_onnx(round.work + "/model.onnx");
  write_file(round.work + "/bad.onnx", damaged(round, read_file(round.work + "/model.onnx")));
  may_fail([&] { et::Model::from_onnx(round.work + "/bad.onnx"); });
  may_fail([&] { et::Job::parse(damaged(round, text)); });
  write_file(round.work + "/tuning.json", "{\"echotrain_tuning\":");
  expect_error(ETR_CORRUPT_DATA, "a damaged tuning file",
               [&] { et::Runtime("", 0, round.work + "/tuning.json"); });
  for (const auto& entry : fs::recursive_directory_iterator(round.work + "/run/checkpoints"))
    if (entry.is_regular_file() && round.roll(2))
      write_file(entry.path().string(), damaged(round, read_file(entry.path().string())));
  may_fail([&] { et::Run(device, job, et::Start::resume).next_event(); });
  may_fail([&] { trainer.load(round.work + "/run/checkpoints"); });
}

void bad_options(Round& round) {
  for (const char* text :
       {R"({"stages": [{"stage": "foldre"}]})",
        R"({"stages": [{"stage": "text_lines", "pattern": "/none"}, {"stage": "echo"}]})",
        R"({"stages": []})", "{",
        R"({"stages": [{"stage": "text_lines", "pattern": "/none"}], "thread": 1})"})
    must_fail(text, [&] { et::Pipeline::from_json(text); });
  for (const char* text : {R"({"layers": [{"layer": "dense"}]})",
                           R"({"layers": [{"layer": "none"}]})", R"({"model": "resnet9"})"})
    must_fail(text, [&] { et::Model{std::string(text)}; });
  for (const char* change :
       {"train.step=5", "model.layers=[]", "train.steps=-1", "pipeline.stages=3", "no equals sign"})
    must_fail(change, [&] { et::Job::parse(job_text(round, ""), {change}); });
  must_fail("adamm", [&] { et::Optimizer("adamm", {}, {{"learning_rate", 0.1}}); });
  must_fail("stagess", [&] { et::schema("stagess"); });
  expect_error(ETR_NO_DEVICE, "a device that is not there", [] { et::Runtime("no such device"); });
  expect_error(ETR_NOT_FOUND, "a model that is not there",
               [] { et::Model::from_onnx("/none.onnx"); });
  must_fail("a server that refuses", [&] {
    et::Pipeline refused = et::Pipeline::from_json(
        R"({"remote_retries": 0, "stages": [{"stage": "text_lines", "pattern": "http://127.0.0.1:1/x"}]})");
    refused.next();
  });
}

// Losses that are not finite, batches that do not fit, a device without room.
void failing_training(Round& round) {
  const et::Runtime device = open_device();
  const et::Optimizer sgd("sgd", {}, {{"learning_rate", 0.1}});
  const et::Model model(R"({"layers": [{"layer": "dense", "units": 2}]})");
  et::Trainer trainer(device, model, sgd);
  const int32_t labels[2] = {0, 1};
  for (const float value : {1.0F, std::numeric_limits<float>::quiet_NaN(), 2.0F}) {
    const std::vector<float> values(6, value);
    et::Batch batch;
    batch.set("image", values.data(), {2, 3});
    batch.set("label", labels, {2});
    trainer.step(batch);
    may_fail([&] {
      while (trainer.result(true)) continue;
    });
    may_fail([&] { trainer.set_weights(batch); });
    batch.set("image", values.data(), {1, 6});
    may_fail([&] { trainer.step(batch); });
  }
  const et::Runtime small("", 100'000);
  may_fail([&] {
    et::Trainer large(small, et::Model(R"({"layers": [{"layer": "dense", "units": 100000}]})"),
                      sgd);
    const std::vector<float> values(6, 1.0F);
    et::Batch batch;
    batch.set("image", values.data(), {2, 3});
    batch.set("label", labels, {2});
    large.step(batch);
    expect(false, "a device of 100 kB has no room for a layer of 100,000");
  });
  fs::copy(round.data + "/images", round.work + "/images", fs::copy_options::recursive);
  may_fail([&] {
    et::Run run(device, et::Job::parse(job_text({round.work, round.work, round.dice}, ""),
                                       {"train.steps=100000"}));
    run.next_event(1e-6);
    fs::remove_all(round.work + "/images");
    while (run.next_event()) continue;
    expect(false, "a run whose data is removed fails");
  });
}

}  // namespace

std::vector<Scenario> errors() {
  return {{"damaged data", damaged_data},
          {"damaged files", damaged_files},
          {"bad options", bad_options},
          {"failing training", failing_training}};
}

}  // namespace soak
