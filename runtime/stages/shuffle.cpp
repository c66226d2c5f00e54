// Shuffles within a buffer: each output is drawn at random from the `buffer` items held.
#include "core/error.h"
#include "pipeline/shuffle_buffer.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"buffer", OptionType::integer, "1000", "number of samples held; larger buffers mix better", 1,
     1e8, "samples"},
    {"initial", OptionType::integer, "0",
     "samples held before the first one is released; a smaller number starts sooner and mixes the "
     "first samples less. 0: the whole buffer",
     0, 1e8, "samples"},
    {"buffer_bytes", OptionType::integer, "1073741824",
     "largest total size of the held samples; more is an error", 1, 1e13, "bytes"},
};

class Shuffle final : public SerialStage {
 public:
  Shuffle(const Options& options, const StageContext& context)
      : buffer_(static_cast<size_t>(options.integer("buffer")), initial_of(options),
                options.integer("buffer_bytes"), "shuffle", has_budget(context)),
        context_(context) {}

  void start_epoch(uint64_t epoch) override {
    epoch_ = epoch;
    pass_ = 0;
    buffer_.reseed(context_, epoch_, pass_);
  }
  void process(Item&& item, Emitter& out) override { buffer_.add(std::move(item), out); }
  void finish_pass(Emitter& out) override {
    buffer_.drain(out);
    buffer_.reseed(context_, epoch_, ++pass_);
  }
  double holds_bytes(double item_bytes) const override {
    return item_bytes * static_cast<double>(buffer_.capacity());
  }

 private:
  static size_t initial_of(const Options& options) {
    const int64_t initial = options.integer("initial");
    return static_cast<size_t>(initial > 0 ? initial : options.integer("buffer"));
  }

  ShuffleBuffer buffer_;
  const StageContext context_;
  uint64_t epoch_ = 0, pass_ = 0;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec shuffle_stage;
const StageSpec shuffle_stage{"shuffle", "shuffles within a buffer of samples", StageKind::serial,
                              stages::kOptions, make_stage<stages::Shuffle>};

}  // namespace etr::pipeline
