// A pipeline's position: saving it, restoring it, and how long an epoch is.
#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/packed.h"
#include "pipeline/pipeline.h"
#include "pipeline/replay.h"

namespace etr::pipeline {
namespace {

// By stage, the ordinals as differences: a filter may drop a good part of a million samples.
Json pack_drops(const std::vector<Drop>& sorted) {
  std::map<uint64_t, std::vector<uint64_t>> by_stage;
  std::map<uint64_t, uint64_t> last;
  for (const auto& [stage, ordinal] : sorted)
    by_stage[stage].push_back(ordinal - std::exchange(last[stage], ordinal));
  Json out = Json::object();
  for (const auto& [stage, steps] : by_stage) out[std::to_string(stage)] = pack_numbers(steps);
  return out;
}

std::set<Drop> unpack_drops(const Json& packed) {
  std::set<Drop> out;
  for (const auto& [stage, text] : packed.items()) {
    uint64_t ordinal = 0;
    for (const uint64_t step : unpack_numbers(text.get<std::string>()))
      out.emplace_hint(out.end(), std::stoull(stage), ordinal += step);
  }
  return out;
}

}  // namespace

Json Pipeline::save() const {
  std::scoped_lock lock(mutex_);
  Json decisions = Json::object();
  for (SerialSegment* segment : serial_)
    if (Json made = segment->stage().save_decisions(epoch_); !made.is_null())
      decisions[std::to_string(segment->head_stats().position)] = std::move(made);
  return {{"pipeline", canonical_},
          {"epoch", epoch_},
          {"rank", rank()},
          {"world", world()},
          {"delivered", delivered_},
          {"pass_lengths", source_->pass_lengths(epoch_)},
          {"drops", pack_drops(bad_records_->dropped(epoch_))},
          {"decisions", std::move(decisions)}};
}

void Pipeline::restore(const Json& state) {
  std::scoped_lock lock(mutex_);
  if (started_) fail(Code::state, "a pipeline is restored before its first batch is read");
  if (!state.is_object() || !state.contains("pipeline"))
    fail(Code::invalid_argument, "this is not the saved state of a pipeline");
  if (state["pipeline"] != canonical_)
    fail(Code::invalid_argument,
         "the saved position belongs to a pipeline with other stages, options "
         "or seed; restore it with the same spec");
  try {
    // Between epochs nothing is held: any number of processes may go on.
    if (state.at("delivered") != 0 && (state.at("rank") != rank() || state.at("world") != world()))
      fail(Code::invalid_argument, "the position was saved by rank ", state.at("rank").dump(),
           " of a world of ", state.at("world").dump(), " within an epoch; this is rank ", rank(),
           " of ", world(), ". Save at an epoch's end to go on with another number of processes");
    plan_restore(state);
  } catch (const nlohmann::json::exception& error) {
    fail(Code::corrupt_data, "the saved pipeline state is damaged: ", error.what());
  }
}

// Fresh copies of the serial stages, at the beginning of the current epoch.
ReplayInput Pipeline::replay_input() const {
  ReplayInput input;
  input.epoch = epoch_;
  input.rank = rank();
  input.world = world();
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].spec->kind == StageKind::map) input.map_positions.push_back(i);
    if (entries_[i].spec->kind != StageKind::serial) continue;
    auto stage = entries_[i].spec->make(entries_[i].options, context_of(i));
    input.stages.emplace_back(
        i, std::unique_ptr<SerialStage>(static_cast<SerialStage*>(stage.release())));
    input.passes *= input.stages.back().second->passes();
  }
  return input;
}

std::optional<uint64_t> Pipeline::length() const {
  for (const SerialStage* stage : serial_stages_)
    if (stage->echoes_on_demand() || stage->adapts() || stage->depends_on_content())
      return std::nullopt;
  for (const auto& segment : segments_)
    for (const MapEntry& map : segment->maps())
      if (map.stage->may_drop()) return std::nullopt;
  std::optional<uint64_t> samples = source_->last_pass_length();
  if (!samples) {  // a source of its own: the other one may be at work
    const auto source = entries_[0].spec->make(entries_[0].options, context_of(0));
    samples = static_cast<Source&>(*source).samples();
    if (samples) *samples /= world();
  }
  if (!samples) return std::nullopt;
  std::scoped_lock lock(mutex_);
  return count_outputs(replay_input(), *samples);
}

void Pipeline::plan_restore(const Json& state) {
  epoch_ = restored_epoch_ = state.at("epoch").get<uint64_t>();
  skip_ = state.at("delivered").get<uint64_t>();
  delivered_ = 0;  // counts up again as the skipped outputs pass
  replay_drops_ = unpack_drops(state.at("drops"));
  ReplayInput input = replay_input();
  for (auto& [position, stage] : input.stages) {
    const std::string key = std::to_string(position);
    if (!state.at("decisions").contains(key)) continue;
    stage->load_decisions(epoch_, state["decisions"][key]);
    for (SerialSegment* segment : serial_)
      if (segment->head_stats().position == position)
        segment->stage().load_decisions(epoch_, state["decisions"][key]);
  }
  input.outputs = skip_;
  input.pass_lengths = state.at("pass_lengths").get<std::vector<uint64_t>>();
  input.drops = replay_drops_;
  const bool by_content =
      bad_records_->uses(ErrorPolicy::substitute) ||
      std::any_of(serial_stages_.begin(), serial_stages_.end(),
                  [](const SerialStage* stage) { return stage->depends_on_content(); });
  if (!by_content) source_->set_replay(plan_ghosts(std::move(input)));
}

}  // namespace etr::pipeline
