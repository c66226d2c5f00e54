// Redistributes the rest of an epoch among a different number of ranks.
//
// An epoch has one order of samples, the source's, of which rank r of n gets every n-th. A replay
// of each old rank with tokens shows which of its samples it had delivered at the position. The
// remaining samples, both those that stages still held and those that nobody had read, again form
// an order, of which each new rank gets every m-th; its own stages begin anew on these. A sample
// keeps its ordinal and so its augmentation.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "pipeline/pipeline.h"
#include "pipeline/position_notes.h"

namespace etr::pipeline {

void Pipeline::check_shareable() const {
  if (bad_records_->uses(ErrorPolicy::substitute))
    fail(Code::unsupported,
         "with the policy 'substitute' the rest of an epoch cannot be divided among "
         "another number of processes: continue with the same number, or from the end of "
         "an epoch");
  for (const StageEntry& entry : entries_)
    if (entry.spec->kind == StageKind::serial)
      for (SerialSegment* segment : serial_)
        if (&entries_[segment->head_stats().position] == &entry &&
            segment->traits().depends_on_content)
          refuse_rest(entry.name.c_str());
}

// Replays each old rank up to its position. Samples that an old rank is done with go to no new
// rank.
void Pipeline::plan_share(const std::vector<Json>& positions, std::optional<uint64_t> samples) {
  epoch_ = restored_epoch_ = positions.front().at("epoch").get<uint64_t>();
  Delivered delivered;
  if (positions.front().contains("done")) {
    done_ = std::make_shared<const DoneSamples>(DoneSamples::from(positions.front()["done"]));
    delivered.done = *done_;
  }
  for (const Json& state : positions) {
    const DropSet drops(unpack_drops(state));
    std::vector<AnyStage> copies;
    ReplayInput input = replay_input(copies);
    input.rank = state["rank"];
    input.world = state["world"];
    input.outputs = state["delivered"];
    take_notes(state, input, drops, samples);
    begin_epoch(input);
    add_delivered(input, std::move(copies), delivered);
  }
  begin_rest(std::move(delivered));
}

void Pipeline::begin_rest(Delivered delivered) {
  DoneSamples& done = delivered.done;
  uint64_t passes = 1, repeats = 0;
  for (const SerialStage* stage : serial_stages_)
    if (const uint64_t wanted = stage->traits().passes; wanted != 1) {
      passes *= wanted;
      ++repeats;
    }
  uint64_t first = std::max(done.first_pass(), delivered.first_open);
  if (passes != 0) first = std::min(first, passes - 1);  // the last one ends the epoch
  if (repeats > 1) first = 0;  // a `repeat` after another counts the ends that one forwards
  done.begin_with(first);
  done.forget_copies_of_done();
  set_done(std::make_shared<const DoneSamples>(std::move(done)));
  begin_epoch(replay_input());
  walked_ = true;
  source_->begin_at(epoch_, first, 0, {});
}

}  // namespace etr::pipeline
