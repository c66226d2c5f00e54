// The echo node: repeats what came from upstream (Choi et al. 2019, arXiv 1907.05550).
//
//   fixed      every item is emitted `factor` times, mixed through a buffer of copies.
//   auto       the same, with a factor that follows the measured times up- and downstream.
//   on_demand  every fresh item is emitted once; held ones are repeated, up to `factor` uses each,
//              only while the consumer would otherwise wait.
//
// Copies share their tensors. Each is a replica with a number of its own, so that augmentation
// after this node draws anew for each.
#include <cmath>
#include <memory>

#include "core/error.h"
#include "core/json.h"
#include "echo/decisions.h"
#include "echo/echo_policy.h"

namespace etr::echo {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"factor", OptionType::number, nullptr,
     "times each item is used, a real number: 2.5 is 2 or 3; auto and on_demand: at most", 1, 1e6},
    {"mode", OptionType::string, "\"fixed\"",
     "repeat always, as often as measured times ask for, or only when the consumer would wait", 0,
     0, "", "fixed|auto|on_demand"},
    {"draw", OptionType::string, "\"default\"",
     "which of the held samples comes next; default: on_demand least_used, else uniform", 0, 0, "",
     "default|least_used|uniform|newest"},
    {"buffer", OptionType::integer, "1000",
     "fixed and auto: copies held for shuffling, 1 keeps the order; on_demand: samples that may be "
     "repeated",
     1, 1e8, "samples"},
    {"buffer_bytes", OptionType::integer, "1073741824",
     "bytes that the held samples may take; more is an error", 1, 1e13, "bytes"},
    {"device", OptionType::boolean, "false",
     "in training the held samples lie in the device's memory, and the stages after this one run "
     "there (random_crop, flip, brightness_contrast, normalize; beside shuffle and batch): an echo "
     "then costs no copying, no augmenting and no upload; the batches are the same"},
    {"log", OptionType::string, "\"\"",
     "auto and on_demand: file that receives a line of JSON for each decision", 0, 0, "path"},
    {"replay", OptionType::string, "\"\"",
     "auto and on_demand: such a file; its decisions are repeated, which gives the same run"},
};

Draw draw_of(const Options& options, Draw by_default) {
  const std::string name = options.string("draw");
  if (name == "least_used") return Draw::least_used;
  if (name == "uniform") return Draw::uniform;
  return name == "newest" ? Draw::newest : by_default;
}

// What all modes share: the buffer, its randomness, and the age of what leaves.
class Echo : public SerialStage {
 public:
  Echo(const Options& options, const StageContext& context, Draw by_default)
      : capacity_(static_cast<uint64_t>(options.integer("buffer"))),
        buffer_(draw_of(options, by_default), options.integer("buffer_bytes")),
        decisions_(options.string("log"), options.string("replay")),
        context_(context),
        compacts_(has_budget(context)),
        device_(options.boolean("device")) {}

  bool makes_views() const final { return device_; }
  bool repeats_samples() const final { return true; }

  void start_epoch(uint64_t epoch) override {
    decisions_.start_epoch(epoch);
    buffer_.clear();
    rng_ = Rng(context_.seed, epoch, uint64_t{1} << 63, context_.position);
    fresh_ = 0;
  }

  // In samples: copies share their bytes.
  double holds_bytes(double item_bytes) const override {
    return item_bytes * static_cast<double>(capacity_);
  }

  void forget_before(uint64_t epoch) final { decisions_.forget_before(epoch); }

 protected:
  // Ages count in fresh items of this node; while an item is held its age lacks those that came before it.
  Item received(Item&& item) {
    ++all_fresh_;
    if (compacts_) item.compact();
    if (device_ && context_.defers && !item.ghost) to_view(item);
    item.age -= static_cast<int64_t>(++fresh_);
    return std::move(item);
  }
  void give(Item&& item, Emitter& out) {
    ++all_given_;
    item.age += static_cast<int64_t>(fresh_);
    out.emit(std::move(item));
  }
  bool give_one(Emitter& out) {
    Item item;
    if (!buffer_.draw(item, rng_)) return false;
    give(std::move(item), out);
    return true;
  }

  static void to_view(Item& item) {
    if (item.batch.size > 0)
      fail(Code::invalid_argument,
           "echo with 'device' repeats samples, not batches: put it in front of the batch stage");
    Tensor image = require_field(item, "image");
    item.remove("image");
    item.views = std::make_shared<std::vector<ImageView>>(1, ImageView(std::move(image)));
  }

  const uint64_t capacity_;
  EchoBuffer buffer_;
  Decisions decisions_;
  const StageContext context_;
  const bool compacts_, device_;
  Rng rng_{0};
  uint64_t fresh_ = 0;  // received in this epoch
  uint64_t all_fresh_ = 0, all_given_ = 0;
};

class FixedEcho : public Echo {
 public:
  FixedEcho(const Options& options, const StageContext& context)
      : Echo(options, context, Draw::uniform),
        mixes_(draw_of(options, Draw::uniform) == Draw::uniform),
        copies_(options.number("factor")) {}

  void start_epoch(uint64_t epoch) override {
    Echo::start_epoch(epoch);
    copies_.reset();
  }

  void process(Item&& item, Emitter& out) override {
    const Item held = received(std::move(item));
    const uint32_t copies = copies_.next();
    const auto bytes = static_cast<int64_t>(held.size_bytes());
    // To mix copies, not samples, each is held by itself; they share the bytes.
    const uint32_t together = mixes_ ? 1 : copies;
    for (uint32_t used = 0; used < copies; used += together) {
      buffer_.add(held, used + together, used, bytes * together / copies);
      while (buffer_.copies() >= capacity_) give_one(out);
    }
  }

  void finish_pass(Emitter& out) override {
    while (give_one(out)) continue;
    decisions_.end_epoch();
  }

  double holds_bytes(double item_bytes) const override {
    return Echo::holds_bytes(item_bytes) / copies_.factor() + item_bytes;
  }

 private:
  const bool mixes_;

 protected:
  CopyCounter copies_;
};

// Factors are noted in thousandths.
class AutoEcho final : public FixedEcho {
 public:
  AutoEcho(const Options& options, const StageContext& context)
      : FixedEcho(options, context), controller_(options.number("factor")) {
    copies_.set_factor(1);
  }

  void start_epoch(uint64_t epoch) override {
    FixedEcho::start_epoch(epoch);
    decisions_.note(0, thousandths(copies_.factor()), nullptr);
  }

  void process(Item&& item, Emitter& out) override {
    if (const auto due = decisions_.due(fresh_)) decide(*due, nullptr);
    FixedEcho::process(std::move(item), out);
  }

  bool adapts() const override { return true; }

  void observe(const Pace& pace) override {
    const auto decision = controller_.observe(pace, all_fresh_, all_given_, copies_.factor());
    if (!decision || decisions_.replaying(fresh_)) return;
    decide(thousandths(decision->factor), {{"factor", decision->factor},
                                           {"t_up_s", decision->t_up_s},
                                           {"t_down_s", decision->t_down_s}});
  }

  Json save_decisions(uint64_t epoch) const override { return decisions_.save(epoch); }
  void load_decisions(uint64_t epoch, const Json& saved) override { decisions_.load(epoch, saved); }

 private:
  static uint64_t thousandths(double factor) {
    return static_cast<uint64_t>(std::lround(factor * 1000));
  }
  void decide(uint64_t value, const Json& details) {
    copies_.set_factor(static_cast<double>(value) / 1000);
    decisions_.note(fresh_, value, details);
  }

  FactorController controller_;
};

class OnDemandEcho final : public Echo {
 public:
  OnDemandEcho(const Options& options, const StageContext& context)
      : Echo(options, context, Draw::least_used), uses_(options.number("factor")) {}

  void start_epoch(uint64_t epoch) override {
    Echo::start_epoch(epoch);
    uses_.reset();
    repeated_ = 0;
  }

  void process(Item&& item, Emitter& out) override {
    Item held = received(std::move(item));
    repeated_ = 0;
    if (buffer_.size() == capacity_) buffer_.evict(rng_);
    // The fresh copy is the first use.
    buffer_.add(held, uses_.next(), 1, static_cast<int64_t>(held.size_bytes()));
    held.replica = replica_of(held.replica, 0);
    give(std::move(held), out);
    for (uint64_t due = decisions_.due(fresh_).value_or(0); due > 0; --due)
      if (!repeat_one(out)) fail(Code::internal, "an echo of the saved run cannot be repeated");
  }

  void finish_pass(Emitter&) override { decisions_.end_epoch(); }

  bool echoes_on_demand() const override { return true; }
  bool echo_one(Emitter& out) override {
    return fresh_ > 0 && !decisions_.replaying(fresh_) && repeat_one(out);
  }

  Json save_decisions(uint64_t epoch) const override { return decisions_.save(epoch); }
  void load_decisions(uint64_t epoch, const Json& saved) override { decisions_.load(epoch, saved); }

 private:
  bool repeat_one(Emitter& out) {
    if (!give_one(out)) return false;
    decisions_.note(fresh_, ++repeated_, nullptr);
    return true;
  }

  CopyCounter uses_;
  uint64_t repeated_ = 0;  // echoes since the newest fresh item
};

std::unique_ptr<Stage> make(const Options& options, const StageContext& context) {
  const std::string mode = options.string("mode");
  if (mode == "fixed" && !(options.string("log") + options.string("replay")).empty())
    fail(Code::invalid_argument,
         "echo: 'log' and 'replay' belong to the modes auto and on_demand; fixed decides nothing");
  if (mode == "on_demand") return std::make_unique<OnDemandEcho>(options, context);
  if (mode == "auto") return std::make_unique<AutoEcho>(options, context);
  return std::make_unique<FixedEcho>(options, context);
}

}  // namespace
}  // namespace etr::echo

namespace etr::pipeline {

extern const StageSpec echo_stage;
const StageSpec echo_stage{"echo", "repeats items, always or as far as the consumer would wait",
                           StageKind::serial, echo::kOptions, echo::make};

}  // namespace etr::pipeline
