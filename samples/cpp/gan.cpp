/* A generative adversarial network (Goodfellow et al. 2014) that learns to draw points from a ring
 * of eight clusters, in a training loop of its own: the discriminator is trained by whole steps,
 * the generator pass by pass, through the discriminator.
 *
 *   c++ -std=c++17 -O2 gan.cpp $(pkg-config --cflags --libs echotrain) \
 *     -Wl,-rpath,$(pkg-config --variable=libdir echotrain) -o gan
 *   gan [STEPS]
 */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <echotrain/echotrain.hpp>

namespace et = echotrain;

namespace {

constexpr int64_t kClusters = 8, kNoise = 16, kBatch = 256;
constexpr double kRadius = 2, kSpread = 0.1, kPi = 3.14159265358979;

using Random = std::mt19937_64;

float normal(Random& random, double deviation) {
  return static_cast<float>(std::normal_distribution<double>(0, deviation)(random));
}

double centre(int64_t cluster, bool is_y) {
  const double angle = 2 * kPi * static_cast<double>(cluster) / kClusters;
  return kRadius * (is_y ? std::sin(angle) : std::cos(angle));
}

et::Batch noise(Random& random, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count * kNoise));
  for (float& value : values) value = normal(random, 1);
  et::Batch batch;
  batch.set("noise", values.data(), {count, kNoise});
  return batch;
}

// The x and y of `count` points, one after another.
std::vector<float> real_points(Random& random, int64_t count) {
  std::vector<float> points;
  for (int64_t i = 0; i < count; ++i) {
    const auto cluster = static_cast<int64_t>(random() % kClusters);
    for (const bool is_y : {false, true})
      points.push_back(static_cast<float>(centre(cluster, is_y)) + normal(random, kSpread));
  }
  return points;
}

std::vector<float> generated_points(const et::Batch& output) {
  const et::TensorView view = output["output"];
  return std::vector<float>(view.as<float>(), view.as<float>() + 2 * view.shape[0]);
}

et::Model network(const std::string& field, int outputs, const std::string& loss) {
  return et::Model(R"({"inputs": [")" + field + R"("], "layers": [
      {"layer": "dense", "units": 64, "activation": "relu"},
      {"layer": "dense", "units": 64, "activation": "relu"},
      {"layer": "dense", "units": )" +
                   std::to_string(outputs) + R"(}],
      "loss": {"loss": ")" +
                   loss + R"("}})");
}

// Prints the share of points within four standard deviations of a cluster, and how many clusters
// have at least 2 % of the points.
void print_quality(int step, double loss, const std::vector<float>& points) {
  const size_t count = points.size() / 2;
  std::vector<size_t> near(kClusters);
  for (size_t i = 0; i < count; ++i)
    for (int64_t c = 0; c < kClusters; ++c)
      if (std::hypot(points[2 * i] - centre(c, false), points[2 * i + 1] - centre(c, true)) <
          4 * kSpread)
        ++near[static_cast<size_t>(c)];
  size_t sum = 0, hit = 0;
  for (const size_t n : near) {
    sum += n;
    hit += 50 * n >= count;
  }
  std::printf(
      "step %5d: discriminator's loss %.3f, %3zu %% of the points near a cluster, "
      "%zu of %d clusters\n",
      step, loss, 100 * sum / count, hit, static_cast<int>(kClusters));
  std::fflush(stdout);
}

void train(int steps, uint64_t seed) {
  Random random(seed);
  const et::Runtime runtime;
  const et::Optimizer adam("adam", {{"beta1", 0.5}}, {{"learning_rate", 1e-3}});
  et::Trainer generator(runtime, network("noise", 2, "mse"), adam, seed);
  et::Trainer discriminator(runtime, network("point", 1, "binary_cross_entropy"), adam, seed + 1);
  std::vector<float> is_real(2 * kBatch);
  std::fill_n(is_real.begin(), kBatch, 1.f);

  for (int step = 1; step <= steps; ++step) {
    // Noise in front of the discriminator, less and less of it, keeps the generator from covering a
    // single cluster (Sønderby et al. 2017).
    const double blur = std::max(0.1, 1 - step / (0.8 * steps));
    std::vector<float> generated = generated_points(generator.forward(noise(random, kBatch)));
    std::vector<float> both = real_points(random, kBatch);
    both.insert(both.end(), generated.begin(), generated.end());
    for (float& value : both) value += normal(random, blur);
    generated.assign(both.begin() + 2 * kBatch, both.end());

    et::Batch labelled;
    labelled.set("point", both.data(), {2 * kBatch, 2});
    labelled.set("label", is_real.data(), {2 * kBatch, 1});
    discriminator.step(labelled);
    const double loss = discriminator.result(/*wait=*/true)->loss;

    // The generator's loss is -log sigmoid(score), averaged over the batch: it wants its points to
    // be taken as real.
    et::Batch points;
    points.set("point", generated.data(), {kBatch, 2});
    const et::Batch scores = discriminator.forward(points, /*input_gradients=*/true);
    const float* score = scores["output"].as<float>();
    std::vector<float> to_score;
    for (int64_t i = 0; i < kBatch; ++i)
      to_score.push_back((1 / (1 + std::exp(-score[i])) - 1) / kBatch);
    et::Batch score_gradient, point_gradient;
    score_gradient.set("output", to_score.data(), {kBatch, 1});
    const et::Batch inputs = discriminator.backward_to_inputs(score_gradient);
    point_gradient.set("output", inputs["point"].as<float>(), {kBatch, 2});
    generator.backward(point_gradient);
    generator.update();

    if (step % std::max(1, steps / 10) == 0)
      print_quality(step, loss, generated_points(generator.predict(noise(random, 2000))));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 3000;
  if (argc > 2 || steps < 1) {
    std::fprintf(stderr, "usage: gan [STEPS]\n");
    return 2;
  }
  try {
    train(steps, /*seed=*/1);
  } catch (const et::Error& error) {
    std::fprintf(stderr, "gan: %s\n", error.what());
    return 1;
  }
}
