// Enlarges the queue at this point, to even out bursts.
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"items", OptionType::integer, nullptr,
     "number of samples (or of batches, after a batch stage) that the queue holds", 1, 1e8,
     "items"},
};

class Prefetch final : public SerialStage {
 public:
  Prefetch(const Options& options, const StageContext&) : items_(options.integer("items")) {}

  void process(Item&& item, Emitter& out) override { out.emit(std::move(item)); }
  SerialTraits traits() const override { return {.queue_items = items_}; }

 private:
  const int64_t items_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec prefetch_stage;
const StageSpec prefetch_stage{"prefetch", "queue of a given length at this point of the pipeline",
                               StageKind::serial, stages::kOptions, make_stage<stages::Prefetch>};

}  // namespace etr::pipeline
