// A pipeline's position: saving it, restoring it, and the length of an epoch.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "pipeline/pipeline.h"
#include "pipeline/position_match.h"
#include "pipeline/position_notes.h"
#include "pipeline/replay.h"

namespace etr::pipeline {

// Asks the running source, or a temporary one if the source has not begun.
Json Pipeline::data() const {
  if (const auto known = source_->data()) return *known;
  const auto source = entries_[0].spec->make(entries_[0].options, context_of(0));
  return source_of(source)->data();
}

Json Pipeline::save() const {
  Json what = data();
  std::scoped_lock lock(mutex_);
  if (restored_) return *restored_;  // still on the way to the restored position
  Json decisions = Json::object();
  for (SerialSegment* segment : serial_)
    if (const TimeDependent* decides = segment->stage().time_dependent())
      if (Json made = decides->save_decisions(epoch_); !made.is_null())
        decisions[std::to_string(segment->head_stats().position)] = std::move(made);
  Json state{{"pipeline", canonical_},
             {"data", std::move(what)},
             {"epoch", epoch_},
             {"rank", rank()},
             {"world", world()},
             {"delivered", delivered_},
             {"pass_lengths", source_->pass_lengths(epoch_)},
             {"decisions", std::move(decisions)}};
  const auto echo = std::find_if(serial_.begin(), serial_.end(), [](const SerialSegment* segment) {
    return segment->traits().repeats_samples;
  });
  pack_drops(bad_records_->dropped(epoch_),
             echo == serial_.end() ? UINT64_MAX : (*echo)->head_stats().position, state);
  if (done_) state["done"] = done_->json();
  return state;
}

void Pipeline::restore(const Json& state) {
  const auto check_not_started = [this] {
    if (started_) fail(Code::state, "a pipeline is restored before its first batch is read");
    if (failure_) throw Error(*failure_);
    if (has_position_)
      fail(Code::state, "the pipeline was given a position already: create another for this one");
  };
  {
    std::scoped_lock lock(mutex_);
    check_not_started();
  }
  // Without the lock: this may be slow, and cancel() must not wait for it.
  const std::shared_ptr<const Json> what = source_->list();
  const std::vector<Json> positions =
      state.is_array() ? state.get<std::vector<Json>>() : std::vector<Json>{state};
  if (positions.empty()) fail(Code::invalid_argument, "this is a list without positions");
  for (const Json& position : positions) {
    if (!position.is_object() || !position.contains("pipeline"))
      fail(Code::invalid_argument, "this is not the saved state of a pipeline");
    check_form(position);
  }
  std::optional<uint64_t> samples;  // per pass
  if (std::any_of(positions.begin(), positions.end(), lies_within_epoch))
    samples = source_->samples();
  std::scoped_lock lock(mutex_);
  check_not_started();
  bool on_the_way = false;
  try {
    go_to(positions, *what, samples, on_the_way);
  } catch (...) {  // stages may be anywhere now: neither there nor at the beginning
    if (on_the_way) failure_ = current_error();
    throw;
  }
}

// Sets `on_the_way` when it begins to change the pipeline.
void Pipeline::go_to(const std::vector<Json>& positions, const Json& data,
                     std::optional<uint64_t> samples, bool& on_the_way) try {
  for (const Json& position : positions)
    check_position(position, {{"pipeline", canonical_}, {"data", data}});
  const Json* const own = own_position(positions);
  if (!own) {
    check_complete(positions);
    check_shareable();
  }
  on_the_way = true;
  own ? plan_restore(*own, samples) : plan_share(positions, samples);
  has_position_ = true;
} catch (const nlohmann::json::exception&) {  // raised by the notes of stages and sources
  fail(Code::corrupt_data, kDamagedPosition,
       ": 'data', 'stages' or 'decisions' do not hold what such a pipeline notes there");
}

// Returns nullptr if the epoch must be redistributed.
const Json* Pipeline::own_position(const std::vector<Json>& positions) const {
  if (std::none_of(positions.begin(), positions.end(), lies_within_epoch))
    return &positions.front();
  for (const Json& position : positions)
    if (position.value("rank", Json()) == rank() && position.value("world", Json()) == world())
      return &position;
  return nullptr;
}

// Replays this pipeline's own serial stages.
ReplayInput Pipeline::replay_input() const {
  ReplayInput input;
  input.epoch = epoch_;
  input.rank = rank();
  input.world = world();
  input.interrupt = &interrupt_;
  input.done = done_;
  if (SerialSegment* last = last_repeating()) input.repeats = &last->stage();
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].spec->kind == StageKind::map) input.map_positions.push_back(i);
  for (SerialSegment* segment : serial_) {
    input.stages.emplace_back(segment->head_stats().position, &segment->stage());
    input.passes *= segment->traits().passes;
  }
  return input;
}

// Replays fresh copies of them; `copies` must outlive the result.
ReplayInput Pipeline::replay_input(std::vector<AnyStage>& copies) const {
  ReplayInput input = replay_input();
  for (auto& [position, stage] : input.stages) {
    copies.push_back(
        entries_[position].spec->make(entries_[position].options, context_of(position)));
    const SerialStage* own = stage;
    stage = serial_of(copies.back());
    if (input.repeats == own) input.repeats = stage;
  }
  return input;
}

// The last stage that repeats single samples: after it, the delivered copies of samples are known.
SerialSegment* Pipeline::last_repeating() const {
  SerialSegment* last = nullptr;
  for (SerialSegment* segment : serial_) {
    if (segment->traits().makes_batches) break;
    if (segment->traits().repeats_samples) last = segment;
  }
  return last;
}

// Begins the epoch in the stages of `input`.
void Pipeline::begin_epoch(const ReplayInput& input) const {
  for (const auto& [position, stage] : input.stages)
    if (input.done)
      stage->start_rest(epoch_, *input.done);
    else
      stage->start_epoch(epoch_);
}

std::optional<uint64_t> Pipeline::length() const {
  for (SerialStage* stage : serial_stages_)
    if (stage->on_demand() || stage->traits().depends_on_content) return std::nullopt;
  for (const auto& segment : segments_)
    for (const MapEntry& map : segment->maps())
      if (map.stage->may_drop()) return std::nullopt;
  std::vector<AnyStage> copies;
  ReplayInput input;
  {  // not held below: listing the source and counting may take seconds
    std::scoped_lock lock(mutex_);
    if (done_) return std::nullopt;
    input = replay_input(copies);
  }
  if (never_ends(input)) return std::nullopt;
  std::optional<uint64_t> samples = source_->last_pass_length();
  if (!samples) {
    samples = source_->data() ? source_->samples() : samples_of_copy();
    if (samples) samples = own_samples(*samples);
  }
  if (!samples) return std::nullopt;
  for (const auto& [position, stage] : input.stages) stage->start_epoch(input.epoch);
  return count_outputs(input, *samples);
}

// Asks a separate source, because the pipeline's own may be running. Both may hold the data.
std::optional<uint64_t> Pipeline::samples_of_copy() const {
  const auto source = entries_[0].spec->make(entries_[0].options, context_of(0, true));
  return source_of(source)->samples();
}

// This rank's share of a pass over `all` samples.
uint64_t Pipeline::own_samples(uint64_t all) const {
  return (all + (options_->boolean("drop_remainder") ? 0 : world() - 1 - rank())) / world();
}

// Whether the stages' output cannot be derived from the sequence of samples alone.
bool Pipeline::needs_contents() const {
  return bad_records_->uses(ErrorPolicy::substitute) ||
         std::any_of(serial_stages_.begin(), serial_stages_.end(),
                     [](const SerialStage* stage) { return stage->traits().depends_on_content; });
}

void Pipeline::set_done(std::shared_ptr<const DoneSamples> done) {
  done_ = std::move(done);
  source_->set_done(done_);
  if (SerialSegment* last = last_repeating()) last->set_done(done_);
}

void Pipeline::plan_restore(const Json& state, std::optional<uint64_t> samples) {
  epoch_ = restored_epoch_ = state.at("epoch").get<uint64_t>();
  skip_ = state.at("delivered").get<uint64_t>();
  if (skip_ > 0) restored_ = std::make_unique<const Json>(state);
  delivered_ = 0;  // counts up again while the skipped outputs pass
  if (state.contains("done"))
    set_done(std::make_shared<const DoneSamples>(DoneSamples::from(state["done"])));
  const std::vector<Drop> drops = unpack_drops(state);
  replay_drops_ = DropSet(drops);
  bad_records_->restore_dropped(epoch_, drops);
  std::vector<AnyStage> copies;
  ReplayInput copied = replay_input(copies), own = replay_input();
  const auto length = samples ? std::optional(own_samples(*samples)) : std::nullopt;
  for (ReplayInput* input : {&copied, &own}) take_notes(state, *input, replay_drops_, length);
  if (done_) {
    begin_epoch(own);
    walked_ = true;
    source_->begin_at(epoch_, done_->first_pass(), 0, own.pass_lengths);
  }
  if (needs_contents() || skip_ == 0) {  // all is read again, and drops are decided again
    replay_drops_ = {};
    return;
  }
  copied.outputs = skip_;
  begin_epoch(copied);
  ReplayPlan plan = plan_replay(copied, std::move(copies));
  source_->set_replay(std::move(plan.ghost));
  if (plan.unneeded == 0) return;
  begin_epoch(own);
  const ReplayPlace place = walk(own, plan.unneeded);
  bad_records_->count_read(static_cast<int64_t>(plan.unneeded), epoch_);
  source_->begin_at(epoch_, place.pass, place.index, own.pass_lengths);
  skip_ -= place.outputs;
  delivered_ = place.outputs;
  walked_ = true;
}

}  // namespace etr::pipeline
