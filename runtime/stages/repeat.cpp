// Runs what is upstream several times in one epoch, without a seam downstream: a shuffle behind it
// mixes the end of one pass with the beginning of the next.
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"count", OptionType::integer, "0", "passes in an epoch; 0 repeats for ever", 0, 1e9, "passes"},
};

class Repeat final : public SerialStage {
 public:
  Repeat(const Options& options, const StageContext&)
      : count_(static_cast<uint64_t>(options.integer("count"))) {}

  void start_epoch(uint64_t) override { ended_ = 0; }
  void process(Item&& item, Emitter& out) override { out.emit(std::move(item)); }
  bool forwards_end(bool epoch_ends) override {
    ++ended_;
    return epoch_ends || (count_ != 0 && ended_ % count_ == 0);
  }
  uint64_t passes() const override { return count_; }

 private:
  const uint64_t count_;
  uint64_t ended_ = 0;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec repeat_stage;
const StageSpec repeat_stage{"repeat", "repeats everything before it", StageKind::serial,
                             stages::kOptions, make_stage<stages::Repeat>};

}  // namespace etr::pipeline
