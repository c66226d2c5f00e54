#include "train/supply.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "pipeline/position_notes.h"
#include "train/batch_fields.h"

namespace etr::train {
namespace {

// The file with the position of this rank's pipeline.
std::string position_file(size_t rank) {
  return rank == 0 ? "pipeline.json" : cat("pipeline-rank-", rank, ".json");
}

// Ranks that share a model must read the same samples, but each has its own clock.
void check_not_by_clock(const Json& pipeline) {
  for (const Json& stage : pipeline["stages"]) {
    if (!is_by_clock(stage)) continue;
    if (stage["stage"] == "overtake")
      fail(Code::unsupported,
           "the order of the stage 'overtake' depends on timing, but ranks that share a "
           "model (parallel.mesh) must read the same samples: leave it out");
    fail(Code::unsupported, "the stage 'echo' in the mode '", stage.value("mode", std::string()),
         "' decides by the clock, but ranks that share a model (parallel.mesh) must read "
         "the same samples: use the mode 'fixed' or 'together'");
  }
}

}  // namespace

bool is_by_clock(const Json& stage) {
  if (!stage.value("replay", std::string()).empty()) return false;
  if (stage["stage"] != "echo") return stage["stage"] == "overtake";
  const auto mode = stage.value("mode", std::string("fixed"));
  return mode != "fixed" && mode != "together";
}

Json part_of_ranks(Json pipeline, const Ranks* ranks) {
  if (!ranks) return pipeline;
  if (ranks->sharers() > 1) check_not_by_clock(pipeline);
  pipeline["rank"] = ranks->part();
  set_option(pipeline, pipeline::pipeline_schema(), "world_size", ranks->parts());
  return pipeline;
}

Supply::Supply(const Json& pipeline, Ranks* ranks, size_t ahead)
    : ranks_(ranks), pipeline_(pipeline, pipeline::MapFunctions{}, /*defers=*/true) {
  if (!ranks || ranks->parts() < 2 || ahead == 0) return;
  if (auto buckets = LengthBuckets::of_pipeline(pipeline))
    ahead_.emplace(pipeline_, *std::move(buckets), ahead);
}

bool Supply::wait(double seconds) {
  return ahead_ ? ahead_->wait(seconds) : pipeline_.wait(seconds);
}

// Returns false if the rank has no further batch in the epoch.
bool Supply::next_of_own(pipeline::Item& batch) {
  if (ahead_) return ahead_->next(batch, [&](std::span<int64_t> counts) { ranks_->sum(counts); });
  return pipeline_.next(batch) != pipeline::Pipeline::Next::end_of_epoch;
}

bool Supply::next(pipeline::Item& batch, const std::string& field,
                  const std::function<bool(const pipeline::Item&)>& changes_plan) {
  const bool ended = !next_of_own(batch);
  if (!ranks_) return !ended;
  const Ranks::Share all =
      ranks_->agree(ended ? Ranks::Share{.ends_epoch = true}
                          : Ranks::Share{.counts = counts_of(batch, field),
                                         .changes_plan = changes_plan && changes_plan(batch)});
  plan_changes_ = all.changes_plan;
  if (!all.ends_epoch) {
    if (ranks_->mesh().length(parallel::Axis::pipeline) > 1)
      ranks_->check_alike(fingerprint_of(batch));
    counts_ = all.counts;
    return true;
  }
  if (ahead_)
    ahead_->end_epoch();
  else if (!ended)
    pipeline_.end_epoch();
  return false;
}

checkpoint::Files Supply::positions() {
  const std::string own = (ahead_ ? ahead_->position() : pipeline_.save()).dump();
  const auto all = ranks_ ? ranks_->gather(own) : std::vector<std::string>{own};
  checkpoint::Files files;
  const size_t sharers = ranks_ ? static_cast<size_t>(ranks_->sharers()) : 1;
  for (size_t rank = 0; rank < all.size(); rank += sharers)
    checkpoint::put_text(files, position_file(rank / sharers), all[rank]);
  return files;
}

void Supply::restore(const checkpoint::Files& files, int saved_by, const std::string& origin) {
  const size_t rank = ranks_ ? static_cast<size_t>(ranks_->part()) : 0;
  const auto position = [&](size_t of) {
    return checkpoint::json_of(files, position_file(of), origin);
  };
  if (saved_by == (ranks_ ? ranks_->parts() : 1)) return restore_own(position(rank));
  Json all = Json::array();
  for (size_t of = 0; of < static_cast<size_t>(saved_by); ++of) all.push_back(position(of));
  if (std::ranges::any_of(all, BatchesAhead::has_taken))
    fail(Code::unsupported, origin, " lies within an epoch whose batches ", saved_by,
         " ranks took by their length (stage 'bucket'): resume with the same number of "
         "ranks, or from the end of an epoch");
  pipeline_.restore(all);
}

void Supply::restore_worker(const checkpoint::Files& files, int parts, const std::string& origin) {
  Json position = checkpoint::json_of(files, position_file(0), origin);
  const bool is_position = position.is_object() && position.contains("pipeline");
  if (is_position) pipeline::check_form(position);  // else restore_own() refuses it
  if (is_position && pipeline::lies_within_epoch(position) && position["world"] != parts) {
    log_line(LogLevel::warning,
             cat(origin, " lies within an epoch whose data ", position["world"].dump(),
                 " workers shared, and now there are ", parts,
                 ": this worker begins its part of the epoch anew, as the others do"));
    pipeline::return_to_start(position);
  }
  restore_own(position);
}

void Supply::restore_own(const Json& position) {
  if (ahead_) return ahead_->restore(position);
  if (BatchesAhead::has_taken(position))
    fail(Code::invalid_argument,
         "the run's batches were taken by their length (stage 'bucket'), but "
         "parallel.batches_ahead is now 0: resume with the option as it was, or from the "
         "end of an epoch");
  pipeline_.restore(position);
}

}  // namespace etr::train
