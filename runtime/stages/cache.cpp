// Keeps samples as they are at this place: from the second time on they are neither read nor mapped again up to
// here. What comes out is the same with and without it. Stages before it must give the same each time.
#include "pipeline/sample_cache.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"bytes", OptionType::integer, "1073741824", "what it may hold; further samples are read again",
     1, 1e15, "bytes"},
    {"directory", OptionType::string, "\"\"",
     "keep the samples in a file there, for this run, instead of in memory", 0, 0, "path"},
};

class Cache final : public MapStage {
 public:
  Cache(const Options& options, const StageContext&)
      : cache_(
            std::make_shared<SampleCache>(options.integer("bytes"), options.string("directory"))),
        memory_(options.string("directory").empty() ? static_cast<double>(options.integer("bytes"))
                                                    : 0) {}

  void process(Item& item, uint64_t) const override {
    if (!item.record) return;
    if (item.cached) {
      item.cached = false;
      cache_->recall(*item.record, item);
    } else {
      cache_->keep(*item.record, item);
    }
  }

  double holds_bytes() const override { return memory_; }
  std::shared_ptr<SampleCache> sample_cache() const override { return cache_; }

 private:
  const std::shared_ptr<SampleCache> cache_;
  const double memory_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec cache_stage;
const StageSpec cache_stage{"cache", "keeps samples, so that later epochs need not make them again",
                            StageKind::map, stages::kOptions, make_stage<stages::Cache>};

}  // namespace etr::pipeline
