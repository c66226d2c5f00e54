// Input pipelines: every source, every way to echo, caches, functions and memory of the program.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "soak/data.h"
#include "soak/scenario.h"

namespace soak {

int64_t read(et::Pipeline& pipeline, int64_t batches) {
  int64_t count = 0;
  for (int ends = 0; count < batches && ends < 3;) {
    if (pipeline.next())
      ++count;
    else
      ++ends;
  }
  return count;
}

namespace {

std::string spec(const std::string& stages, const std::string& options = R"("threads": 2)") {
  return R"({"seed": 3, )" + options + R"(, "stages": [)" + stages + "]}";
}

std::string stage(const std::string& name, const std::string& options) {
  return R"({"stage": ")" + name + "\", " + options + "}";
}

// Images with their labels, decoded.
std::string images(const Round& round) {
  return stage("folder", R"("root": ")" + round.data + R"(/images")") +
         R"(, {"stage": "label"}, {"stage": "decode"})";
}

std::vector<std::string> every_source(const Round& round) {
  const auto of = [&](const char* name, const std::string& key, const std::string& file,
                      const std::string& more = "") {
    return stage(name, "\"" + key + "\": \"" + file + "\"" + more);
  };
  const std::string at = round.data + "/";
  const std::string csv =
      of("csv", "pattern", at + "rows-*.csv", R"(, "columns": "x:f32=a+b,label:i32")");
  const std::string lines = of("text_lines", "pattern", at + "text-*.txt");
  return {
      of("folder", "root", at + "images"),
      of("files", "pattern", at + "images/*/*.png"),
      of("webdataset", "pattern", at + "shard-*.tar.zst"),
      of("fast_shard", "pattern", at + "fast-*.ets"),
      of("idx", "images", at + "images.idx", R"(, "labels": ")" + at + "labels.idx\""),
      of("cifar", "pattern", at + "cifar.bin"),
      of("npy", "arrays", "x=" + at + "x.npy,label=" + at + "y.npy"),
      of("tfrecord", "pattern", at + "rows-*.tfrecord"),
      csv,
      of("jsonl", "pattern", at + "rows-*.jsonl", R"(, "columns": "x:f32,label:i32")"),
      lines,
      of("text_windows", "pattern", at + "text-*.txt", R"(, "length": 5)"),
      stage("mix", R"("weights": [2, 1], "sources": [)" + lines + ", " + lines + "]"),
      stage("zip", R"("prefixes": "a_,b_", "sources": [)" + lines + ", " + csv + "]"),
      stage("interleave", R"("cycle_length": 2, "sources": [)" + lines + "]"),
  };
}

// Some batches, then the position, and a second pipeline from there on; both are left where they
// are.
void sources(Round& round) {
  const auto all = every_source(round);
  const std::string text =
      spec(all[static_cast<size_t>(round.roll(static_cast<int64_t>(all.size())))] +
           R"(, {"stage": "echo", "factor": 2, "buffer": 20}, {"stage": "prefetch", "items": 4})");
  et::Pipeline pipeline = et::Pipeline::from_json(text);
  const int64_t count = 1 + round.roll(40);
  expect(read(pipeline, count) == count, "a source gives as many items as are read: " + text);
  et::Pipeline again = et::Pipeline::from_json(text);
  again.restore(pipeline.save());
  expect(read(again, 10) == 10, "a pipeline goes on from its position: " + text);
  expect(!pipeline.stats().empty() && !pipeline.explain().empty(), "a pipeline has statistics");
}

void echoing(Round& round) {
  const std::string log = round.work + "/decisions.jsonl";
  const auto echo = [&](const std::string& options) {
    return spec(images(round) + R"(, {"stage": "echo", "buffer": 16, )" + options +
                R"(}, {"stage": "random_crop", "pad": 1},
                {"stage": "shuffle", "buffer": 10}, {"stage": "batch", "size": 8}, {"stage": "normalize"})");
  };
  for (const char* mode : {"fixed", "together", "auto", "on_demand"}) {
    const bool decides = mode[0] == 'a' || mode[0] == 'o';
    et::Pipeline pipeline =
        et::Pipeline::from_json(echo(R"("factor": 3, "mode": ")" + std::string(mode) +
                                     (decides ? R"(", "log": ")" + log + "\"" : "\"")));
    read(pipeline, 1 + round.roll(20));
    et::Pipeline::from_json(echo(R"("factor": 3, "mode": ")" + std::string(mode) + "\""))
        .restore(pipeline.save());
  }
  et::Pipeline replayed = et::Pipeline::from_json(
      echo(R"("factor": 3, "mode": "on_demand", "replay": ")" + log + "\""));
  read(replayed, 1);
}

void caches(Round& round) {
  for (const std::string& where :
       {std::string(R"("bytes": 3000)"), R"("directory": ")" + round.work + "\"",
        R"("shared": ")" + round.work + R"(/shared")"}) {
    const std::string text = spec(images(round) + R"(, {"stage": "cache", )" + where +
                                  R"(}, {"stage": "overtake", "window": 8},
        {"stage": "echo", "factor": 1.5}, {"stage": "batch", "size": 8})");
    et::Pipeline first = et::Pipeline::from_json(text), second = et::Pipeline::from_json(text);
    read(first, 20);
    read(second, 1 + round.roll(20));
  }
}

// All that goes wrong on the way is tolerated, within a budget, with a trace.
void bad_records(Round& round) {
  std::filesystem::copy(round.data + "/images", round.work + "/images",
                        std::filesystem::copy_options::recursive);
  write_file(round.work + "/images/0/bad.png", "no picture");
  write_file(round.work + "/images/1/cut.png",
             read_file(round.data + "/images/1/1.png").substr(0, 60));
  for (const char* policy : {"skip", "quarantine", "substitute"}) {
    et::Pipeline pipeline = et::Pipeline::from_json(
        spec(stage("folder", R"("root": ")" + round.work + R"(/images")") +
                 R"(, {"stage": "label"}, {"stage": "decode"},
             {"stage": "echo", "factor": 2}, {"stage": "batch", "size": 8})",
             R"("threads": 2, "trace_events": 100, "budget_bytes": 50000000, "on_error": ")" +
                 std::string(policy) + R"(", "quarantine_dir": ")" + round.work +
                 R"(/bad", "bad_records_file": ")" + round.work + "/bad.jsonl\""));
    read(pipeline, 14);
    expect(pipeline.bad_records().find("bad.png") != std::string::npos, "a bad record is listed");
    expect(pipeline.trace().find("decode") != std::string::npos, "a trace has the stages");
  }
}

// Functions of the program that work, and one that throws.
void functions(Round& round) {
  const auto alive = std::make_shared<std::atomic<int>>(0);
  struct Counted {
    std::shared_ptr<std::atomic<int>> count;
    explicit Counted(std::shared_ptr<std::atomic<int>> of) : count(std::move(of)) { ++*count; }
    ~Counted() { --*count; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
  };
  const int64_t fails_at = round.roll(60);
  {
    et::Pipeline pipeline({{"threads", 2}, {"seed", 5}});
    const auto kept = std::make_shared<Counted>(alive);
    pipeline.source("numbers", [kept](et::Batch& item) {
      const auto number = static_cast<int32_t>(item.info().ordinal & 0xFFFFFFFF);
      item.set("x", &number, {});
      return number < kSamples;
    });
    pipeline.add("echo", {{"factor", 2}});
    pipeline.map("fails", [kept, fails_at](et::Batch& item) {
      if (*item["x"].as<int32_t>() == fails_at) throw std::runtime_error("as it should");
      auto values = std::make_shared<std::vector<float>>(100, 1.0F);
      item.wrap("y", values->data(), {100}, values);
    });
    pipeline.add("batch", {{"size", 8}});
    std::string said;
    try {
      read(pipeline, 12);
    } catch (const std::runtime_error& error) {
      said = error.what();
    }
    expect((said == "as it should") == (fails_at < kSamples),
           "the program's exception comes back: " + said);
  }
  expect(*alive == 0, "functions of the program are released");
}

// Counts the blocks that an allocator of the program has made, and those that are still held.
struct Blocks {
  std::atomic<int64_t> made{0}, held{0};
};

// An allocator and a log hook of the program, for as long as this lives.
class Hooks {
 public:
  explicit Hooks(Blocks& blocks) {
    et::check(etr_set_allocator(
        [](void* p, uint64_t size, uint64_t alignment) -> void* {
          ++static_cast<Blocks*>(p)->made;
          ++static_cast<Blocks*>(p)->held;
          return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        },
        [](void* p, void* block, uint64_t) {
          --static_cast<Blocks*>(p)->held;
          std::free(block);
        },
        &blocks, nullptr));
    et::set_log_hook([](et::LogLevel, et::LogSubject, const char*) {});
  }
  ~Hooks() {
    et::set_log_hook(nullptr);
    etr_set_allocator(nullptr, nullptr, nullptr, nullptr);
  }
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;
};

// Batches that outlive their pipeline, DLPack, an allocator and a log hook of the program.
void memory(Round& round) {
  static Blocks blocks;  // outlives all blocks, also after a failure
  blocks.made = 0;
  const Hooks hooks(blocks);
  et::Batch other;
  {
    et::Pipeline pipeline = et::Pipeline::from_json(
        spec(images(round) + R"(, {"stage": "echo", "factor": 2}, {"stage": "batch", "size": 8})"));
    std::optional<et::Batch> batch;
    for (int64_t i = 0; i <= round.roll(4); ++i) batch = pipeline.next();
    other.set_dlpack("pixels", batch->to_dlpack("image"));
  }
  expect(other["pixels"].size_bytes == 8 * 64, "a tensor outlives its batch");
  other.remove("pixels");
  expect(blocks.made > 0, "the program's allocator is used");
  expect(blocks.held == 0, "all blocks of the program's allocator are back");
}

// Cancelled and destroyed while its threads are at work, before, and never begun.
void abandoned(Round& round) {
  for (int i = 0; i < 4; ++i) {
    et::Pipeline pipeline = et::Pipeline::from_json(spec(
        images(round) +
        R"(, {"stage": "delay", "milliseconds": 2}, {"stage": "echo", "factor": 2, "mode": "on_demand"},
             {"stage": "batch", "size": 8})"));
    if (i == 1) pipeline.wait(0.01);
    if (i >= 2) read(pipeline, 1 + round.roll(3));
    if (i == 3) pipeline.cancel();
  }
}

void packing(Round& round) {
  for (const char* format : {"webdataset", "fast"}) {
    et::pack(round.data + "/images", round.work + "/" + format + "/train",
             {{"format", format}, {"per_shard", 20}, {"validation", 0.2}});
    expect_error(ETR_CANCELLED, "packing that is stopped", [&] {
      et::pack(round.data + "/images", round.work + "/" + format + "/train",
               {{"format", format}, {"validation", 0.2}, {"overwrite", true}},
               [](int64_t, int64_t) { return false; });
    });
  }
}

}  // namespace

std::vector<Scenario> pipelines() {
  return {{"sources", sources},         {"echo", echoing},        {"caches", caches},
          {"bad records", bad_records}, {"functions", functions}, {"batches", memory},
          {"abandoned", abandoned},     {"packing", packing}};
}

}  // namespace soak
