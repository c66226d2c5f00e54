// Caches samples at this point of the pipeline: after the first time they are neither read nor
// processed by the stages before. The output is the same with and without the cache. Stages before
// it must be deterministic.
#include "core/error.h"
#include "pipeline/sample_cache.h"
#include "pipeline/shared_cache.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"bytes", OptionType::integer, "1073741824",
     "capacity; samples that do not fit are prepared again in each epoch", 1, 1e15, "bytes"},
    {"directory", OptionType::string, "\"\"",
     "keep the samples of this run in a file in this directory instead of in memory", 0, 0, "path"},
    {"shared", OptionType::string, "\"\"",
     "keep the samples in this folder, where all processes on this machine and later "
     "runs find them; they are valid for one data set and for the stages before the "
     "cache",
     0, 0, "path"},
    {"version", OptionType::string, "\"\"",
     "with 'shared': a string of your choice, which must be that with which the cache "
     "was made; change it when something changes that the library cannot see, such as "
     "a function of your program"},
};

class Cache final : public MapStage {
 public:
  Cache(const Options& options, const StageContext&)
      : cache_(make_cache(options)),
        memory_(in_memory(options) ? static_cast<double>(options.integer("bytes")) : 0) {}

  void process(Item& item, uint64_t) const override {
    if (!item.record) return;
    if (item.cached) {
      item.cached = false;
      cache_->recall(item);
    } else {
      cache_->keep(item);
    }
  }

  double holds_bytes() const override { return memory_; }
  std::shared_ptr<SampleCache> sample_cache() const override { return cache_; }

 private:
  static bool in_memory(const Options& options) {
    return options.string("directory").empty() && options.string("shared").empty();
  }

  static std::shared_ptr<SampleCache> make_cache(const Options& options) {
    const int64_t bytes = options.integer("bytes");
    const std::string directory = options.string("directory"), shared = options.string("shared"),
                      version = options.string("version");
    if (shared.empty() && !version.empty())
      fail(Code::invalid_argument, "cache: 'version' is for a shared cache; set 'shared'");
    if (shared.empty()) return std::make_shared<OwnCache>(bytes, directory);
    if (!directory.empty())
      fail(Code::invalid_argument,
           "cache: 'directory' is for this process alone, 'shared' for all: set one of them");
    return std::make_shared<SharedCache>(shared, bytes, version);
  }

  const std::shared_ptr<SampleCache> cache_;
  const double memory_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec cache_stage;
const StageSpec cache_stage{"cache",
                            "keeps samples, so that later epochs need not prepare them again",
                            StageKind::map, stages::kOptions, make_stage<stages::Cache>};

}  // namespace etr::pipeline
