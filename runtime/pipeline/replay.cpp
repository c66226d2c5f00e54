#include "pipeline/replay.h"

#include <oneapi/tbb/scalable_allocator.h>

#include <algorithm>
#include <set>

#include "core/error.h"

namespace etr::pipeline {
namespace {

[[noreturn]] void cannot_be_reached() {
  fail(Code::corrupt_data,
       "the saved position cannot be reached: the epoch ends before so many items are delivered");
}

class Replay {
 public:
  // `tokens`: track what is still held at the end.
  Replay(const ReplayInput& input, bool tokens) : input_(input), tokens_(tokens) {
    for (const auto& [position, stage] : input_.stages) stages_.push_back(stage);
    rules_ = PassRules(stages_);
  }

  // Feeds tokens until the outputs are reached or `samples` are fed. Returns whether it stopped for
  // the latter. `pass_length`: of passes of which the input does not know that they ended.
  bool run(uint64_t samples = UINT64_MAX, std::optional<uint64_t> pass_length = {}) {
    bool epoch_ends = false;
    for (pass_ = first_pass(); !done_ && !epoch_ends; ++pass_) {
      Demand demand = Demand::more;
      const std::optional<uint64_t> length =
          pass_ < input_.pass_lengths.size() ? input_.pass_lengths[pass_] : pass_length;
      for (index_ = 0; !done_ && demand == Demand::more; ++index_) {
        if (length && index_ >= *length) break;
        if (fed_samples_ == samples) return true;
        check_way(length.has_value());
        feed(ordinal_of(pass_, index_));
        demand = rules_.demand(input_.epoch, pass_);
      }
      epoch_ends = demand == Demand::end_epoch || pass_ + 1 == input_.passes;
      if (!done_) finish_pass(epoch_ends);
    }
    return false;
  }

  bool arrived() const { return done_; }
  uint64_t outputs() const { return outputs_; }
  ReplayPlace place() const { return {pass_, index_, outputs_}; }

  // The samples that the stages and `held_` still refer to after run(). Nothing may be fed
  // afterwards.
  struct Alive {
    struct Pass {
      size_t begin, count;  // number of its first sample, and its length
    };
    std::vector<Pass> passes;
    std::vector<bool> samples;  // by number
    uint64_t world;
    std::shared_ptr<const DoneSamples> done;

    bool is_ghost(uint64_t ordinal) const {
      const uint64_t pass = ordinal >> kPassShift;
      if (pass >= passes.size()) return false;
      uint64_t number = ordinal & ((uint64_t{1} << kPassShift) - 1);
      if (done) number = done->left_before(pass, number);
      const uint64_t index = number / world;
      return index < passes[pass].count && !samples[passes[pass].begin + index];
    }
    // The number of samples fed before the first that is alive. Never includes the last one, after
    // which a pass may end.
    uint64_t unneeded() const {
      const auto first = std::find(samples.begin(), samples.end(), true);
      const auto before = static_cast<uint64_t>(first - samples.begin());
      return samples.empty() ? 0 : std::min<uint64_t>(before, samples.size() - 1);
    }
  };
  Alive alive() const { return {passes_, alive_, input_.world, input_.done}; }

  // Adds the samples that were fed and are not alive, and for those alive the delivered copies.
  void add_to(Delivered& delivered) const {
    const Alive still = alive();
    const bool repeats = input_.repeats != nullptr;
    std::set<uint64_t> had;  // held samples that count as done, as no stage can recognise copies
    for (const SampleCopy& copy : copies_) {
      if (still.is_ghost(copy.first)) continue;
      if (repeats)
        delivered.done.add_copy(copy);
      else if (copy.second == 0)
        had.insert(copy.first);
    }
    uint64_t first_open = first_pass();
    for (uint64_t pass = first_pass(); pass < passes_.size(); ++pass) {
      std::vector<uint64_t> numbers;
      const auto [begin, count] = passes_[pass];
      for (uint64_t index = 0; index < count; ++index)
        if (const uint64_t ordinal = ordinal_of(pass, index);
            !alive_[begin + index] || had.count(ordinal))
          numbers.push_back(ordinal - (pass << kPassShift));
      const auto& ended = input_.pass_lengths;
      if (first_open == pass && pass < ended.size() && numbers.size() == ended[pass]) ++first_open;
      if (!numbers.empty()) delivered.done.add(pass, std::move(numbers));
    }
    delivered.first_open = std::min(delivered.first_open, first_open);
  }

 private:
  // Passes a stage's output to the next.
  class Chain final : public Emitter {
   public:
    Chain(Replay& replay, size_t next) : replay_(replay), next_(next) {}
    void emit(Item&& item) override { replay_.receive(next_, std::move(item)); }

   private:
    Replay& replay_;
    size_t next_;
  };

  // Positions come from files: the replay to a wrong one might never end.
  void check_way(bool ended) const {
    if (input_.interrupt && input_.interrupt->stopped())
      fail(Code::cancelled, "the pipeline was cancelled while an epoch was replayed");
    if (!ended && input_.pass_length && index_ > *input_.pass_length) cannot_be_reached();
  }

  uint64_t first_pass() const { return input_.done ? input_.done->first_pass() : 0; }

  uint64_t ordinal_of(uint64_t pass, uint64_t index) const {
    const uint64_t nth = index * input_.world + input_.rank;
    return pass << kPassShift | (input_.done ? input_.done->left(pass, nth) : nth);
  }

  // Records when nothing holds its sample any more.
  struct Token {
    Token(std::vector<bool>& of, size_t its_number) : alive(of), number(its_number) {
      alive.push_back(true);
    }
    ~Token() { alive[number] = false; }
    std::vector<bool>& alive;
    const size_t number;  // of the sample, among all that were fed
  };

  void feed(uint64_t ordinal) {
    Item item;
    if (tokens_) {
      if (const uint64_t pass = ordinal >> kPassShift; pass >= passes_.size())
        passes_.resize(pass + 1, {fed_samples_, 0});
      ++passes_.back().count;
      item.token =
          std::allocate_shared<Token>(tbb::scalable_allocator<Token>(), alive_, fed_samples_);
    }
    ++fed_samples_;
    item.ordinal = ordinal;
    if (dropped(0, item)) return;
    item.ghost = true;
    receive(0, std::move(item));
  }

  bool dropped(uint64_t stage, const Item& item) const {
    return input_.drops && input_.drops->contains(stage, item);
  }

  // Handles an item between serial stages next - 1 and next: first the maps there, then stage
  // `next`.
  void receive(size_t next, Item&& item) {
    if (done_) {  // past the position, so the item is still needed
      held_.push_back(std::move(item));
      return;
    }
    if (next > 0 && input_.repeats == stages_[next - 1] && input_.done &&
        input_.done->copies().count({item.ordinal, item.replica}))
      return;
    const uint64_t from = next == 0 ? 0 : input_.stages[next - 1].first;
    const uint64_t to = next < input_.stages.size() ? input_.stages[next].first : UINT64_MAX;
    for (const uint64_t map : input_.map_positions)
      if (map > from && map < to && dropped(map, item)) return;
    if (next == input_.stages.size()) return output(std::move(item));
    if (dropped(to, item)) return;
    Chain chain(*this, next + 1);
    stages_[next]->process(std::move(item), chain);
  }

  void finish_pass(bool epoch_ends) {
    for (size_t i = 0; i < stages_.size() && !done_; ++i) {
      Chain chain(*this, i + 1);
      stages_[i]->finish_pass(chain);
      PassControl* const control = stages_[i]->pass_control();
      if (control && !control->forwards_end(epoch_ends)) return;
    }
  }

  void output(Item&& item) {
    done_ = ++outputs_ == input_.outputs;
    if (!tokens_) return;
    if (item.batch.size == 0)
      copies_.emplace_back(item.ordinal, item.replica);
    else if (item.replica == 0 && item.copies)
      copies_.insert(copies_.end(), item.copies->begin(), item.copies->end());
  }

  const ReplayInput& input_;
  const bool tokens_;
  std::vector<SerialStage*> stages_;
  PassRules rules_;
  uint64_t pass_ = 0, index_ = 0, fed_samples_ = 0, outputs_ = 0;
  bool done_ = false;
  std::vector<Alive::Pass> passes_;
  std::vector<bool> alive_;
  std::vector<SampleCopy> copies_;  // delivered ones, with tokens
  std::vector<Item> held_;          // with tokens, so declared after alive_
};

}  // namespace

bool never_ends(const ReplayInput& input) {
  bool endless = false;
  for (const auto& [position, stage] : input.stages) {
    const uint64_t passes = stage->traits().passes;
    if (endless && passes == 1 && stage->pass_control()) return false;
    endless = endless || passes == 0;
  }
  return endless;
}

std::optional<uint64_t> count_outputs(const ReplayInput& input, uint64_t pass_length) {
  if (pass_length == 0) return 0;
  Replay replay(input, /*tokens=*/false);
  if (replay.run(kCountable, pass_length)) return std::nullopt;
  return replay.outputs();
}

ReplayPlan plan_replay(const ReplayInput& input, std::vector<AnyStage> copies) {
  if (input.outputs == 0) return {};
  Replay replay(input, /*tokens=*/true);
  // Stages hold tokens, which point into the replay, so they must be destroyed first, also on
  // errors.
  const auto stages = std::move(copies);
  replay.run();
  if (!replay.arrived()) cannot_be_reached();
  auto alive = std::make_shared<Replay::Alive>(replay.alive());
  return {[alive](uint64_t ordinal) { return alive->is_ghost(ordinal); }, alive->unneeded()};
}

void add_delivered(const ReplayInput& input, std::vector<AnyStage> copies, Delivered& delivered) {
  if (input.outputs == 0) {
    delivered.first_open = 0;
    return;
  }
  Replay replay(input, /*tokens=*/true);
  const auto stages = std::move(copies);  // destroyed before the replay, as above
  replay.run();
  if (!replay.arrived()) cannot_be_reached();
  replay.add_to(delivered);
}

ReplayPlace walk(const ReplayInput& input, uint64_t samples) {
  Replay replay(input, /*tokens=*/false);
  if (!replay.run(samples)) cannot_be_reached();
  return replay.place();
}

}  // namespace etr::pipeline
