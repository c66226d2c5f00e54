#include "echo/decisions.h"

#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/packed.h"
#include "pipeline/item.h"

namespace etr::echo {
namespace {

constexpr const char* kName = "echo";

}  // namespace

void Decisions::Packed::note(uint64_t after, uint64_t echoes) {
  const auto put = [this](uint64_t number) {
    for (; number >= 128; number >>= 7) bytes.push_back(static_cast<uint8_t>(number | 128));
    bytes.push_back(static_cast<uint8_t>(number));
  };
  if (newest && newest->first != after) {
    put(newest->first - std::exchange(before, newest->first));
    put(newest->second);
  }
  newest = {after, echoes};
}

std::vector<uint64_t> Decisions::Packed::numbers() const {
  std::vector<uint64_t> out;
  uint64_t number = 0;
  unsigned shift = 0;
  for (const uint8_t byte : bytes) {
    number |= static_cast<uint64_t>(byte & 127) << shift;
    shift += 7;
    if (byte & 128) continue;
    out.push_back(std::exchange(number, 0));
    shift = 0;
  }
  if (newest) out.insert(out.end(), {newest->first - before, newest->second});
  const uint64_t last = newest ? newest->first : 0;
  if (reached > last) out.insert(out.end(), {reached - last, 0});
  return out;
}

void Decisions::start_epoch(uint64_t epoch) {
  std::scoped_lock lock(mutex_);
  if (!replay_path_.empty() && !std::exchange(replay_read_, true))
    pipeline::read_decision_log(replay_path_, kName, "echoes", /*first_place=*/1, replay_);
  epoch_ = epoch;
  made_[epoch] = {};
  if (runs_) warn_where_replay_ends();
}

void Decisions::warn_where_replay_ends() {
  if (replay_path_.empty() || warned_) return;
  warned_ = pipeline::warn_where_log_ends(replay_path_, kName, epoch_, replay_);
}

void Decisions::begin_run() {
  std::scoped_lock lock(mutex_);
  std::optional<pipeline::EpochDecisions> made;
  if (restored_) made = pipeline::decisions_of(made_[epoch_].numbers());
  log_.begin(epoch_, made);
  runs_ = true;
  warn_where_replay_ends();
}

void Decisions::reach(uint64_t after) {
  std::scoped_lock lock(mutex_);
  made_[epoch_].reached = after;
  if (runs_ || !restored_ || !replay_path_.empty()) return;
  const auto saved = replay_.find(epoch_);
  if (saved == replay_.end() || saved->second.empty()) return;
  // The way to a position does not go beyond what the node had reached when it was saved.
  if (after >> pipeline::kPassShift > saved->second.rbegin()->first >> pipeline::kPassShift)
    fail(Code::corrupt_data, "echo: ", source(),
         " lies in a later pass of its epoch than the node's decisions: it was saved by a "
         "version that did not count samples by pass; begin at the start of an epoch");
}

std::optional<uint64_t> Decisions::due(uint64_t after) {
  std::scoped_lock lock(mutex_);
  const auto epoch = replay_.find(epoch_);
  if (epoch == replay_.end()) return std::nullopt;
  const auto it = epoch->second.find(after);
  return it == epoch->second.end() ? std::nullopt : std::optional(it->second);
}

bool Decisions::replaying(uint64_t after) {
  std::scoped_lock lock(mutex_);
  if (!replay_path_.empty()) return true;
  const auto epoch = replay_.find(epoch_);
  return epoch != replay_.end() && epoch->second.lower_bound(after) != epoch->second.end();
}

std::string Decisions::source() const {
  return replay_path_.empty() ? "the saved position" : cat("'replay': '", replay_path_, "'");
}

void Decisions::note(uint64_t after, uint64_t echoes, const Json& details) {
  std::scoped_lock lock(mutex_);
  made_[epoch_].note(after, echoes);
  log_.note(epoch_, after, echoes, details);
}

void Decisions::end_pass() {
  std::scoped_lock lock(mutex_);
  log_.complete();
}

Json Decisions::save(uint64_t epoch) const {
  std::scoped_lock lock(mutex_);
  const auto it = made_.find(epoch);
  return pack_numbers(it == made_.end() ? std::vector<uint64_t>() : it->second.numbers());
}

void Decisions::load(uint64_t epoch, const Json& saved) {
  pipeline::EpochDecisions made = pipeline::unpack_decisions(saved, kName);
  std::scoped_lock lock(mutex_);
  restored_ = true;
  replay_[epoch] = std::move(made);
}

void Decisions::forget_before(uint64_t epoch) {
  std::scoped_lock lock(mutex_);
  made_.erase(made_.begin(), made_.lower_bound(epoch));
}

}  // namespace etr::echo
