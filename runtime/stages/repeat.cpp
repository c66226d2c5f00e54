// Runs the stages before it several times in an epoch, seamlessly for those after it: a following
// shuffle mixes the end of one pass with the beginning of the next.
#include "core/error.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"count", OptionType::integer, "0", "passes in an epoch; 0: repeat for ever", 0, 1e9, "passes"},
};

class Repeat final : public SerialStage, private PassControl {
 public:
  Repeat(const Options& options, const StageContext&)
      : count_(static_cast<uint64_t>(options.integer("count"))) {}

  SerialTraits traits() const override { return {.passes = count_}; }
  PassControl* pass_control() override { return this; }

  void start_epoch(uint64_t) override { ended_ = samples_ = short_passes_ = 0; }
  void start_rest(uint64_t epoch, const DoneSamples& done) override {
    start_epoch(epoch);
    ended_ = done.first_pass();
    short_passes_ = done.passes() - ended_;
  }
  void process(Item&& item, Emitter& out) override {
    ++samples_;
    out.emit(std::move(item));
  }
  bool forwards_end(bool epoch_ends) override {
    if (!epoch_ends && count_ == 0 && samples_ == 0 && short_passes_ == 0)
      fail(Code::invalid_argument,
           "repeat without end: a whole pass over the data gave no sample; either there is none, "
           "or every record was bad");
    samples_ = 0;
    if (short_passes_ > 0) --short_passes_;
    ++ended_;
    return epoch_ends || (count_ != 0 && ended_ % count_ == 0);
  }

 private:
  const uint64_t count_;
  uint64_t ended_ = 0, samples_ = 0;  // passes ended in this epoch; samples in this pass
  uint64_t short_passes_ = 0;         // number of passes that may be empty
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec repeat_stage;
const StageSpec repeat_stage{"repeat", "repeats the output of everything before it",
                             StageKind::serial, stages::kOptions, make_stage<stages::Repeat>};

}  // namespace etr::pipeline
