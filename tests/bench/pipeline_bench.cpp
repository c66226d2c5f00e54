// What a pipeline costs: the flow graph per item, and the CIFAR-10 pipeline beside two loops on the
// same number of threads: a bare one that only reads and decodes, and one that does all the
// pipeline's work on samples (crop, flip, batch, normalise), without order, queues or statistics.
// And what it costs to follow other pipelines where other programs keep the cores busy.
//
//   pipeline_bench [FOLDER_WITH_CIFAR10_SHARDS]
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "bench.h"
#include "codec/image_codec.h"
#include "core/error.h"
#include "io/tar_reader.h"
#include "io/tar_writer.h"
#include "pipeline/pipeline.h"
#include "pipeline/stage.h"

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

void write_labels(const fs::path& shard, int count) {
  io::TarWriter writer(shard, 0);
  const std::string one = "1";
  for (int i = 0; i < count; ++i) writer.add(cat("n", i, ".cls"), std::as_bytes(std::span(one)));
  writer.finish();
}

// Tiny records through label only: what remains is the graph, the queues and the chunks.
void overhead() {
  const fs::path shard = fs::temp_directory_path() / "echotrain-bench.tar";
  write_labels(shard, 20000);
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

// Maps that wait, on four threads, beside twice as many busy threads as there are cores: the first
// pipeline of the process, and one after twenty short ones, to which oneTBB before 2021.10 left
// threads that they had no use for any more.
void on_busy_cores() {
  constexpr int kThreads = 4, kItems = 200;
  std::atomic<bool> done{false};
  std::vector<std::thread> busy;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i)
    busy.emplace_back([&] {
      while (!done) continue;
    });
  const fs::path shard = fs::temp_directory_path() / "echotrain-bench.tar";
  write_labels(shard, kItems);
  const Json spec{{"threads", kThreads},
                  {"epochs", 1},
                  {"stages",
                   {{{"stage", "webdataset"}, {"pattern", shard.string()}},
                    {{"stage", "map"}, {"function", "wait"}}}}};
  const auto read = [&](int items) {
    const int64_t begin = now_ns();
    pipeline::Pipeline p(spec, {{"wait", [](pipeline::Item&, uint64_t) {
                                   std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                 }}});
    pipeline::Item item;
    while (items-- > 0 && p.next(item) == pipeline::Pipeline::Next::item) continue;
    return seconds_between(begin, now_ns());
  };
  const double first = read(kItems);
  std::vector<double> later;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20; ++i) read(1);
    later.push_back(read(kItems));
  }
  done = true;
  for (std::thread& thread : busy) thread.join();
  fs::remove(shard);
  std::printf(
      "on busy cores, %d items of 5 ms on %d threads: the first pipeline %.2f s, after twenty "
      "others %.2f s (median of three), ratio %.2f\n",
      kItems, kThreads, first, median(later), median(later) / first);
}

// Decodes every image of the shards on `threads` threads, shards handed out one by one. `use` gets
// each image, on the thread that made it.
template <typename MakeUse>
int64_t loop(const std::vector<std::string>& shards, int threads, MakeUse make_use) {
  std::atomic<size_t> next{0};
  std::atomic<int64_t> images{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      auto use = make_use();
      for (size_t s; (s = next++) < shards.size();) {
        io::TarReader reader(io::open_stream(shards[s]), shards[s]);
        for (io::TarMember member; reader.next(member);)
          if (member.name.ends_with(".jpg")) {
            use(codec::decode_image(member.data.bytes(), {.channels = codec::Channels::rgb}));
            ++images;
          }
      }
    });
  for (std::thread& worker : workers) worker.join();
  return images;
}

int64_t bare_loop(const std::vector<std::string>& shards, int threads) {
  return loop(shards, threads, [] { return [](const Tensor&) {}; });
}

// The pipeline's own stages, called by hand.
class SameWork {
 public:
  SameWork(const Json& stages, size_t batch) : batch_(batch) {
    for (const Json& row : stages) {
      Json options = row;
      const auto name = row["stage"].get<std::string>();
      options.erase("stage");
      const pipeline::StageSpec& spec = pipeline::find_stage(name);
      auto stage = spec.make(Options(spec.options, name, options), {0, stages_.size(), nullptr});
      stages_.push_back(std::get<std::unique_ptr<pipeline::MapStage>>(std::move(stage)));
    }
  }

  void operator()(Tensor image) {
    pipeline::Item item;
    item.ordinal = ordinal_++;
    item.set("image", std::move(image));
    for (size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->process(item, 0);
    const Tensor& made = *item.find("image");
    if (filled_ == 0)
      images_ = Tensor(DType::u8, with_batch(static_cast<int64_t>(batch_), made.shape()));
    std::memcpy(static_cast<std::byte*>(images_.mutable_data()) + filled_ * made.size_bytes(),
                made.data(), made.size_bytes());
    if (++filled_ < batch_) return;
    pipeline::Item full;
    full.set("image", std::move(images_));
    stages_.back()->process(full, 0);  // normalize works on whole batches
    filled_ = 0;
  }

 private:
  const size_t batch_;
  std::vector<std::unique_ptr<pipeline::MapStage>> stages_;
  Tensor images_;
  size_t filled_ = 0;
  uint64_t ordinal_ = 0;
};

void cifar(const std::string& folder) {
  std::vector<std::string> shards;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("cifar10-train-"))
      shards.push_back(entry.path());
  const Json crop{{"stage", "random_crop"}, {"pad", 4}}, flip{{"stage", "flip"}},
      normalize{{"stage", "normalize"},
                {"mean", {0.4914, 0.4822, 0.4465}},
                {"std", {0.247, 0.2435, 0.2616}}};
  constexpr size_t kBatch = 128;
  for (const int threads : {1, 2}) {
    const Json spec{{"threads", threads},
                    {"epochs", 1},
                    {"stages",
                     {{{"stage", "webdataset"}, {"pattern", folder + "/cifar10-train-*.tar.zst"}},
                      {{"stage", "label"}, {"classes", 10}},
                      {{"stage", "decode"}, {"channels", "rgb"}},
                      crop,
                      flip,
                      {{"stage", "shuffle"}, {"buffer", 2000}},
                      {{"stage", "batch"}, {"size", kBatch}},
                      normalize}}};
    struct Side {
      std::function<int64_t()> run;
      int64_t images = 0;  // of the last run
      double cpu = 0;      // of all runs
    };
    Side sides[] = {
        {[&] { return drain(spec); }}, {[&] { return bare_loop(shards, threads); }}, {[&] {
          return loop(shards, threads, [&] { return SameWork({crop, flip, normalize}, kBatch); });
        }}};
    std::vector<std::function<void()>> bodies;
    for (Side& side : sides)
      bodies.push_back([&side] {
        const double before = cpu_seconds();
        side.images = side.run();
        side.cpu += cpu_seconds() - before;
      });
    constexpr int kRounds = 7;
    const auto times = time_in_turn(bodies, kRounds);
    double rate[3], cpu_us[3];
    for (size_t i = 0; i < 3; ++i) {
      rate[i] = static_cast<double>(sides[i].images) / times[i];
      cpu_us[i] = sides[i].cpu / (kRounds + 1) / static_cast<double>(sides[i].images) * 1e6;
    }
    std::printf(
        "CIFAR-10, %d threads: pipeline %6.0f images/s, %.1f us of CPU per image\n"
        "  bare decode loop %6.0f images/s, %.1f us; ratio %.1f %%\n"
        "  loop of the same work %6.0f images/s, %.1f us; ratio %.1f %%\n",
        threads, rate[0], cpu_us[0], rate[1], cpu_us[1], 100 * rate[0] / rate[1], rate[2],
        cpu_us[2], 100 * rate[0] / rate[2]);
  }
}

}  // namespace
}  // namespace etr::bench

int main(int argc, char** argv) {
  try {
    etr::bench::on_busy_cores();  // first, in a process without other pipelines
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
