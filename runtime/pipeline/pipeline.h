// A pipeline: stages from a spec, run by a flow graph, read batch by batch.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/json.h"
#include "pipeline/replay.h"
#include "pipeline/segment.h"

namespace etr::pipeline {

// The options of a pipeline beside its stages.
Schema pipeline_schema();

// One consumer thread calls next(); the other calls may come from any thread.
//
//   {"stages": [{"stage": "webdataset", "pattern": "train-*.tar"}, {"stage": "decode"}, ...],
//    "threads": 2, "seed": 7, ...}
class Pipeline final : private SegmentHost {
 public:
  // When a budget is divided, for which a few samples are read: while the pipeline is made, or at the first next(). There
  // always where the program has functions among the stages.
  enum class Budget { now, at_start };

  // Validates everything and opens nothing but for the budget. Throws Error(invalid_argument) that names stage and key, or
  // says how much would be enough.
  // `defers`: the consumer has a device, and takes Item::views after an echo with 'device'; without it
  // such stages work on the host.
  explicit Pipeline(const Json& spec, MapFunctions functions = {}, bool defers = false,
                    Budget budget = Budget::now);
  ~Pipeline() override;  // cancels

  enum class Next { item, end_of_epoch };

  // The next item, in order; blocks until there is one. At the end of an epoch returns end_of_epoch
  // once and goes on with the next epoch; after the last one it returns end_of_epoch for ever.
  // Throws the Error that ended the run, Error(cancelled) after cancel(), and does so again if
  // called again.
  Next next(Item& item);

  // Waits until there is something for next(), at most `seconds`; false where there is nothing yet.
  bool wait(double seconds);

  // Items in the epoch of the next item, if no record is dropped; none where that is not known: the
  // source's length is not known before its first pass is over, an epoch may have no end, and echo
  // on demand depends on time. Error(io) where the source cannot be listed.
  std::optional<uint64_t> length() const;

  // Unblocks next() and stops all work; returns at once, the work ends within a second.
  void cancel();

  // Position and decisions: everything that a restored pipeline needs to continue with the same
  // tail. Cheap; no payload.
  Json save() const;
  // Before the first next(). Throws Error(invalid_argument) that says what differs where `state` is of another pipeline, or of
  // other data; the data may lie elsewhere.
  // A list of the positions of all ranks of a world: this pipeline goes on with its own. Where its world is another one, what they
  // leave of the epoch is shared out anew: each sample that none of them has delivered fresh comes once, in the source's order
  // before this pipeline's own stages, and copies that an echo node has made of held samples do not come again. Error(unsupported)
  // where a stage counts samples (take, skip), or puts them together by content.
  void restore(const Json& state);

  uint64_t epoch() const;     // of the next item
  bool within_epoch() const;  // it has begun, and next() has not said that it ended
  bool over() const;          // the last epoch has ended

  // Samples that may be held at once from an echo with 'device' on; 0 where there is none.
  uint64_t view_samples() const;

  // {"stages": [{"name", "items_in", "items_out", "busy_s", ...}], "consumer": {...},
  //  "bad_records": N, ...}
  Json stats() const;
  std::string why_empty() const;  // for the error about an epoch that gave nothing
  Json bad_record_list() const { return bad_records_->list(); }
  Json trace_json() const { return trace_->json(); }

 private:
  struct StageEntry {
    const StageSpec* spec;
    Options options;
    std::string name;
  };

  void parse(const Json& spec);
  ErrorRules error_rules() const;
  void check_overtaking(const std::vector<std::unique_ptr<Stage>>& stages) const;
  void check_views(const std::vector<std::unique_ptr<Stage>>& stages) const;
  void check_cache(const std::vector<std::unique_ptr<Stage>>& stages) const;
  Json stages_before(size_t position) const;
  void build();
  void start();
  void divide_budget() noexcept;
  bool begun() const { return graph_ || cancelled_ || failure_; }  // under mutex_
  void run();
  std::vector<QueueLimits> planned_limits();
  void set_limits(const std::vector<QueueLimits>& planned);
  Json data() const;
  const Json* own_position(const std::vector<Json>& positions) const;
  void check_shareable() const;
  bool needs_contents() const;
  void plan_restore(const Json& state, std::optional<uint64_t> samples);
  void plan_share(const std::vector<Json>& positions, std::optional<uint64_t> samples);
  void begin_rest(Delivered delivered);
  void set_done(std::shared_ptr<const DoneSamples> done);
  void begin_epoch(const ReplayInput& input) const;
  ReplayInput replay_input() const;
  ReplayInput replay_input(std::vector<std::unique_ptr<Stage>>& copies) const;
  SerialSegment* last_repeating() const;
  int threads() const;
  uint64_t rank() const { return static_cast<uint64_t>(options_->integer("rank")); }
  uint64_t own_samples(uint64_t all) const;
  uint64_t world() const { return static_cast<uint64_t>(options_->integer("world")); }
  QueueLimits limits_after(bool batches) const;
  StageContext context_of(size_t position, bool trial = false) const;
  bool epochs_over() const;  // under mutex_
  bool forked() const;
  void check_process() const;

  bool stopped() const override { return interrupt_.stopped(); }
  bool consumer_starves() const override;
  double elapsed_seconds() const override;
  double consumer_starved_seconds() const override;
  BadRecords& bad_records() override { return *bad_records_; }
  Trace& trace() override { return *trace_; }
  bool was_dropped(uint64_t stage, uint64_t ordinal) const override;
  void deliver(Chunk&& chunk) override;
  void abandon(std::shared_ptr<const Error> error) noexcept override;

  Json canonical_;  // the stages as validated; a saved position belongs to it
  std::vector<StageEntry> entries_;
  std::unique_ptr<Options> options_;
  const MapFunctions functions_;
  const bool defers_;
  mutable Interrupt interrupt_;
  std::unique_ptr<BadRecords> bad_records_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<FlowGraph> graph_;
  std::vector<std::unique_ptr<Segment>> segments_;
  SourceSegment* source_ = nullptr;
  std::vector<SerialSegment*> serial_;
  std::vector<SerialStage*> serial_stages_;  // the heads of serial_

  // Restoring.
  DropSet replay_drops_;
  uint64_t restored_epoch_ = 0;
  bool budget_applied_ = false;
  std::thread planner_;  // of a budget at the start: wait() does not wait for the samples it reads
  bool walked_ = false;  // the stages are on their way in that epoch, or have begun its rest
  std::shared_ptr<const DoneSamples>
      done_;  // what ranks of another world had in that epoch, until it is over

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable ready_changed_;
  std::deque<Chunk> ready_;
  int64_t ready_items_ = 0;
  Chunk current_;
  size_t position_in_chunk_ = 0;
  bool has_current_ = false;
  bool started_ = false, cancelled_ = false;
  std::shared_ptr<const Error> failure_;
  uint64_t epoch_ = 0, delivered_ = 0;    // in the epoch
  uint64_t skip_ = 0;                     // outputs that a restored run does not deliver again
  std::unique_ptr<const Json> restored_;  // the position, until there is another one
  int64_t started_ns_ = 0, process_ = 0;
  int64_t wait_ns_ = 0, waiting_since_ns_ = 0;  // of the consumer; since: 0 where it does not wait
  int64_t fresh_ = 0, echoed_ = 0, items_ = 0;
};

}  // namespace etr::pipeline
