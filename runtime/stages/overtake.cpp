// Lets finished samples overtake slower ones. Records which did, so that the order can be
// reproduced.
//
// The maps before it hand over samples as they finish, up to `window` places early (LooseOrder).
// While decisions are repeated, the maps hand over samples in order, and this stage holds them
// until it is their turn. Only samples that overtake need a decision: in both cases, every other
// sample is the first of those that have not left yet.
#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/packed.h"
#include "core/text.h"
#include "pipeline/decision_log.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"window", OptionType::integer, "64", "largest number of samples that may overtake a slow one",
     1, 65536, "samples"},
    {"log", OptionType::string, "\"\"",
     "file to which each sample that overtook others is written as a line of JSON", 0, 0, "path"},
    {"replay", OptionType::string, "\"\"",
     "file written by 'log', whose order is repeated, which gives the same run"},
};

constexpr const char* kName = "overtake";

// Key: number of samples that have left in the epoch. Value: ordinal of the next sample.
using Made = pipeline::EpochDecisions;

constexpr uint64_t zigzag(int64_t step) {
  return static_cast<uint64_t>(step) << 1 ^ static_cast<uint64_t>(step >> 63);
}
constexpr int64_t unzigzag(uint64_t coded) {
  return static_cast<int64_t>(coded >> 1) ^ -static_cast<int64_t>(coded & 1);
}

class Overtake final : public SerialStage, private TimeDependent, private Overtaking {
 public:
  Overtake(const Options& options, const StageContext&)
      : window_(static_cast<uint64_t>(options.integer("window"))),
        replay_path_(options.string("replay")),
        log_(options.string("log"), kName, "sample") {}

  TimeDependent* time_dependent() override { return this; }
  const Overtaking* overtaking() const override { return this; }

  uint64_t window() const override { return window_; }
  bool lets_overtake(uint64_t epoch) const override {
    std::scoped_lock lock(mutex_);
    const auto due = due_.find(epoch);
    return replay_path_.empty() && (due == due_.end() || due->second.empty());
  }

  void start_epoch(uint64_t epoch) override {
    std::scoped_lock lock(mutex_);
    if (!replay_path_.empty() && !std::exchange(replay_read_, true))
      read_decision_log(replay_path_, kName, "sample", /*first_place=*/0, due_);
    epoch_ = epoch;
    made_[epoch] = {};
    held_.clear();
    left_ = 0;
  }

  void begin_run() override {
    std::scoped_lock lock(mutex_);
    log_.begin(epoch_, restored_ ? std::optional(made_[epoch_]) : std::nullopt);
  }

  void process(Item&& item, Emitter& out) override {
    if (item.overtakes) return give_early(std::move(item), out);
    held_.push_back(std::move(item));
    if (held_.size() > window_ + 1)
      fail(Code::corrupt_data, "overtake: ", replay_path_.empty() ? "the position" : replay_path_,
           " lets sample ", due_now().value_or(0), " overtake more than ", window_,
           " others, or names one that is not there: it belongs to another 'window', or to other "
           "data");
    while (!held_.empty()) {
      auto next = held_.begin();
      if (const auto due = due_now()) {
        next = std::ranges::find(held_, *due, &Item::ordinal);
        if (next == held_.end()) return;  // not here yet
        repeat(*due);
      }
      give(next, out);
    }
  }

  // A sample named by a decision may not come, if later stages need fewer samples than in the
  // original run.
  void finish_pass(Emitter& out) override {
    if (!held_.empty() && !replay_path_.empty())
      log_line(LogLevel::warning,
               cat("overtake: '", replay_path_, "' names sample ", due_now().value_or(0),
                   ", which does not come in this pass; the ", counted(held_.size(), "sample"),
                   " that wait for it go on in their order"));
    while (!held_.empty()) give(held_.begin(), out);
    std::scoped_lock lock(mutex_);
    if (const auto due = due_.find(epoch_); due != due_.end())
      due->second.erase(due->second.begin(), due->second.lower_bound(left_));
  }

  double holds_bytes(double item_bytes) const override {
    return item_bytes * static_cast<double>(window_);
  }

  Json save_decisions(uint64_t epoch) const override {
    std::scoped_lock lock(mutex_);
    std::vector<uint64_t> numbers;
    if (const auto made = made_.find(epoch); made != made_.end()) {
      uint64_t last_after = 0, last = 0;
      for (const auto& [after, ordinal] : made->second) {
        numbers.push_back(after - std::exchange(last_after, after));
        numbers.push_back(zigzag(static_cast<int64_t>(ordinal - std::exchange(last, ordinal))));
      }
    }
    return pack_numbers(numbers);
  }

  void load_decisions(uint64_t epoch, const Json& saved) override {
    Made made = unpack_decisions(saved, kName);
    uint64_t ordinal = 0;
    for (auto& [after, step] : made) step = ordinal += static_cast<uint64_t>(unzigzag(step));
    std::scoped_lock lock(mutex_);
    restored_ = true;
    if (replay_path_.empty()) due_[epoch] = std::move(made);
  }

  void forget_before(uint64_t epoch) override {
    std::scoped_lock lock(mutex_);
    made_.erase(made_.begin(), made_.lower_bound(epoch));
    due_.erase(due_.begin(), due_.lower_bound(epoch));
  }

 private:
  void give(std::deque<Item>::iterator at, Emitter& out) {
    Item item = std::move(*at);
    held_.erase(at);
    ++left_;
    out.emit(std::move(item));
  }

  void give_early(Item&& item, Emitter& out) {
    note(item.ordinal);
    item.overtakes = false;
    ++left_;
    out.emit(std::move(item));
  }

  // Returns the ordinal of the sample that must leave now, if that is not the first one held.
  std::optional<uint64_t> due_now() const {
    std::scoped_lock lock(mutex_);
    const auto epoch = due_.find(epoch_);
    if (epoch == due_.end()) return std::nullopt;
    const auto due = epoch->second.find(left_);
    return due == epoch->second.end() ? std::nullopt : std::optional(due->second);
  }

  void note(uint64_t ordinal) {
    std::scoped_lock lock(mutex_);
    made_[epoch_][left_] = ordinal;
    log_.note(epoch_, left_, ordinal, Json());
    log_.complete();  // no later decision replaces this one
  }

  void repeat(uint64_t ordinal) {
    note(ordinal);
    std::scoped_lock lock(mutex_);
    Made& due = due_[epoch_];
    due.erase(due.begin(), due.upper_bound(left_));
  }

  const uint64_t window_;
  const std::string replay_path_;
  std::deque<Item> held_;     // while decisions are repeated, in the source's order
  uint64_t left_ = 0;         // in this epoch
  mutable std::mutex mutex_;  // a position is saved while the stage works
  uint64_t epoch_ = 0;
  DecisionsByEpoch made_, due_;
  bool replay_read_ = false, restored_ = false;
  DecisionLog log_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec overtake_stage;
const StageSpec overtake_stage{stages::kName, "lets samples that are ready overtake slower ones",
                               StageKind::serial, stages::kOptions, make_stage<stages::Overtake>};

}  // namespace etr::pipeline
