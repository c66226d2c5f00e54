// The scenario of scenario.c through echotrain.hpp.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <echotrain/echotrain.hpp>

using echotrain::Pipeline;
using echotrain::Trainer;

namespace {

Pipeline pipeline(const std::string& pattern, bool training) {
  Pipeline p({{"seed", 5}, {"threads", 2}});
  p.add("webdataset", {{"pattern", pattern}}).add("take", {{"count", training ? 1024 : 300}});
  p.add("label", {{"classes", 10}}).add("decode");
  if (training) p.add("echo", {{"factor", 2.5}, {"buffer", 200}}).add("random_crop", {{"pad", 2}});
  p.add("batch", {{"size", 64}, {"drop_remainder", training}}).add("normalize");
  return p;
}

Trainer trainer(const echotrain::Runtime& runtime) {
  echotrain::Model model;
  model.add("conv2d", {{"filters", 8}, {"activation", "relu"}}).add("max_pool").add("flatten");
  model.add("dense", {{"units", 10}});
  return {runtime, model, {"sgd", {{"momentum", 0.9}}, {{"learning_rate", 0.05}}}, 3};
}

void print_bits(const char* what, double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  std::printf("%s %016" PRIx64 "\n", what, bits);
}

void take_results(Trainer& t, bool wait) {
  while (const auto r = t.result(wait)) print_bits("loss", r->loss);
}

void train_epoch(Trainer& t, Pipeline& p) {
  while (const auto batch = p.next()) {
    t.step(*batch);
    take_results(t, false);
  }
  take_results(t, true);
}

void run(const std::string& train, const std::string& test, const std::string& directory) {
  const char* device = std::getenv("ECHOTRAIN_TEST_DEVICE");
  const echotrain::Runtime runtime(device ? device : "");
  std::string position;
  {
    Pipeline p = pipeline(train, true);
    Trainer t = trainer(runtime);
    train_epoch(t, p);
    t.save(directory);
    position = p.save();
  }
  Pipeline p = pipeline(train, true), evaluation = pipeline(test, false);
  Trainer t = trainer(runtime);
  p.restore(position);
  t.load(directory);
  train_epoch(t, p);
  const etr_eval_result e = t.evaluate(evaluation);
  print_bits("eval_loss", e.loss);
  print_bits("eval_accuracy", e.accuracy);
  const echotrain::Batch outputs = t.predict(*evaluation.next());
  for (int i = 0; i < 10; ++i)
    print_bits("logit", static_cast<double>(outputs["output"].as<float>()[i]));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    run(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scenario: %s\n", error.what());
    return 1;
  }
}
