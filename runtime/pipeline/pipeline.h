// A pipeline: stages built from a spec, run by a flow graph, read batch by batch.
#pragma once

#include <atomic>
#include <chrono>
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

// The pipeline's own options, without its stages.
Schema pipeline_schema();

// Removes what makes a pipeline write files: decision logs, the list of bad records, quarantine.
// For a pipeline that is run only to look at its samples or its speed. Pipelines with the option
// "write_files": false do it themselves.
Json without_side_files(Json spec);

// next() is for one consumer thread; the other functions are thread safe.
//
//   {"stages": [{"stage": "webdataset", "pattern": "train-*.tar"}, {"stage": "decode"}, ...],
//    "threads": 2, "seed": 7, ...}
class Pipeline final : private SegmentHost {
 public:
  // When to divide a budget, which reads a few samples: in the constructor or at the first next().
  // Always the latter if stages call functions of the program.
  enum class Budget { now, at_start };

  // Validates everything; opens no data except to divide the budget. Throws Error(invalid_argument)
  // that names stage and key, or says what budget would suffice. `defers`: the consumer has a
  // device and accepts Item::views after an echo with 'device'; otherwise such stages work on the
  // host.
  explicit Pipeline(const Json& spec, MapFunctions functions = {}, bool defers = false,
                    Budget budget = Budget::now);
  ~Pipeline() override;  // cancels

  enum class Next { item, end_of_epoch };

  // Returns the next item, in order; blocks until there is one. At the end of each epoch returns
  // end_of_epoch once, then continues with the next epoch. After the last epoch always returns
  // end_of_epoch. Throws the Error that ended the run, or Error(cancelled) after cancel(), at this
  // and each later call.
  Next next(Item& item);

  // Leaves the rest of the current epoch unread: next() goes on with the next epoch, without
  // returning end_of_epoch, and the position is its start. Does not wait for the record that the
  // source is reading; next() and wait() do. For the consumer thread, like next().
  void end_epoch();

  // Waits at most `seconds` until next() would not block. Returns false if it still would.
  bool wait(double seconds);

  // The number of items in the epoch of the next item, if no record is dropped. Returns nothing if
  // it is unknown: the source may not know its length before its first pass ends, an epoch may be
  // endless, and echo on demand depends on time. Throws Error(io) if the source cannot be listed,
  // Error(cancelled) if cancel() is called meanwhile.
  std::optional<uint64_t> length() const;

  // Unblocks next() and stops all work. Returns at once; the work ends within a second.
  void cancel();

  // The position and the decisions made: all that a restored pipeline needs to deliver the same
  // remaining items. Cheap, without payload.
  Json save() const;
  // To be called before the first next(), and to succeed once. Throws Error(invalid_argument) that
  // says what differs if `state` belongs to another pipeline or other data; the data may have
  // moved. A list of the positions of all ranks of a world is accepted too: this pipeline then
  // continues at its own position. If the world differs, the rest of the epoch is redistributed:
  // each sample that no rank has delivered fresh enters the stages of one rank once, in the
  // source's order, and copies that an echo node made and a rank delivered do not come again.
  // Throws Error(unsupported) if a stage counts samples (take, skip) or combines them by content.
  // If it fails on the way to the position, next() and each later restore() throw the same Error.
  void restore(const Json& state);

  uint64_t epoch() const;     // of the next item
  bool within_epoch() const;  // it has begun, and next() has not reported its end
  bool over() const;          // the last epoch has ended

  // The maximum number of samples held at once from an echo with 'device' on; 0 without such an
  // echo.
  uint64_t view_samples() const;

  // {"stages": [{"name", "items_in", "items_out", "busy_s", ...}], "consumer": {...},
  //  "bad_records": N, ...}
  Json stats() const;
  // Returns how many items have left a stage, numbered from 0. Cheap, unlike stats().
  int64_t items_out(size_t stage) const;
  std::string why_empty() const;  // for errors about an epoch without output
  int64_t bad_record_count() const { return bad_records_->count(); }  // as in stats()
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
  void check_overtaking(const std::vector<AnyStage>& stages) const;
  void check_joining(const std::vector<AnyStage>& stages) const;
  void check_passes(const std::vector<AnyStage>& stages) const;
  void check_replicas(const std::vector<AnyStage>& stages) const;
  void check_views(const std::vector<AnyStage>& stages) const;
  void check_cache(const std::vector<AnyStage>& stages) const;
  Json stages_before(size_t position) const;
  void build();
  void start();
  void divide_budget() noexcept;
  bool begun() const { return graph_ || cancelled_ || failure_; }  // requires mutex_
  void run();
  std::vector<QueueLimits> planned_limits();
  void set_limits(const std::vector<QueueLimits>& planned);
  Json data() const;
  const Json* own_position(const std::vector<Json>& positions) const;
  void check_shareable() const;
  bool needs_contents() const;
  void go_to(const std::vector<Json>& positions, const Json& data, std::optional<uint64_t> samples,
             bool& on_the_way);
  void plan_restore(const Json& state, std::optional<uint64_t> samples);
  void plan_share(const std::vector<Json>& positions, std::optional<uint64_t> samples);
  void begin_rest(Delivered delivered);
  void set_done(std::shared_ptr<const DoneSamples> done);
  void begin_epoch(const ReplayInput& input) const;
  ReplayInput replay_input() const;
  ReplayInput replay_input(std::vector<AnyStage>& copies) const;
  SerialSegment* last_repeating() const;
  int threads() const;
  uint64_t rank() const { return static_cast<uint64_t>(options_->integer("rank")); }
  std::optional<uint64_t> samples_of_copy() const;
  uint64_t own_samples(uint64_t all) const;
  uint64_t world() const { return static_cast<uint64_t>(options_->integer("world_size")); }
  QueueLimits limits_after(bool batches) const;
  StageContext context_of(size_t position, bool trial = false) const;
  // The functions from here on require mutex_. Due: nothing means that there is no limit.
  using Due = std::optional<std::chrono::steady_clock::time_point>;
  bool epochs_over() const;
  bool items_left() const { return position_in_chunk_ < current_.items.size(); }
  Item take_item();
  void leave_epoch();
  void forget_before(uint64_t epoch);
  bool drop_unwanted(Chunk& chunk);
  void release(const Chunk& chunk);
  std::shared_ptr<const Error> failure_at_end() const;
  template <typename Holds>
  bool wait_until(std::unique_lock<std::mutex>& lock, const Due& due, const Holds& holds) {
    if (due) return ready_changed_.wait_until(lock, *due, holds);
    ready_changed_.wait(lock, holds);
    return true;
  }
  bool receive(std::unique_lock<std::mutex>& lock, const Due& due);
  void release_current(std::unique_lock<std::mutex>& lock);
  bool advance(std::unique_lock<std::mutex>& lock, const Due& due);

  bool forked() const;
  void check_process() const;

  bool stopped() const override { return interrupt_.stopped(); }
  bool wants(uint64_t epoch) const override { return epoch >= first_wanted_.load(); }
  bool consumer_starves() const override;
  double elapsed_seconds() const override;
  double consumer_starved_seconds() const override;
  BadRecords& bad_records() override { return *bad_records_; }
  Trace& trace() override { return *trace_; }
  bool was_dropped(uint64_t stage, const Item& item, uint64_t epoch) const override;
  void deliver(Chunk&& chunk) override;
  void abandon(std::shared_ptr<const Error> error) noexcept override;

  Json canonical_;  // the validated stages, to which a saved position belongs
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
  PassRules pass_rules_;

  // For restoring.
  DropSet replay_drops_;
  uint64_t restored_epoch_ = 0;
  bool budget_applied_ = false;
  std::thread planner_;  // divides a budget at the start, so that wait() can time out
  bool walked_ = false;  // the stages were advanced into restored_epoch_, or have begun its rest
  // The samples that the ranks of the previous world delivered in that epoch. Kept until it is
  // over.
  std::shared_ptr<const DoneSamples> done_;

  std::atomic<uint64_t> first_wanted_{0};  // the epochs before it are ended for the consumer

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable ready_changed_;
  std::deque<Chunk> ready_;
  int64_t ready_items_ = 0;
  Chunk current_;
  size_t position_in_chunk_ = 0;
  bool has_current_ = false;
  bool started_ = false, cancelled_ = false;
  std::shared_ptr<const Error> failure_;
  bool has_position_ = false;             // restore() has succeeded
  uint64_t epoch_ = 0, delivered_ = 0;    // delivered_: in the current epoch
  uint64_t skip_ = 0;                     // outputs that a restored run must not deliver again
  std::unique_ptr<const Json> restored_;  // the restored position, until a new one is reached
  int64_t started_ns_ = 0, process_ = 0;
  int64_t wait_ns_ = 0, waiting_since_ns_ = 0;  // of the consumer; since: 0 while it does not wait
  int64_t fresh_ = 0, echoed_ = 0, items_ = 0;
};

}  // namespace etr::pipeline
