// What the stage `overtake` gains where samples take different times: batches of 16 from four
// threads, for a consumer that takes as long for a batch as the threads do on average, or no time.
//
//   overtake_bench [SAMPLES [ROUNDS]]      1600 and 7 without
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "bench.h"
#include "core/text.h"
#include "pipeline/pipeline.h"
#include "support/images.h"
#include "support/temp_dir.h"

namespace etr::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

constexpr int kThreads = 4, kBatch = 16, kSlow = 16;  // one of so many is slow

bool is_slow(uint64_t ordinal) { return ordinal * 5 % kSlow == 3; }

// Every image is as small, and some are large.
std::string make_images(const std::string& folder, int count) {
  const std::string small = test::smooth_jpeg({}, 160, 120),
                    large = test::smooth_jpeg({}, 1600, 1200);
  fs::create_directories(folder);
  for (int i = 0; i < count; ++i) {
    const std::string name = std::to_string(100000 + i);
    std::ofstream(cat(folder, "/", name, ".jpg"), std::ios::binary)
        << (is_slow(static_cast<uint64_t>(i)) ? large : small);
  }
  return cat(folder, "/*.jpg");
}

struct Work {
  const char* name;
  Json maps;
};

Json spec_of(const std::string& images, const Work& work, int window) {
  Json stages = Json::array({{{"stage", "files"}, {"pattern", images}}});
  stages.insert(stages.end(), work.maps.begin(), work.maps.end());
  if (window > 0) stages.push_back({{"stage", "overtake"}, {"window", window}});
  stages.push_back({{"stage", "keep"}, {"fields", "image"}});
  stages.push_back({{"stage", "batch"}, {"size", kBatch}});
  return {{"threads", kThreads}, {"epochs", 1}, {"prefetch", 2}, {"stages", stages}};
}

// What each sample waits for, as for a disk or a service.
pipeline::MapFunctions functions() {
  return {{"wait", [](pipeline::Item& item, uint64_t) {
             std::this_thread::sleep_for(microseconds(is_slow(item.ordinal) ? 32000 : 1000));
             item.set("image", Tensor(DType::u8, {8, 8, 1}));
           }}};
}

void drain(const Json& spec, microseconds step) {
  pipeline::Pipeline p(spec, functions());
  pipeline::Item batch;
  while (p.next(batch) == pipeline::Pipeline::Next::item) std::this_thread::sleep_for(step);
}

void compare(int samples, int rounds) {
  const test::TempDir dir;
  const std::string images = make_images(dir.path("images"), samples);
  const Work works[] = {
      {"1 ms of waiting, or 32 ms", {{{"stage", "map"}, {"function", "wait"}}}},
      {"a JPEG of 160 x 120, or 1600 x 1200",
       {{{"stage", "decode"}, {"field", "jpg"}, {"channels", "rgb"}},
        {{"stage", "resize"}, {"height", 64}, {"width", 64}}}},
  };
  std::printf("%d samples, one of %d slow, %d threads, batches of %d, %d rounds\n\n", samples,
              kSlow, kThreads, kBatch, rounds);
  std::printf("%-36s %10s %8s %8s %8s   times as fast (middle half)\n", "work on a sample",
              "a step, ms", "window", "in order", "overtake");
  for (const Work& work : works) {
    const double alone = time_once([&] { drain(spec_of(images, work, 0), microseconds(0)); });
    for (const bool trains : {false, true}) {
      const double seconds = trains ? 0.75 * alone * kBatch / samples : 0;
      const microseconds step(static_cast<int64_t>(1e6 * seconds));
      for (const int window : {16, 64}) {
        const auto times = times_in_turn({[&] { drain(spec_of(images, work, 0), step); },
                                          [&] { drain(spec_of(images, work, window), step); }},
                                         rounds);
        const Times ratio = times[0].over(times[1]);
        std::printf("%-36s %10.1f %8d %8.2f %8.2f   %.2f (%.2f to %.2f)\n", work.name,
                    1e3 * seconds, window, times[0].median(), times[1].median(), ratio.median(),
                    ratio.quantile(0.25), ratio.quantile(0.75));
      }
    }
  }
}

}  // namespace
}  // namespace etr::bench

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  etr::bench::compare(argument(1, 1600), argument(2, 7));
}
