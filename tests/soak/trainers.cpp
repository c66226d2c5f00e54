// Devices, models, optimizers and trainers with loops of the program's own.
#include <cmath>

#include "soak/data.h"
#include "soak/scenario.h"

namespace soak {
namespace {

constexpr const char* kDense =
    R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 6, "activation": "relu"},
                                             {"layer": "dropout", "rate": 0.1}, {"layer": "dense", "units": 2}]})";

// Images of 8 x 8 with two classes.
et::Batch batch_of(Round& round, int64_t rows) {
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < rows; ++i) {
    labels.push_back(static_cast<int32_t>(i % 2));
    for (int p = 0; p < 64; ++p)
      pixels.push_back(static_cast<float>(labels.back()) +
                       static_cast<float>(round.roll(100)) / 100);
  }
  et::Batch out;
  out.set("image", pixels.data(), {rows, 8, 8, 1});
  out.set("label", labels.data(), {rows});
  return out;
}

et::Optimizer optimizer(const std::string& name, const std::string& options = "{}") {
  return et::Optimizer(name, et::Options::from_json(options), {{"learning_rate", 0.01}});
}

void steps(et::Trainer& trainer, Round& round, int count) {
  for (int i = 0; i < count; ++i) trainer.step(batch_of(round, 4 + 4 * round.roll(2)));
  int results = 0;
  while (trainer.result(true)) ++results;
  expect(results == count, "each step has a result");
}

// Every optimizer with its state, saved and loaded.
void optimizers(Round& round) {
  const et::Runtime device = open_device();
  const et::Model model(kDense);
  const char* const names[] = {"sgd",     "adam", "adamw", "adagrad",
                               "rmsprop", "lion", "lamb",  "lars"};
  const std::string name = names[round.roll(8)];
  const char* const options[] = {"{}", R"({"ema_decay": 0.9})",
                                 R"({"accumulate": 2, "clip_norm": 1})"};
  const et::Optimizer rule = optimizer(name, options[round.roll(3)]);
  et::Trainer first(device, model, rule, 1), second(device, model, rule, 2);
  steps(first, round, 4);
  for (int i = 0; i < 3; ++i) first.save(round.work);
  second.load(round.work);
  steps(second, round, 2);
  second.load(round.work);
  second.set_weights(first.weights());
  expect(second.predict(batch_of(round, 3))["output"].shape[0] == 3,
         "there is a prediction for each row");
  expect_error(ETR_NOT_FOUND, "a checkpoint that is not there",
               [&] { first.load(round.work + "/none"); });
}

void evaluation(Round& round) {
  const et::Runtime device = open_device();
  et::Trainer trainer(device, et::Model(kDense), optimizer("sgd", R"({"momentum": 0.9})"));
  const std::string text =
      R"({"epochs": 4, "stages": [{"stage": "folder", "root": ")" + round.data + R"(/images"},
      {"stage": "label"}, {"stage": "decode"}, {"stage": "batch", "size": 8}, {"stage": "normalize"}]})";
  et::Pipeline pipeline = et::Pipeline::from_json(text);
  for (int i = 0; i < 3; ++i) trainer.step(*pipeline.next());
  trainer.set_hyperparameter("momentum", 0.5);
  trainer.on_evaluation([](int64_t done, int64_t) { return done < 2; });
  expect_error(ETR_CANCELLED, "an evaluation that is stopped", [&] { trainer.evaluate(pipeline); });
  trainer.on_evaluation(nullptr);
  expect(trainer.evaluate(pipeline).samples == kSamples, "an evaluation takes all samples");
  expect(!trainer.summary().empty(), "there is a summary");
}

// Convolutions and what goes with them, a file of ONNX and back, on a device of few bytes.
void networks(Round& round) {
  const et::Runtime device = open_device();
  const et::Model model(
      R"({"layers": [{"layer": "conv2d", "filters": 4}, {"layer": "batch_norm", "activation": "relu"},
      {"layer": "max_pool", "window": 2}, {"layer": "flatten"}, {"layer": "dense", "units": 2, "name": "head"}]})");
  et::Trainer trainer(device, model, optimizer("adam"));
  steps(trainer, round, 2);
  const std::string path = round.work + "/network.onnx";
  trainer.export_onnx(path);
  et::Model read = et::Model::from_onnx(path);
  read.freeze("head.*");
  et::Trainer tuned(device, read, optimizer("sgd"));
  std::vector<float> pixels(256, 0.5F);
  et::Batch input;
  input.set("image", pixels.data(), {4, 8, 8, 1});
  tuned.predict(input);
}

// Sequences of more lengths than plans are kept.
void lengths(Round& round) {
  const et::Runtime device = open_device();
  const et::Model model(
      R"({"layers": [{"layer": "reduce", "axes": [1]}, {"layer": "dense", "units": 2}]})");
  et::Trainer trainer(device, model, optimizer("adam"));
  const int32_t labels[2] = {0, 1};
  for (int64_t length = 1; length <= 10; ++length) {
    const std::vector<float> values(static_cast<size_t>(2 * length * 8),
                                    0.1F * static_cast<float>(round.roll(9)));
    et::Batch batch;
    batch.set("image", values.data(), {2, length, 8});
    batch.set("label", labels, {2});
    trainer.step(batch);
    while (trainer.result(true)) continue;
  }
}

void passes(Round& round) {
  const et::Runtime device = open_device();
  et::Trainer trainer(device, et::Model(kDense), optimizer("sgd"));
  for (int64_t rows = 2; rows < 5; ++rows) {
    const et::Batch batch = batch_of(round, rows);
    trainer.forward(batch, /*input_gradients=*/true);
    et::Batch gradient;
    const std::vector<float> ones(static_cast<size_t>(rows) * 2, 1.0F);
    gradient.set("output", ones.data(), {rows, 2});
    trainer.backward_to_inputs(gradient);
    trainer.set_gradients(trainer.gradients());
    trainer.update();
  }
}

// Adapters on a frozen base of four bits.
void adapters(Round& round) {
  const et::Runtime device = open_device();
  et::Model model(
      R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 32, "name": "base"}, {"layer": "dense", "units": 2, "name": "head"}]})");
  model.lora(et::Options::from_json(R"({"layers": ["base"], "rank": 2, "train": ["head.*"]})"));
  model.quantize(4);
  et::Trainer first(device, model, optimizer("adamw"), 7),
      second(device, model, optimizer("adamw"), 7);
  steps(first, round, 2);
  first.save(round.work);
  second.load(round.work);
  second.predict(batch_of(round, 2));
}

// A runtime without trainers, and one whose kernels are tuned.
void devices(Round& round) {
  expect(!et::devices().empty(), "there is a device");
  for (int i = 0; i < 2; ++i) open_device();
  const std::string tuning = round.work + "/tuning.json";
  {
    const et::Runtime device = open_device();
    et::Trainer trainer(device, et::Model(kDense), optimizer("sgd"));
    steps(trainer, round, 1);
    et::check(etr_runtime_tune(
        device.get(), tuning.c_str(),
        [](void*, int64_t, int64_t, const char*, const char*) -> int32_t { return 0; }, nullptr));
  }
  const char* name = std::getenv("ECHOTRAIN_TEST_DEVICE");
  et::Runtime(name ? name : "", 0, tuning);
}

}  // namespace

std::vector<Scenario> trainers() {
  return {{"optimizers", optimizers}, {"evaluation", evaluation}, {"networks", networks},
          {"lengths", lengths},       {"passes", passes},         {"adapters", adapters},
          {"devices", devices}};
}

}  // namespace soak
