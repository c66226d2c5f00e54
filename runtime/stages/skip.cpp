// Drops the first items of each pass.
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"count", OptionType::integer, nullptr, "number of items to skip", 0, 1e15},
};

class Skip final : public SerialStage {
 public:
  Skip(const Options& options, const StageContext&)
      : count_(static_cast<uint64_t>(options.integer("count"))) {}

  void start_epoch(uint64_t) override { seen_ = 0; }
  void start_rest(uint64_t, const DoneSamples&) override { refuse_rest("skip"); }
  void process(Item&& item, Emitter& out) override {
    if (seen_++ >= count_) out.emit(std::move(item));
  }
  void finish_pass(Emitter&) override { seen_ = 0; }

 private:
  const uint64_t count_;
  uint64_t seen_ = 0;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec skip_stage;
const StageSpec skip_stage{"skip", "skips the first items of each pass", StageKind::serial,
                           stages::kOptions, make_stage<stages::Skip>};

}  // namespace etr::pipeline
