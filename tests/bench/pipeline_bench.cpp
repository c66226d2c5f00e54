// What a pipeline costs: the flow graph per item, and the CIFAR-10 pipeline beside a bare decode
// loop on the same number of threads.
//
//   pipeline_bench [FOLDER_WITH_CIFAR10_SHARDS]
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "bench.h"
#include "core/error.h"
#include "io/tar_reader.h"
#include "io/tar_writer.h"
#include "pipeline/pipeline.h"
#include "stages/image_codec.h"

namespace etr::bench {
namespace {

namespace fs = std::filesystem;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

int64_t drain(const Json& spec) {
  pipeline::Pipeline p(spec);
  pipeline::Item item;
  int64_t samples = 0;
  while (p.next(item) == pipeline::Pipeline::Next::item) samples += std::max(item.batch.size, 1);
  return samples;
}

// Tiny records through label only: what remains is the graph, the queues and the chunks.
void overhead() {
  const fs::path shard = fs::temp_directory_path() / "echotrain-bench.tar";
  {
    io::TarWriter writer(shard, 0);
    const std::string one = "1";
    for (int i = 0; i < 20000; ++i) writer.add(cat("n", i, ".cls"), std::as_bytes(std::span(one)));
    writer.finish();
  }
  const Json source{{"stage", "webdataset"}, {"pattern", shard.string()}},
      repeat{{"stage", "repeat"}, {"count", 20}};
  const Json label{{"stage", "label"}}, shuffle{{"stage", "shuffle"}, {"buffer", 100}},
      batch{{"stage", "batch"}, {"size", 100}};
  const auto spec = [](const Json& stages, int threads) {
    return Json{{"threads", threads}, {"epochs", 1}, {"stages", stages}};
  };
  for (const int threads : {1, 2}) {
    const auto times =
        time_in_turn({[&] {
                        drain(spec({source, repeat}, threads));
                      },
                      [&] {
                        drain(spec({source, repeat, label}, threads));
                      },
                      [&] {
                        drain(spec({source, repeat, label, shuffle, batch}, threads));
                      }},
                     3);
    std::printf(
        "per sample, %d threads: tar + queues %4.0f ns, + label %4.0f ns, + shuffle + batch %4.0f "
        "ns\n",
        threads, times[0] / 400000 * 1e9, times[1] / 400000 * 1e9, times[2] / 400000 * 1e9);
  }
  fs::remove(shard);
}

// Decodes every image of the shards on `threads` threads, shards handed out one by one.
int64_t bare_loop(const std::vector<std::string>& shards, int threads) {
  std::atomic<size_t> next{0};
  std::atomic<int64_t> images{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      for (size_t s; (s = next++) < shards.size();) {
        io::TarReader reader(io::open_stream(shards[s]), shards[s]);
        for (io::TarMember member; reader.next(member);)
          if (member.name.ends_with(".jpg")) {
            stages::decode_image(member.data.bytes(), stages::Channels::rgb);
            ++images;
          }
      }
    });
  for (std::thread& worker : workers) worker.join();
  return images;
}

void cifar(const std::string& folder) {
  std::vector<std::string> shards;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("cifar10-train-"))
      shards.push_back(entry.path());
  for (const int threads : {1, 2}) {
    const Json spec{{"threads", threads},
                    {"epochs", 1},
                    {"stages",
                     {{{"stage", "webdataset"}, {"pattern", folder + "/cifar10-train-*.tar.zst"}},
                      {{"stage", "label"}, {"classes", 10}},
                      {{"stage", "decode"}, {"channels", "rgb"}},
                      {{"stage", "random_crop"}, {"pad", 4}},
                      {{"stage", "flip"}},
                      {{"stage", "shuffle"}, {"buffer", 2000}},
                      {{"stage", "batch"}, {"size", 128}},
                      {{"stage", "normalize"},
                       {"mean", {0.4914, 0.4822, 0.4465}},
                       {"std", {0.247, 0.2435, 0.2616}}}}}};
    int64_t images = 0, bare = 0;
    double cpu = 0, bare_cpu = 0;
    int runs = 0;
    const auto times = time_in_turn({[&] {
                                       const double before = cpu_seconds();
                                       images = drain(spec);
                                       cpu += cpu_seconds() - before;
                                       ++runs;
                                     },
                                     [&] {
                                       const double before = cpu_seconds();
                                       bare = bare_loop(shards, threads);
                                       bare_cpu += cpu_seconds() - before;
                                     }},
                                    5);
    const double rate = static_cast<double>(images) / times[0],
                 bare_rate = static_cast<double>(bare) / times[1];
    std::printf(
        "CIFAR-10, %d threads: pipeline %6.0f images/s, %.1f us of CPU per image; bare decode loop "
        "%6.0f images/s, %.1f us; ratio %.1f %%\n",
        threads, rate, cpu / runs / static_cast<double>(images) * 1e6, bare_rate,
        bare_cpu / runs / static_cast<double>(bare) * 1e6, 100 * rate / bare_rate);
  }
}

}  // namespace
}  // namespace etr::bench

int main(int argc, char** argv) {
  try {
    etr::bench::overhead();
    if (argc > 1)
      etr::bench::cifar(argv[1]);
    else
      std::printf("CIFAR-10: SKIPPED, give the folder with its shards as the argument\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pipeline_bench: %s\n", error.what());
    return 1;
  }
}
