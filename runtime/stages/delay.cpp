// Holds each item back for a while: a slow disk or network, for experiments and tests.
#include <chrono>

#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"milliseconds", OptionType::number, nullptr, "time that each item takes, one after another", 0,
     1e6, "ms"},
};

class Delay final : public SerialStage {
 public:
  Delay(const Options& options, const StageContext& context)
      : each_(std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double, std::milli>(options.number("milliseconds")))),
        interrupt_(context.interrupt) {}

  void process(Item&& item, Emitter& out) override {
    if (item.ghost) return out.emit(std::move(item));  // restoring reads nothing
    // Against the clock, not by sleeping each time: rounding must not add up.
    due_ = std::max(due_, Clock::now() - kSlack) + each_;
    if (interrupt_) interrupt_->sleep_until(due_);
    out.emit(std::move(item));
  }

  bool may_block() const override { return true; }

 private:
  using Clock = std::chrono::steady_clock;
  // A sleep that ended late is made up for, as far as this.
  static constexpr Clock::duration kSlack = std::chrono::milliseconds(2);

  const Clock::duration each_;
  Interrupt* const interrupt_;
  Clock::time_point due_{};
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec delay_stage;
const StageSpec delay_stage{"delay", "makes each item take time, for experiments",
                            StageKind::serial, stages::kOptions, make_stage<stages::Delay>};

}  // namespace etr::pipeline
