// The echo node: repeats items from upstream (Choi et al. 2019, arXiv 1907.05550).
//
//   fixed      Emits every item `factor` times, mixed through a buffer of copies.
//   together   Like fixed, but with the copies in direct succession, so that they share a batch
//              (Hoffer et al. 2020, Fort et al. 2021, arXiv 2105.13343).
//   on_demand  Emits every fresh item once, immediately. Repeats held items only while the consumer
//              would otherwise wait, at most `factor` uses per fresh item, plus a limited number on
//              credit.
//   auto       Like on_demand, plus the echoes due after each fresh item at the ratio that the run
//              needs.
//
// Copies share their tensors. Each is a replica with its own number, so that augmentation after
// this node draws anew for each.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "echo/decisions.h"
#include "echo/echo_policy.h"

namespace etr::echo {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"factor", OptionType::number, nullptr,
     "how often each item is used; 2.5 means two or three times. auto and on_demand: "
     "a cap on the average over a long stretch of the run; a single sample is used at "
     "most twice that often",
     1, kMostUses},
    {"mode", OptionType::string, "\"fixed\"",
     "when items are repeated: fixed: always, in random order; together: always, all "
     "copies in a row; auto: as often as the run needs, spread evenly; on_demand: "
     "only when the consumer would otherwise wait",
     0, 0, "", "fixed|together|auto|on_demand"},
    {"draw", OptionType::string, "\"default\"",
     "which held sample is repeated next; default: uniform with mode fixed, otherwise spread", 0, 0,
     "", "default|spread|least_used|uniform|newest"},
    {"buffer", OptionType::integer, "1000",
     "fixed: number of outstanding uses that are held and shuffled (1 keeps the "
     "order); auto and on_demand: number of samples that are held and can be repeated",
     1, 1e8, "samples"},
    {"buffer_bytes", OptionType::integer, "1073741824",
     "largest total size of the held samples; more is an error", 1, 1e13, "bytes"},
    {"device", OptionType::boolean, "false",
     "in training, hold the samples in device memory and run the stages after this "
     "one on the device (random_resized_crop, random_crop, flip, brightness_contrast, "
     "color_jitter, normalize; shuffle and batch may follow, too): a repeat then "
     "needs no copy, no augmentation on the host and no upload. The batches are the "
     "same as without this option"},
    {"log", OptionType::string, "\"\"",
     "auto and on_demand: file to which each decision is written as a line of JSON", 0, 0, "path"},
    {"replay", OptionType::string, "\"\"",
     "auto and on_demand: file written by 'log', whose decisions are repeated, which "
     "gives the same run"},
};

Draw draw_of(const Options& options, Draw by_default) {
  const std::string name = options.string("draw");
  if (name == "spread") return Draw::spread;
  if (name == "least_used") return Draw::least_used;
  if (name == "uniform") return Draw::uniform;
  return name == "newest" ? Draw::newest : by_default;
}

// What all modes share: numbers of copies, ages, and images that go to the device.
class Echo : public SerialStage {
 public:
  Echo(const Options& options, const StageContext& context)
      : context_(context), compacts_(has_budget(context)), device_(options.boolean("device")) {}

  SerialTraits traits() const final {
    return {.repeats_samples = true,
            .replica_stride = kUseNumbers,
            .copies = most_uses(),
            .makes_views = device_};
  }

  void start_epoch(uint64_t) override { fresh_ = 0; }

  // An item that cannot become a view for the device is a bad record.
  void admit(Item& item) final {
    if (compacts_) item.compact();
    if (device_ && context_.defers && item.batch.size == 0) to_view(item);
  }

 protected:
  virtual uint32_t most_uses() const = 0;  // of one item

  // Ages count fresh items of this node. While an item is held, its age excludes those that came
  // before it.
  Item received(Item&& item) {
    if (device_ && context_.defers && item.batch.size > 0)
      fail(Code::invalid_argument,
           "echo with 'device' repeats samples, not batches: put it in front of the batch stage");
    ++all_fresh_;
    item.age -= static_cast<int64_t>(++fresh_);
    return std::move(item);
  }
  void give(Item&& item, Emitter& out) {
    ++all_given_;
    item.age += static_cast<int64_t>(fresh_);
    out.emit(std::move(item));
  }

  const StageContext context_;
  uint64_t fresh_ = 0;  // received in this epoch
  uint64_t all_fresh_ = 0, all_given_ = 0;

 private:
  static void to_view(Item& item) {
    Tensor image = require_field(item, "image");
    item.remove("image");
    item.views = std::make_shared<std::vector<ImageView>>(1, ImageView(std::move(image)));
  }

  const bool compacts_, device_;
};

// Holds items in a buffer, from which they are repeated.
class BufferedEcho : public Echo {
 public:
  BufferedEcho(const Options& options, const StageContext& context, Draw by_default)
      : Echo(options, context),
        capacity_(static_cast<uint64_t>(options.integer("buffer"))),
        buffer_(draw_of(options, by_default), options.integer("buffer_bytes")) {}

  void start_epoch(uint64_t epoch) override {
    Echo::start_epoch(epoch);
    epoch_ = epoch;
    start_pass(0);
  }

  // Counted in samples, because copies share their bytes.
  double holds_bytes(double item_bytes) const override {
    return item_bytes * static_cast<double>(capacity_);
  }

 protected:
  // Each pass begins anew: a `take` downstream ends a pass, and how many items arrive after that
  // depends on timing.
  virtual void start_pass(uint64_t pass) {
    pass_ = pass;
    buffer_.clear();
    rng_ = Rng(context_.seed, epoch_, uint64_t{1} << 63 | pass, context_.position);
  }
  bool give_next(Emitter& out) {
    Item item;
    if (!buffer_.draw(item, rng_)) return false;
    give(std::move(item), out);
    return true;
  }

  const uint64_t capacity_;
  EchoBuffer buffer_;
  Rng rng_{0};
  uint64_t epoch_ = 0, pass_ = 0;
};

class FixedEcho final : public BufferedEcho {
 public:
  FixedEcho(const Options& options, const StageContext& context)
      : BufferedEcho(options, context, Draw::uniform),
        mixes_(draw_of(options, Draw::uniform) == Draw::uniform),
        copies_(options.number("factor")) {}

  void process(Item&& item, Emitter& out) override {
    const Item held = received(std::move(item));
    const uint32_t copies = copies_.next();
    const auto bytes = static_cast<int64_t>(held.size_bytes());
    if (!mixes_) {
      hold(held, {copies, copies}, bytes, out);
      return;
    }
    // To mix uses rather than samples, each use is held separately; they share the bytes.
    const auto given = std::make_shared<uint32_t>(0);
    for (uint32_t i = 0; i < copies; ++i) hold(held, {1, 1, 0, given}, bytes / copies, out);
  }

  void finish_pass(Emitter& out) override {
    while (give_next(out)) continue;
    start_pass(pass_ + 1);
  }

  double holds_bytes(double item_bytes) const override {
    return BufferedEcho::holds_bytes(item_bytes) / copies_.factor() + item_bytes;
  }

 protected:
  uint32_t most_uses() const override { return copies_.most(); }
  void start_pass(uint64_t pass) override {
    BufferedEcho::start_pass(pass);
    copies_.reset();
  }

 private:
  void hold(const Item& item, EchoBuffer::Uses uses, int64_t bytes, Emitter& out) {
    buffer_.add(item, std::move(uses), bytes, rng_);
    while (buffer_.copies() >= capacity_) give_next(out);
  }

  const bool mixes_;
  CopyCounter copies_;
};

// The time-dependent modes. A decision is the number of echoes after a fresh item and before the
// next.
class AdaptiveEcho final : public BufferedEcho, private OnDemand, private TimeDependent {
 public:
  AdaptiveEcho(const Options& options, const StageContext& context, bool plans)
      : BufferedEcho(options, context, Draw::spread),
        plans_(plans),
        decisions_(options.string("log"), options.string("replay")),
        uses_(options.number("factor")),
        credit_(band(options)),
        plan_(options.number("factor"), band(options)) {}

  void start_epoch(uint64_t epoch) override {
    decisions_.start_epoch(epoch);
    BufferedEcho::start_epoch(epoch);
  }

  void process(Item&& item, Emitter& out) override {
    Item held = received(std::move(item));
    echoes_ = 0;
    details_ = nullptr;
    decisions_.reach(place());
    hold(held);
    make_copy(held, 0);
    give(std::move(held), out);
    if (decisions_.replaying(place()))
      repeat_again(out);
    else if (plans_)
      repeat_as_planned(out);
  }

  void finish_pass(Emitter&) override {
    decisions_.end_pass();
    start_pass(pass_ + 1);
  }

  OnDemand* on_demand() override { return this; }
  TimeDependent* time_dependent() override { return this; }

  size_t echo(size_t most, Emitter& out) override {
    if (fresh_ == 0 || decisions_.replaying(place() + 1)) return 0;
    size_t given = 0;
    while (given < most && (give_next(out) || repeat_on_credit(out))) {
      ++given;
      plan_.gave_extra();
    }
    note(given);
    return given;
  }

  bool adapts() const override { return plans_; }
  void observe(const Pace& pace) override {
    if (decisions_.replaying(place() + 1)) return;
    plan_.observe(pace, all_fresh_, all_given_);
  }

  void begin_run() override { decisions_.begin_run(); }
  void forget_before(uint64_t epoch) override { decisions_.forget_before(epoch); }
  Json save_decisions(uint64_t epoch) const override { return decisions_.save(epoch); }
  void load_decisions(uint64_t epoch, const Json& saved) override { decisions_.load(epoch, saved); }

 protected:
  uint32_t most_uses() const override { return most_uses_of(uses_.most()); }

 private:
  static uint64_t band(const Options& options) {
    return static_cast<uint64_t>(options.number("factor") *
                                 static_cast<double>(options.integer("buffer")));
  }

  void start_pass(uint64_t pass) override {
    BufferedEcho::start_pass(pass);
    fresh_ = 0;  // decisions count by pass
    uses_.reset();
    credit_.reset();
    plan_.start_pass();
    echoes_ = 0;
    details_ = nullptr;
  }

  // The number of the newest fresh item, for decisions. Samples are numbered in the same way.
  uint64_t place() const { return pass_ << kPassShift | fresh_; }

  // A sample may be used on credit as often as planned.
  static uint32_t most_uses_of(uint32_t planned) { return std::min(2 * planned, kMostUses); }

  // The fresh copy is the first use.
  void hold(const Item& item) {
    if (buffer_.size() == capacity_) credit_.save(buffer_.evict(rng_));
    const uint32_t uses = uses_.next();
    buffer_.add(item, {credit_.repaid(uses), most_uses_of(uses), 1},
                static_cast<int64_t>(item.size_bytes()), rng_);
  }

  bool repeat_on_credit(Emitter& out) {
    Item item;
    if (!credit_.may_spend() || !buffer_.draw_spent(item, rng_)) return false;
    credit_.spend();
    give(std::move(item), out);
    return true;
  }

  void repeat_again(Emitter& out) {
    const uint64_t due = decisions_.due(place()).value_or(0);
    for (uint64_t given = 0; given < due; ++given)
      if (!give_next(out) && !repeat_on_credit(out))
        fail(Code::corrupt_data, "echo: ", decisions_.source(), ": after ", fresh_,
             " fresh samples the saved run gave ", due, " echoes, but only ", given,
             " can be given now: the decisions belong to a node with another 'factor' or "
             "'buffer' or to other data, or they are damaged");
    note(due);
  }

  void repeat_as_planned(Emitter& out) {
    const uint32_t due = plan_.echoes_after_fresh();
    size_t given = 0;
    while (given < due && give_next(out)) ++given;
    if (std::abs(plan_.factor() - told_factor_) > 0.01 * told_factor_) {
      told_factor_ = plan_.factor();
      details_ = {{"factor", told_factor_}};
    }
    note(given);
  }

  void note(uint64_t more) {
    if (more == 0 && details_.is_null()) return;
    decisions_.note(place(), echoes_ += more, details_);
  }

  const bool plans_;
  Decisions decisions_;
  CopyCounter uses_;
  Credit credit_;
  EchoPlan plan_;
  uint64_t echoes_ = 0;     // since the newest fresh item
  double told_factor_ = 1;  // as last logged
  Json details_;            // for the log: of the decision after the newest fresh item
};

// Holds nothing. Emits the same number of copies of each item, so that a batch whose size is a
// multiple of that number has all copies of an item or none.
class TogetherEcho final : public Echo {
 public:
  TogetherEcho(const Options& options, const StageContext& context)
      : Echo(options, context), copies_(static_cast<uint32_t>(options.number("factor"))) {
    if (options.number("factor") != copies_)
      fail(Code::invalid_argument, "echo: the mode 'together' takes a whole factor, not ",
           Json(options.number("factor")).dump(),
           ": it gives each sample as many copies as any other");
  }

  void process(Item&& item, Emitter& out) override {
    const Item held = received(std::move(item));
    for (uint32_t used = 0; used < copies_; ++used) {
      Item copy = held;
      make_copy(copy, used);
      give(std::move(copy), out);
    }
  }

  double holds_bytes(double item_bytes) const override { return item_bytes; }

 protected:
  uint32_t most_uses() const override { return copies_; }

 private:
  const uint32_t copies_;
};

AnyStage make(const Options& options, const StageContext& context) {
  const std::string mode = options.string("mode");
  const bool decides = mode == "auto" || mode == "on_demand";
  if (!decides && !(options.string("log") + options.string("replay")).empty())
    fail(Code::invalid_argument,
         "echo: 'log' and 'replay' belong to the modes auto and on_demand; ", mode,
         " decides nothing");
  if (mode == "fixed") return std::make_unique<FixedEcho>(options, context);
  if (mode == "together") return std::make_unique<TogetherEcho>(options, context);
  return std::make_unique<AdaptiveEcho>(options, context, /*plans=*/mode == "auto");
}

}  // namespace
}  // namespace etr::echo

namespace etr::pipeline {

extern const StageSpec echo_stage;
const StageSpec echo_stage{"echo",
                           "repeats items: always, or only when the consumer would otherwise wait",
                           StageKind::serial, echo::kOptions, echo::make};

}  // namespace etr::pipeline
