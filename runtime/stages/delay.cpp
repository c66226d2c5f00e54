// Delays each item to simulate a slow disk or network, for experiments and tests.
#include <chrono>

#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"milliseconds", OptionType::number, nullptr,
     "delay of each item; items are delayed one after another", 0, 1e6, "ms"},
};

class Delay final : public SerialStage {
 public:
  Delay(const Options& options, const StageContext& context)
      : each_(std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double, std::milli>(options.number("milliseconds")))),
        interrupt_(context.interrupt) {}

  void process(Item&& item, Emitter& out) override {
    // Restoring does not read, nor does what a cache has.
    if (item.ghost || item.cached) return out.emit(std::move(item));
    // Follows the clock instead of sleeping a fixed time, so that rounding errors do not
    // accumulate.
    due_ = std::max(due_, Clock::now() - kSlack) + each_;
    if (interrupt_) interrupt_->sleep_until(due_);
    out.emit(std::move(item));
  }

  SerialTraits traits() const override { return {.may_block = true}; }

 private:
  using Clock = std::chrono::steady_clock;
  // The largest delay of a wake-up that the next items make up for.
  static constexpr Clock::duration kSlack = std::chrono::milliseconds(2);

  const Clock::duration each_;
  Interrupt* const interrupt_;
  Clock::time_point due_{};
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec delay_stage;
const StageSpec delay_stage{"delay", "delays each item, for experiments", StageKind::serial,
                            stages::kOptions, make_stage<stages::Delay>};

}  // namespace etr::pipeline
