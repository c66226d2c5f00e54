// What ranks of one machine save by a cache that they share: two processes, a core each, read JPEGs
// of 500 x 375 and make them 224 x 224, for some epochs, whose order gives each rank other samples
// every time.
//
//   taskset -c 0,1 cache_bench [IMAGES [EPOCHS [ROUNDS]]]      1000, 4 and 3 without
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

#include "bench.h"
#include "core/error.h"
#include "pipeline/pipeline.h"
#include "support/images.h"
#include "support/temp_dir.h"

namespace etr::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;

void make_images(const std::string& folder, int count) {
  const std::string photograph = test::smooth_jpeg({}, 500, 375);
  for (int i = 0; i < count; ++i) {
    const std::string name = cat(folder, "/", i % 10, "/", i, ".jpg");
    fs::create_directories(fs::path(name).parent_path());
    std::ofstream(name, std::ios::binary) << photograph;
  }
}

Json spec_of(const std::string& images, const Json& cache, int epochs, int rank) {
  Json out{{"threads", 1}, {"epochs", epochs}, {"seed", 1}, {"rank", rank}, {"world_size", kRanks}};
  out["stages"] = {Json{{"stage", "folder"}, {"root", images}},
                   Json{{"stage", "decode"}, {"channels", "rgb"}},
                   Json{{"stage", "resize"}, {"height", 224}, {"width", 224}},
                   cache,
                   Json{{"stage", "flip"}},
                   Json{{"stage", "batch"}, {"size", 50}}};
  return out;
}

// Images that a rank decoded.
int64_t drain(const Json& spec) {
  pipeline::Pipeline p(spec);
  pipeline::Item item;
  for (int64_t epoch = 0; epoch < spec["epochs"].get<int64_t>(); ++epoch)
    while (p.next(item) == pipeline::Pipeline::Next::item) continue;
  const Json stats = p.stats();
  for (const Json& stage : stats["stages"])
    if (stage["name"] == "decode") return stage["items_in"].get<int64_t>();
  return 0;
}

void keep_to_core(int rank) {
  cpu_set_t all, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all) && seen++ == rank) CPU_SET(core, &own);
  if (CPU_COUNT(&own)) sched_setaffinity(0, sizeof own, &own);
}

// Each rank in a process of its own, which says through a pipe how many images it decoded;
// together.
int64_t run_ranks(const std::string& images, const Json& cache, int epochs) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) fail(Code::io, "no pipe");
  for (int rank = 0; rank < kRanks; ++rank)
    if (fork() == 0) {
      keep_to_core(rank);
      const int64_t decoded = drain(spec_of(images, cache, epochs, rank));
      _exit(write(ends[1], &decoded, sizeof decoded) == sizeof decoded ? 0 : 1);
    }
  close(ends[1]);
  int64_t total = 0;
  for (int64_t decoded = 0; read(ends[0], &decoded, sizeof decoded) == sizeof decoded;)
    total += decoded;
  close(ends[0]);
  for (int rank = 0, status = 0; rank < kRanks; ++rank)
    if (wait(&status) < 0 || status != 0) fail(Code::state, "a rank failed");
  return total;
}

struct Way {
  const char* name;
  Json cache;
  bool begins_empty;
};

void compare(int images, int epochs, int rounds) {
  const test::TempDir dir;
  make_images(dir.path("images"), images);
  const std::string shared = dir.path("shared"), own = dir.path("own");
  const Way ways[] = {
      {"no cache", {{"stage", "cache"}, {"bytes", 1}}, true},
      {"a cache each, in a file", {{"stage", "cache"}, {"directory", own}}, true},
      {"a shared cache, empty at first", {{"stage", "cache"}, {"shared", shared}}, true},
      {"the same, filled by an earlier run", {{"stage", "cache"}, {"shared", shared}}, false},
  };
  std::vector<int64_t> decoded(std::size(ways));
  std::vector<Times> times(std::size(ways));
  for (int round = -1; round < rounds; ++round)  // the first one warms up
    for (size_t i = 0; i < std::size(ways); ++i) {
      if (ways[i].begins_empty) fs::remove_all(shared);
      const double seconds =
          time_once([&] { decoded[i] = run_ranks(dir.path("images"), ways[i].cache, epochs); });
      if (round >= 0) times[i].add(seconds);
    }
  std::printf("%d JPEGs of 500 x 375, %d ranks with a thread each, %d epochs, %d rounds\n\n",
              images, kRanks, epochs, rounds);
  std::printf("%-32s %8s %8s   beside a cache each: decodes, time (middle half)\n", "", "decoded",
              "seconds");
  for (size_t i = 0; i < std::size(ways); ++i) {
    const Times ratio = times[i].over(times[1]);
    std::printf("%-32s %8lld %8.2f   %.2f, %.2f (%.2f to %.2f)\n", ways[i].name,
                static_cast<long long>(decoded[i]), times[i].median(),
                static_cast<double>(decoded[i]) / static_cast<double>(decoded[1]), ratio.median(),
                ratio.quantile(0.25), ratio.quantile(0.75));
  }
}

}  // namespace
}  // namespace etr::bench

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  etr::bench::compare(argument(1, 1000), argument(2, 4), argument(3, 3));
}
