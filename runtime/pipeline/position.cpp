// A pipeline's position: saving it, restoring it, and how long an epoch is.
#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/packed.h"
#include "core/text.h"
#include "pipeline/pipeline.h"
#include "pipeline/position_match.h"
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

std::vector<Drop> unpack_drops(const Json& packed) {
  std::vector<Drop> out;
  for (const auto& [stage, text] : packed.items()) {
    uint64_t ordinal = 0;
    const auto position = static_cast<uint64_t>(parse_integer(stage, "a stage's number"));
    for (const uint64_t step : unpack_numbers(text.get<std::string>()))
      out.emplace_back(position, ordinal += step);
  }
  return out;
}

constexpr char kDamaged[] = "the saved pipeline state is damaged";
constexpr uint64_t kMostItems = uint64_t{1} << 40;  // of an epoch; epochs

// What is read of a position is there and of its type.
void check_form(const Json& state) {
  const JsonMembers members(state, kDamaged, Code::corrupt_data);
  const JsonMembers pipeline(members.object("pipeline"), cat(kDamaged, ": 'pipeline'"),
                             Code::corrupt_data);
  pipeline.at("seed");
  pipeline.list("stages");
  members.whole("epoch", kMostItems);
  if (members.whole("delivered", kMostItems) > 0) {
    members.whole("rank");
    members.whole("world");
  }
  for (const Json& length : members.list("pass_lengths"))
    if (!length.is_number_unsigned() || length.get<uint64_t>() > kMostItems)
      fail(Code::corrupt_data, kDamaged, ": 'pass_lengths' holds ", brief_json(length),
           ", not a number of samples");
  members.object("decisions");
  for (const auto& [stage, list] : members.object("drops").items())
    if (!list.is_string())
      fail(Code::corrupt_data, kDamaged, ": 'drops' of stage ", stage, " are ", brief_json(list),
           ", not a packed list");
}

}  // namespace

// Of the running source, or before it has begun of another one like it.
Json Pipeline::data() const {
  if (const auto known = source_->data()) return *known;
  const auto source = entries_[0].spec->make(entries_[0].options, context_of(0));
  return static_cast<Source&>(*source).data();
}

Json Pipeline::save() const {
  Json what = data();
  std::scoped_lock lock(mutex_);
  Json decisions = Json::object();
  for (SerialSegment* segment : serial_)
    if (Json made = segment->stage().save_decisions(epoch_); !made.is_null())
      decisions[std::to_string(segment->head_stats().position)] = std::move(made);
  return {{"pipeline", canonical_},
          {"data", std::move(what)},
          {"epoch", epoch_},
          {"rank", rank()},
          {"world", world()},
          {"delivered", delivered_},
          {"pass_lengths", source_->pass_lengths(epoch_)},
          {"drops", pack_drops(bad_records_->dropped(epoch_))},
          {"decisions", std::move(decisions)}};
}

void Pipeline::restore(const Json& state) {
  const auto check_not_started = [this] {
    if (started_) fail(Code::state, "a pipeline is restored before its first batch is read");
  };
  {
    std::scoped_lock lock(mutex_);
    check_not_started();
  }
  const Json what =
      source_->source().data();  // may take its time, and cancel() does not wait for it
  if (!state.is_object() || !state.contains("pipeline"))
    fail(Code::invalid_argument, "this is not the saved state of a pipeline");
  check_form(state);
  std::optional<uint64_t> samples;  // of a pass
  if (state["delivered"] != 0) samples = source_->source().samples();
  std::scoped_lock lock(mutex_);
  check_not_started();
  try {
    check_position(state, {{"pipeline", canonical_}, {"data", what}});
    // Between epochs nothing is held: any number of processes may go on.
    if (state.at("delivered") != 0 && (state.at("rank") != rank() || state.at("world") != world()))
      fail(Code::invalid_argument, "the position was saved by rank ", state.at("rank").dump(),
           " of a world of ", state.at("world").dump(), " within an epoch; this is rank ", rank(),
           " of ", world(), ". Save at an epoch's end to go on with another number of processes");
    plan_restore(state, samples);
  } catch (const nlohmann::json::exception&) {  // of what its stages and sources have noted
    fail(Code::corrupt_data, kDamaged,
         ": 'data', 'stages' or 'decisions' do not hold what such a pipeline notes there");
  }
}

// The way through this pipeline's own serial stages.
ReplayInput Pipeline::replay_input() const {
  ReplayInput input;
  input.epoch = epoch_;
  input.rank = rank();
  input.world = world();
  input.interrupt = &interrupt_;
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].spec->kind == StageKind::map) input.map_positions.push_back(i);
  for (SerialSegment* segment : serial_) {
    input.stages.emplace_back(segment->head_stats().position, &segment->stage());
    input.passes *= segment->stage().passes();
  }
  return input;
}

// The same through fresh copies of them, which are to live as long.
ReplayInput Pipeline::replay_input(std::vector<std::unique_ptr<Stage>>& copies) const {
  ReplayInput input = replay_input();
  for (auto& [position, stage] : input.stages) {
    copies.push_back(
        entries_[position].spec->make(entries_[position].options, context_of(position)));
    stage = static_cast<SerialStage*>(copies.back().get());
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
    const auto source = entries_[0].spec->make(entries_[0].options, context_of(0, true));
    samples = static_cast<Source&>(*source).samples();
    if (samples) samples = own_samples(*samples);
  }
  if (!samples) return std::nullopt;
  std::scoped_lock lock(mutex_);
  std::vector<std::unique_ptr<Stage>> copies;
  const ReplayInput input = replay_input(copies);
  for (const auto& [position, stage] : input.stages) stage->start_epoch(epoch_);
  return count_outputs(input, *samples);
}

// Of a pass over so many.
uint64_t Pipeline::own_samples(uint64_t all) const {
  return (all + (options_->boolean("drop_rest") ? 0 : world() - 1 - rank())) / world();
}

void Pipeline::plan_restore(const Json& state, std::optional<uint64_t> samples) {
  epoch_ = restored_epoch_ = state.at("epoch").get<uint64_t>();
  skip_ = state.at("delivered").get<uint64_t>();
  delivered_ = 0;  // counts up again as the skipped outputs pass
  const std::vector<Drop> drops = unpack_drops(state.at("drops"));
  for (const Drop& drop : drops) replay_drops_.insert(drop);
  bad_records_->restore_dropped(epoch_, drops);
  std::vector<std::unique_ptr<Stage>> copies;
  ReplayInput copied = replay_input(copies), own = replay_input();
  for (const ReplayInput* input : {&copied, &own})
    for (const auto& [position, stage] : input->stages)
      if (const std::string key = std::to_string(position); state.at("decisions").contains(key))
        stage->load_decisions(epoch_, state["decisions"][key]);
  const bool by_content =
      bad_records_->uses(ErrorPolicy::substitute) ||
      std::any_of(serial_stages_.begin(), serial_stages_.end(),
                  [](const SerialStage* stage) { return stage->depends_on_content(); });
  if (by_content || skip_ == 0) return;
  own.pass_lengths = copied.pass_lengths = state.at("pass_lengths").get<std::vector<uint64_t>>();
  own.drops = copied.drops = &replay_drops_;
  if (samples) own.pass_length = copied.pass_length = own_samples(*samples);
  copied.outputs = skip_;
  for (const auto& [position, stage] : copied.stages) stage->start_epoch(epoch_);
  ReplayPlan plan = plan_replay(copied, std::move(copies));
  source_->set_replay(std::move(plan.ghost));
  if (plan.unneeded == 0) return;
  for (const auto& [position, stage] : own.stages) stage->start_epoch(epoch_);
  const ReplayPlace place = walk(own, plan.unneeded);
  bad_records_->count_read(static_cast<int64_t>(plan.unneeded), epoch_);
  source_->begin_at(epoch_, place.pass, place.index, own.pass_lengths);
  skip_ -= place.outputs;
  delivered_ = place.outputs;
  walked_ = true;
}

}  // namespace etr::pipeline
