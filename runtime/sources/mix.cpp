// Mixes the samples of several sources by weight. After any number of samples, each source has had
// its share to within one sample for two sources, and to within one per source for more.
#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "sources/branch.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    kSourcesOption,
    {"weights", OptionType::numbers, "[]",
     "relative number of samples from each source; empty: equal", 1e-9, 1e9},
    {"stop_when", OptionType::string, "\"all\"",
     "when a pass ends: all: when every source has ended; first: when the first source ends; "
     "again: when every source has ended once, while those that end earlier are read again",
     0, 0, "", "all|first|again", "ends"},
};

class Mix final : public Source {
 public:
  Mix(const Options& options, const StageContext& context)
      : branches_(make_branches(options, "mix", context)),
        weights_(options.numbers("weights")),
        stop_when_(options.string("stop_when")) {
    if (weights_.empty()) weights_.assign(branches_.size(), 1);
    if (weights_.size() != branches_.size())
      fail(Code::invalid_argument, "stage 'mix': ", counted(weights_.size(), "weight"), " for ",
           counted(branches_.size(), "source"));
  }

  Json data() override { return data_of(branches_); }
  double holds_bytes(double sample_bytes) override {
    return holds_bytes_of(branches_, sample_bytes);
  }

  std::optional<uint64_t> samples() override {
    if (stop_when_ != "all") return std::nullopt;
    uint64_t total = 0;
    for (Branch& branch : branches_) {
      const auto n = branch.samples();
      if (!n) return std::nullopt;
      total += *n;
    }
    return total;
  }

  void start_pass(uint64_t epoch, uint64_t pass) override {
    epoch_ = epoch;
    pass_ = pass << 12;
    states_.assign(branches_.size(), {});
    for (Branch& branch : branches_) branch.start_pass(epoch, pass_);
  }

  bool next(Item& item) override {
    return take([&](Branch& branch) { return branch.next(item); });
  }
  bool skip() override {
    return take([&](Branch& branch) { return branch.skip(); });
  }

  bool numbers_records() const override {
    return std::all_of(branches_.begin(), branches_.end(),
                       [](const Branch& b) { return b.numbers_records(); });
  }
  std::optional<uint64_t> upcoming() override {
    const size_t i = next_in_turn();
    if (i == branches_.size()) return std::nullopt;
    const auto record = branches_[i].upcoming();
    return record ? std::optional(name(i, *record)) : std::nullopt;
  }
  uint64_t record() const override { return name(given_, branches_[given_].record()); }
  Json changed() override {
    Json out = Json::array();
    for (Branch& branch : branches_) out.push_back(branch.changed());
    return out;
  }
  uint64_t stamp(uint64_t record) override {
    return branches_[record % branches_.size()].stamp(record / branches_.size());
  }

 private:
  struct State {
    double credit = 0;    // samples that it is owed
    uint64_t again = 0;   // number of restarts
    bool ended = false;   // has ended at least once
    bool closed = false;  // yields no more in this pass
  };

  // A unique number, even if a branch is a mixture itself.
  uint64_t name(size_t branch, uint64_t record) const { return record * branches_.size() + branch; }

  // The source that is owed most (smooth weighted round robin).
  size_t next_in_turn() const {
    size_t best = branches_.size();
    for (size_t i = 0; i < branches_.size(); ++i)
      if (!states_[i].closed && (best == branches_.size() || owed(i) > owed(best))) best = i;
    return best;
  }
  double owed(size_t i) const { return states_[i].credit + weights_[i]; }

  size_t choose() {
    const size_t best = next_in_turn();
    if (best == branches_.size()) return best;
    for (size_t i = 0; i < branches_.size(); ++i) {
      if (states_[i].closed) continue;
      states_[i].credit += weights_[i];
      states_[best].credit -= weights_[i];
    }
    return given_ = best;
  }

  template <typename Take>
  bool take(Take&& from) {
    while (true) {
      const size_t i = choose();
      if (i == branches_.size()) return false;
      if (from(branches_[i])) return true;
      State& state = states_[i];
      state.ended = true;
      if (stop_when_ == "first") return false;
      const bool all_ended =
          std::all_of(states_.begin(), states_.end(), [](const State& s) { return s.ended; });
      if (stop_when_ == "again" && all_ended) return false;
      if (stop_when_ == "all") {
        state.closed = true;
        continue;
      }
      branches_[i].start_pass(epoch_, pass_ + ++state.again);
      if (from(branches_[i])) return true;
      state.closed = true;  // it is empty
    }
  }

  std::vector<Branch> branches_;
  std::vector<double> weights_;
  const std::string stop_when_;
  std::vector<State> states_;
  size_t given_ = 0;  // the source of the last sample
  uint64_t epoch_ = 0;
  uint64_t pass_ = 0;  // of the sources; leaves room below for their restarts
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec mix_stage;
const StageSpec mix_stage{"mix", "mixes samples of several sources by weight", StageKind::source,
                          sources::kOptions, make_stage<sources::Mix>};

}  // namespace etr::pipeline
