// The echo node: repeats what came from upstream (Choi et al. 2019, arXiv 1907.05550).
//
//   fixed      every item is emitted `factor` times, mixed through a shuffle buffer of copies.
//   on_demand  every fresh item is emitted once; older ones are repeated, up to `factor` uses each,
//              only while the consumer would otherwise wait.
//
// Copies share their tensors. Each is a replica with a number of its own, so that augmentation
// behind this node draws anew for each.
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/json.h"
#include "echo/echo_policy.h"
#include "pipeline/shuffle_buffer.h"

namespace etr::echo {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"factor", OptionType::number, nullptr,
     "times each item is used, a real number: 2.5 is 2 or 3; on_demand: at most", 1, 1e6},
    {"mode", OptionType::string, "\"fixed\"", "repeat always, or only when the consumer would wait",
     0, 0, "", "fixed|on_demand"},
    {"buffer", OptionType::integer, "1000",
     "fixed: copies held for shuffling, 1 keeps the order; on_demand: samples that may be repeated",
     1, 1e8, "samples"},
    {"buffer_bytes", OptionType::integer, "1073741824",
     "bytes that the held samples may take; more is an error", 1, 1e13, "bytes"},
};

class FixedEcho final : public SerialStage {
 public:
  FixedEcho(const Options& options, const StageContext& context)
      : copies_(options.number("factor")),
        buffer_(static_cast<size_t>(options.integer("buffer")), options.integer("buffer_bytes"),
                "echo"),
        context_(context) {}

  void start_epoch(uint64_t epoch) override {
    copies_.reset();
    buffer_.reseed(context_, epoch);
  }

  void process(Item&& item, Emitter& out) override {
    const uint32_t copies = copies_.next();
    for (uint32_t i = 0; i < copies; ++i) {
      Item copy = item;
      // Echo nodes may follow each other: replicas of replicas keep distinct numbers.
      copy.replica = item.replica * kReplicaStride + i;
      buffer_.add(std::move(copy), out);
    }
  }

  void finish_pass(Emitter& out) override { buffer_.drain(out); }

 private:
  static constexpr uint32_t kReplicaStride = 1024;

  CopyCounter copies_;
  ShuffleBuffer buffer_;
  const StageContext context_;
};

class OnDemandEcho final : public SerialStage {
 public:
  OnDemandEcho(const Options& options, const StageContext&)
      : buffer_(static_cast<size_t>(options.integer("buffer")), options.integer("buffer_bytes"),
                options.number("factor")) {}

  void start_epoch(uint64_t epoch) override {
    std::scoped_lock lock(mutex_);
    epoch_ = epoch;
    buffer_.clear();
    logs_[epoch] = {};
  }

  void process(Item&& item, Emitter& out) override {
    size_t to_repeat = 0;
    {
      std::scoped_lock lock(mutex_);
      const size_t index = logs_[epoch_].echoes().size();
      const auto replayed = replay_.find(epoch_);
      if (replayed != replay_.end() && index < replayed->second.size())
        to_repeat = replayed->second[index];
      logs_[epoch_].add_fresh();
      buffer_.add(item);
    }
    out.emit(std::move(item));
    while (to_repeat-- > 0)
      if (!draw(out)) fail(Code::internal, "an echo of the saved run cannot be repeated");
  }

  bool echoes_on_demand() const override { return true; }

  bool echo_one(Emitter& out) override {
    {
      std::scoped_lock lock(mutex_);
      const auto replayed = replay_.find(epoch_);
      if (replayed != replay_.end() && logs_[epoch_].echoes().size() < replayed->second.size())
        return false;  // the saved run's decisions come first
    }
    return draw(out);
  }

  Json save_decisions(uint64_t epoch) const override {
    std::scoped_lock lock(mutex_);
    const auto it = logs_.find(epoch);
    return it == logs_.end() ? Json::array() : Json(it->second.echoes());
  }

  void forget_before(uint64_t epoch) override {
    std::scoped_lock lock(mutex_);
    logs_.erase(logs_.begin(), logs_.lower_bound(epoch));
  }

  void load_decisions(uint64_t epoch, const Json& decisions) override {
    std::scoped_lock lock(mutex_);
    replay_[epoch] = decisions.get<std::vector<uint32_t>>();
  }

 private:
  bool draw(Emitter& out) {
    Item item;
    {
      std::scoped_lock lock(mutex_);
      if (!logs_[epoch_].started() || !buffer_.draw(item)) return false;
      logs_[epoch_].add_echo();
    }
    out.emit(std::move(item));
    return true;
  }

  mutable std::mutex mutex_;  // the log is read by save()
  ReuseBuffer buffer_;
  uint64_t epoch_ = 0;
  std::map<uint64_t, DecisionLog> logs_;
  std::map<uint64_t, std::vector<uint32_t>> replay_;  // by epoch: echoes after each fresh item
};

std::unique_ptr<Stage> make(const Options& options, const StageContext& context) {
  if (options.string("mode") == "on_demand")
    return std::make_unique<OnDemandEcho>(options, context);
  return std::make_unique<FixedEcho>(options, context);
}

}  // namespace
}  // namespace etr::echo

namespace etr::pipeline {

extern const StageSpec echo_stage;
const StageSpec echo_stage{"echo", "repeats items, always or when the consumer would wait",
                           StageKind::serial, echo::kOptions, echo::make};

}  // namespace etr::pipeline
