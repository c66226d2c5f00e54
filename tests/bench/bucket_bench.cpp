// What it saves that all ranks take batches of the same length bucket in a step
// (parallel.batches_ahead). A step's time is taken to be in proportion to the longest batch of all
// ranks; what a rank waits for is what its own batch is shorter by. Lengths are drawn like those of
// sentences, log-normally. Counts, not times: the same on any machine.
//
//   bucket_bench
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>

#include "core/error.h"
#include "core/json.h"
#include "core/rng.h"
#include "exchange/local.h"
#include "train/supply.h"

namespace {

using namespace etr;

constexpr int64_t kSamples = 40000, kRows = 32;

void write_lines(const std::filesystem::path& path) {
  std::ofstream lines(path);
  Rng rng(1);
  for (int64_t i = 0; i < kSamples; ++i) {
    const double length = std::exp(3.2 + 0.6 * static_cast<double>(rng.normal()));
    lines << std::string(static_cast<size_t>(std::clamp(length, 2.0, 200.0)), 'x') << '\n';
  }
}

Json pipeline_of(const std::filesystem::path& path) {
  return {{"seed", 1},
          {"stages",
           {{{"stage", "text_lines"}, {"pattern", path.string()}},
            {{"stage", "shuffle"}, {"buffer", 4000}},
            {{"stage", "bucket"},
             {"field", "text"},
             {"boundaries", {16, 24, 32, 48, 64, 96}},
             {"size", kRows}},
            {{"stage", "padded_batch"}, {"size", kRows}, {"drop_remainder", true}}}}};
}

// The lengths of a rank's batches in an epoch.
std::vector<int64_t> lengths_of(exchange::Group group, const Json& pipeline, size_t ahead) {
  train::Ranks ranks(std::move(group));
  train::Supply supply(train::part_of_ranks(pipeline, &ranks), &ranks, ahead);
  std::vector<int64_t> lengths;
  for (pipeline::Item batch; supply.next(batch, "text");)
    lengths.push_back(batch.find("text")->shape()[1]);
  return lengths;
}

// What the longest batch of each step costs all ranks, over what their own would.
double pace(int size, const Json& pipeline, size_t ahead) {
  auto groups = exchange::local_groups(size, 60);
  std::vector<std::future<std::vector<int64_t>>> ranks;
  for (auto& group : groups)
    ranks.push_back(std::async(std::launch::async,
                               [&] { return lengths_of(std::move(group), pipeline, ahead); }));
  std::vector<std::vector<int64_t>> lengths;
  for (auto& rank : ranks) lengths.push_back(rank.get());
  double paced = 0, own = 0;
  for (size_t step = 0; step < lengths[0].size(); ++step) {
    int64_t longest = 0;
    for (const auto& rank : lengths) {
      longest = std::max(longest, rank[step]);
      own += static_cast<double>(rank[step]);
    }
    paced += static_cast<double>(longest) * size;
  }
  return paced / own;
}

}  // namespace

int main() {
  const auto path = std::filesystem::temp_directory_path() / "echotrain-bucket-bench.txt";
  try {
    write_lines(path);
    const Json pipeline = pipeline_of(path);
    std::printf(
        "| ranks | batches ahead | work with waiting, over work | steps' time over that without |\n"
        "|---|---|---|---|\n");
    for (const int size : {2, 4, 8}) {
      const double apart = pace(size, pipeline, 0);
      std::printf("| %d | 0 | %.3f | |\n", size, apart);
      for (const size_t ahead : {4, 8, 16, 32}) {
        const double alike = pace(size, pipeline, ahead);
        std::printf("| %d | %zu | %.3f | %.2f |\n", size, ahead, alike, alike / apart);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bucket_bench: %s\n", error.what());
    std::filesystem::remove(path);
    return 1;
  }
  std::filesystem::remove(path);
}
