#include "pipeline/replay.h"

namespace etr::pipeline {
namespace {

class Replay {
 public:
  explicit Replay(ReplayInput input) : input_(std::move(input)) {
    for (auto& [position, stage] : input_.stages) {
      stage->start_epoch(input_.epoch);
      stages_.push_back(stage.get());
    }
  }

  // Feeds tokens until the outputs are reached; returns the ordinals fed and still alive then.
  void run() {
    bool epoch_ends = false;
    for (uint64_t pass = 0; !done_ && !epoch_ends; ++pass) {
      Demand demand = Demand::more;
      const bool ended = pass < input_.pass_lengths.size();
      for (uint64_t index = 0; !done_ && demand == Demand::more; ++index) {
        if (ended && index >= input_.pass_lengths[pass]) break;
        feed(ordinal_of(pass, index));
        demand = demand_of(stages_, input_.epoch, pass);
      }
      epoch_ends = demand == Demand::end_epoch || pass + 1 == input_.passes;
      if (!done_) finish_pass(epoch_ends);
    }
  }

  // Feeds whole passes; returns the outputs, or nothing where there is no end in sight.
  std::optional<uint64_t> count(uint64_t pass_length) {
    uint64_t fed = 0;
    input_.outputs = UINT64_MAX;
    for (uint64_t pass = 0;; ++pass) {
      Demand demand = demand_of(stages_, input_.epoch, pass);
      for (uint64_t index = 0; index < pass_length && demand == Demand::more; ++index) {
        if (++fed > kCountable) return std::nullopt;
        Item item;
        item.ordinal = ordinal_of(pass, index);
        item.ghost = true;
        receive(0, std::move(item));
        demand = demand_of(stages_, input_.epoch, pass);
      }
      const bool epoch_ends = demand == Demand::end_epoch || pass + 1 == input_.passes;
      finish_pass(epoch_ends);
      if (epoch_ends) return outputs_;
    }
  }

  bool is_ghost(uint64_t ordinal) const {
    const uint64_t pass = ordinal >> kPassShift;
    if (pass >= fed_.size()) return false;
    const uint64_t index = (ordinal & ((uint64_t{1} << kPassShift) - 1)) / input_.world;
    return index < fed_[pass].count && !alive_[fed_[pass].begin + index];
  }

 private:
  // Hands a stage's emissions to what follows it.
  class Chain final : public Emitter {
   public:
    Chain(Replay& replay, size_t next) : replay_(replay), next_(next) {}
    void emit(Item&& item) override { replay_.receive(next_, std::move(item)); }

   private:
    Replay& replay_;
    size_t next_;
  };

  uint64_t ordinal_of(uint64_t pass, uint64_t index) const {
    return pass << kPassShift | (index * input_.world + input_.rank);
  }

  // Says when nothing holds its sample any more.
  struct Token {
    Token(Replay& of, size_t its_number) : replay(of), number(its_number) {
      replay.alive_.push_back(true);
    }
    ~Token() {
      if (!replay.collected_) replay.alive_[number] = false;
    }
    Replay& replay;
    const size_t number;  // of the sample, among all that were fed
  };

  void feed(uint64_t ordinal) {
    if (const uint64_t pass = ordinal >> kPassShift; pass >= fed_.size())
      fed_.resize(pass + 1, {alive_.size(), 0});
    ++fed_.back().count;
    const auto token = std::make_shared<Token>(*this, alive_.size());
    if (input_.drops.contains({0, ordinal})) return;
    Item item;
    item.ordinal = ordinal;
    item.ghost = true;
    item.token = token;
    receive(0, std::move(item));
  }

  // An item between serial stages next - 1 and next: the maps there come first.
  void receive(size_t next, Item&& item) {
    if (done_) {  // past the position: the item is still needed
      held_.push_back(std::move(item));
      return;
    }
    const uint64_t from = next == 0 ? 0 : input_.stages[next - 1].first;
    const uint64_t to = next < input_.stages.size() ? input_.stages[next].first : UINT64_MAX;
    for (const uint64_t map : input_.map_positions)
      if (map > from && map < to && input_.drops.contains({map, item.ordinal})) return;
    if (next == input_.stages.size()) return output(std::move(item));
    if (input_.drops.contains({to, item.ordinal})) return;
    Chain chain(*this, next + 1);
    input_.stages[next].second->process(std::move(item), chain);
  }

  void finish_pass(bool epoch_ends) {
    for (size_t i = 0; i < stages_.size() && !done_; ++i) {
      Chain chain(*this, i + 1);
      stages_[i]->finish_pass(chain);
      if (!stages_[i]->forwards_end(epoch_ends)) return;
    }
  }

  void output(Item&&) {
    if (++outputs_ < input_.outputs) return;
    done_ = true;
  }

 public:
  // After run(): what stages and `held_` still refer to stays alive.
  void collect() {
    collected_ = true;
    stages_.clear();
    input_.stages.clear();
    held_.clear();
  }

 private:
  ReplayInput input_;
  std::vector<SerialStage*> stages_;
  uint64_t outputs_ = 0;
  bool done_ = false;
  std::vector<Item> held_;
  struct Pass {
    size_t begin, count;  // number of its first sample; its samples
  };
  std::vector<Pass> fed_;
  std::vector<bool> alive_;  // by number
  bool collected_ = false;
};

}  // namespace

std::optional<uint64_t> count_outputs(ReplayInput input, uint64_t pass_length) {
  if (pass_length == 0) return 0;
  return Replay(std::move(input)).count(pass_length);
}

std::function<bool(uint64_t)> plan_ghosts(ReplayInput input) {
  if (input.outputs == 0) return [](uint64_t) { return false; };
  auto replay = std::make_shared<Replay>(std::move(input));
  replay->run();
  replay->collect();
  return [replay](uint64_t ordinal) { return replay->is_ghost(ordinal); };
}

}  // namespace etr::pipeline
