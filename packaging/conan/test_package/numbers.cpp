// A pipeline of the program's own numbers, each of them twice, through the package's headers and
// library. It needs no Vulkan device.
#include <cstdio>
#include <echotrain/echotrain.hpp>

int main() {
  constexpr int kNumbers = 8;
  int given = 0;
  echotrain::Pipeline pipeline({{"epochs", 1}});
  pipeline
      .source("numbers",
              [&](echotrain::Batch& item) {
                const float number = static_cast<float>(++given);
                if (given > kNumbers) return false;
                item.set("x", &number, {1});
                return true;
              })
      .add("echo", {{"factor", 2.0}, {"buffer", 4}})
      .add("batch", {{"size", 4}});
  double sum = 0;
  while (const auto batch = pipeline.next()) {
    const auto x = (*batch)["x"];
    for (int64_t i = 0; i < x.shape[0]; ++i) sum += static_cast<double>(x.as<float>()[i]);
  }
  std::printf("EchoTrain %s: the numbers add up to %g\n", etr_version(), sum);
  return sum == 2 * kNumbers * (kNumbers + 1) / 2.0 ? 0 : 1;
}
