// Passes the first `count` items of each pass; the source then stops reading.
#include <atomic>

#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"count", OptionType::integer, nullptr, "number of items to pass on", 1, 1e15},
};

class Take final : public SerialStage, private PassControl {
 public:
  Take(const Options& options, const StageContext&)
      : count_(static_cast<uint64_t>(options.integer("count"))) {}

  PassControl* pass_control() override { return this; }

  void start_epoch(uint64_t epoch) override {
    epoch_ = epoch;
    pass_ = 0;
    taken_ = 0;
  }

  void start_rest(uint64_t, const DoneSamples&) override { refuse_rest("take"); }
  void process(Item&& item, Emitter& out) override {
    if (taken_ == count_) return;
    ++taken_;
    out.emit(std::move(item));
    if (taken_ == count_) satisfied_.store(pass_id(epoch_, pass_));
  }

  void finish_pass(Emitter&) override {
    ++pass_;
    taken_ = 0;
  }

  uint64_t satisfied_pass() const override { return satisfied_.load(); }
  bool ends_passes() const override { return true; }

 private:
  const uint64_t count_;
  uint64_t epoch_ = 0, pass_ = 0, taken_ = 0;
  std::atomic<uint64_t> satisfied_{0};
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec take_stage;
const StageSpec take_stage{"take", "passes on only the first items of each pass", StageKind::serial,
                           stages::kOptions, make_stage<stages::Take>};

}  // namespace etr::pipeline
