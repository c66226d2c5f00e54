// A segment of a pipeline: a serial head (a source or a serial stage), then map stages that run in
// parallel, then a step that restores the order.
//
//   input queue -> head -> [ map, map, ... ] -> in order -> next segment's input queue
//
// The head runs only while the segment's output queue has room, in items and in bytes, so that
// nothing upstream outruns the consumer. Heads that may block have their own thread; the others run
// as tasks of the flow graph.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/json.h"
#include "pipeline/bad_records.h"
#include "pipeline/flow.h"
#include "pipeline/loose_order.h"
#include "pipeline/sample_cache.h"
#include "pipeline/stage.h"
#include "pipeline/trace.h"

namespace etr::pipeline {

struct StageStats {
  std::string name;
  uint64_t position = 0;  // of the stage in the pipeline
  std::atomic<int64_t> items_in{0}, items_out{0}, busy_ns{0};
};

// Limits of a segment's output queue. It accepts one more message while it is below both the item
// and the byte limit. Samples that maps are about to enlarge count with the growth seen of late.
struct QueueLimits {
  int64_t items = 0, bytes = 0;
  size_t chunk = 1;       // maximum items per message
  int64_t messages = 4;   // maximum in the maps at once
  bool budgeted = false;  // memory is limited strictly: the largest growth ever seen counts
};

// The services that a pipeline offers its segments.
class SegmentHost {
 public:
  virtual ~SegmentHost() = default;
  virtual bool stopped() const = 0;
  // False once the consumer has gone on to a later epoch. Then only the end of that one matters.
  virtual bool wants(uint64_t epoch) const = 0;
  virtual bool consumer_starves() const = 0;   // fewer finished outputs than the low-water mark
  virtual double elapsed_seconds() const = 0;  // since the start
  virtual double consumer_starved_seconds() const = 0;
  virtual BadRecords& bad_records() = 0;
  virtual Trace& trace() = 0;
  // When restoring: whether that stage dropped that item in the original run.
  virtual bool was_dropped(uint64_t stage, const Item& item, uint64_t epoch) const = 0;
  virtual void deliver(Chunk&& chunk) = 0;  // called by the last segment, in order
  // Ends the run immediately, for failures that cannot even be sent downstream.
  virtual void abandon(std::shared_ptr<const Error> error) noexcept = 0;
};

struct MapEntry {
  std::unique_ptr<MapStage> stage;
  std::unique_ptr<StageStats> stats;
};

class Segment {
 public:
  Segment(SegmentHost& host, std::string head_name, uint64_t position, QueueLimits limits);
  virtual ~Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  void add_map(MapEntry map) { maps_.push_back(std::move(map)); }
  void connect(Segment* previous, Segment* next);
  // Call before start(). Lets samples leave the maps out of order, as the next segment's head
  // allows.
  void loosen(const Overtaking& overtaking);
  // Call before start(). The maps take no more threads than that; without it all.
  void limit_threads(int threads) { map_threads_ = threads; }
  void start(FlowGraph& graph);
  // To be called after the host has stopped. Ends the head's thread, if any.
  void stop() {
    if (head_) head_->stop();
  }

  virtual bool head_blocks() const = 0;  // needs its own thread

  void trigger();                    // the head may be able to continue
  void release(const Chunk& chunk);  // the receiver took `chunk` from this output queue

  const StageStats& head_stats() const { return stats_; }
  const std::vector<MapEntry>& maps() const { return maps_; }
  const QueueLimits& limits() const { return limits_; }
  void set_limits(QueueLimits limits) { limits_ = limits; }  // before start()
  int64_t queued_items() const { return out_items_.load(); }
  int64_t queued_bytes() const { return out_bytes_.load(); }

  // What a head waits for: input, room in the output queue, or its own maps.
  enum class Idle { no, starved, blocked, maps };
  double idle_seconds(Idle kind) const;  // since the start, including the current wait

 protected:
  virtual Idle advance() = 0;  // does what can be done now; returns what it waits for

  bool has_room() const {
    return out_items_.load() < limits_.items && out_bytes_.load() < limits_.bytes &&
           in_maps_.load() < (growth_known_.load() ? limits_.messages : 1);
  }
  // Whether half of every limit is free. A blocked head is woken only then, because waking it for
  // each message would cost a thread switch each time. If the queue is fuller, a later release or
  // hand-over wakes the head.
  bool half_empty() const {
    return out_items_.load() <= limits_.items / 2 && out_bytes_.load() <= limits_.bytes / 2 &&
           in_maps_.load() <= limits_.messages / 2;
  }
  // Whether the receiver has left more than half of what the queue may hold, and few messages are
  // in the maps. Then the head waits for the receiver, even if the maps have something left.
  bool held_back() const {
    return (behind_items_.load() > limits_.items / 2 || behind_bytes_.load() > limits_.bytes / 2) &&
           in_maps_.load() <= limits_.messages / 2;
  }
  Idle no_room() const { return held_back() ? Idle::blocked : Idle::maps; }
  double expected_bytes(const Item& item) const;  // when it leaves the maps
  // Returns whether a message of `items` items, which have `bytes` bytes, takes one more.
  bool fits(size_t items, double bytes) const;
  bool take_input(Chunk& chunk);
  void release_upstream(const Chunk& chunk) {
    if (previous_) previous_->release(chunk);
  }
  void send(Chunk&& chunk);

  SegmentHost& host_;
  QueueLimits limits_;
  StageStats stats_;  // of the head
  Segment* previous_ = nullptr;

 private:
  void run_head() noexcept;
  int64_t idle_ns(Idle kind, Idle idle, int64_t now) const;
  void run_maps(Chunk& chunk) noexcept;  // thread safe
  void run_block(Chunk& chunk, size_t first, size_t last, std::vector<char>& keep);
  bool map_item(MapEntry& map, Item& item, uint64_t epoch);
  // One call at a time. In order, unless loosen() was called before.
  void hand_over(Chunk&& chunk) noexcept;
  void pass_on(Chunk&& chunk);
  void substitute(Chunk& chunk);

  std::vector<MapEntry> maps_;
  int map_threads_ = 0;  // 0: all
  Item last_good_;       // in hand_over(): replaces bad ones
  Segment* next_ = nullptr;
  std::mutex input_mutex_;
  std::deque<Chunk> input_;
  uint64_t next_sequence_ = 0, ends_sent_ = 0;
  int64_t pass_items_ = 0;  // in hand_over(): passed on since the last end
  std::unique_ptr<LooseOrder> loose_order_;
  // Messages sent and not handed over. With a loose order, only unfinished ones.
  std::atomic<int64_t> in_maps_{0};
  std::atomic<bool> growth_known_{false};  // the first message is sent alone
  std::atomic<double> growth_{1};          // of a message's bytes in the maps: what to expect
  std::atomic<double> item_ns_{0};         // time of an item in the maps, of late
  std::atomic<int64_t> out_items_{0}, out_bytes_{0};
  // The part of these that has left the maps and that the receiver has not taken yet.
  std::atomic<int64_t> behind_items_{0}, behind_bytes_{0};
  std::array<std::atomic<int64_t>, 4> idle_ns_{};  // by Idle
  std::atomic<Idle> idle_{Idle::no};
  std::atomic<int64_t> idle_since_ns_{0};
  std::atomic<int64_t> maps_ready_ns_{0};  // when the head was held_back() first in its wait
  std::unique_ptr<Path> path_;
  std::unique_ptr<Task> head_;
};

// The exception being handled, as an Error to send downstream. If there is no memory for one,
// returns the Error that keep_no_memory_error() made in advance.
std::shared_ptr<const Error> current_error() noexcept;
void keep_no_memory_error();

// The first segment: a source that runs through epochs and passes.
class SourceSegment final : public Segment {
 public:
  // `passes` per epoch, and number of `epochs`; 0: endless.
  SourceSegment(SegmentHost& host, std::string name, QueueLimits limits,
                std::unique_ptr<Source> source, uint64_t passes, uint64_t epochs);

  bool head_blocks() const override { return true; }
  void start_at(uint64_t epoch) { epoch_ = epoch; }
  // For restoring: starts with pass `pass` at own sample `index`. `lengths` are those of the
  // epoch's earlier passes.
  void begin_at(uint64_t epoch, uint64_t pass, uint64_t index, std::vector<uint64_t> lengths);
  // Selects the sample at place `rank` of every `world` samples. With `drop_remainder`, samples at
  // the end that do not suffice for every rank are left out.
  void set_shard(uint64_t rank, uint64_t world, bool drop_remainder) {
    rank_ = rank;
    world_ = world;
    drop_remainder_ = drop_remainder;
  }

  // For restoring: skips those samples in the first epoch.
  void set_done(std::shared_ptr<const DoneSamples> done) { done_before_ = std::move(done); }
  // Samples in the cache are not read. `stages_before`: the stages before it, as the pipeline
  // records them.
  void set_cache(std::shared_ptr<SampleCache> cache, Json stages_before) {
    cache_ = std::move(cache);
    before_cache_ = std::move(stages_before);
  }
  // For restoring: items of the first epoch that `ghost` selects travel without payload.
  void set_replay(std::function<bool(uint64_t ordinal)> ghost) { ghost_ = std::move(ghost); }
  void set_demand(std::function<Demand(uint64_t epoch, uint64_t pass)> demand) {
    demand_ = std::move(demand);
  }

  // Describes the data that the source reads, as list() or its first pass has listed it; nullptr
  // before.
  std::shared_ptr<const Json> data() const;
  // Lists it. Only before the start.
  std::shared_ptr<const Json> list();
  std::optional<uint64_t> samples() const;  // of all ranks in a pass, if data() and they are known

  // The number of own samples in each finished pass of `epoch`, for saving a position.
  std::vector<uint64_t> pass_lengths(uint64_t epoch) const;
  void forget_before(uint64_t epoch);  // the consumer has left those epochs
  // The length of the last pass that was read to its end, if any.
  std::optional<uint64_t> last_pass_length() const;

 protected:
  Idle advance() override;

 private:
  bool next_item(Item& item, End& end);
  bool read_own(Item& item);
  bool read_or_recall(Item& item);
  uint64_t number_of(uint64_t place) const;
  void go_to(uint64_t number);
  void count_reads();
  void end_pass(Chunk& chunk, End end);
  void note_data();

  std::unique_ptr<Source> source_;
  const uint64_t passes_, epochs_;  // 0: endless
  uint64_t rank_ = 0, world_ = 1;
  bool drop_remainder_ = true;
  uint64_t epoch_ = 0, pass_ = 0, index_ = 0;  // index_: of own samples in the pass
  uint64_t number_ = 0;                        // of all samples in the pass
  uint64_t first_index_ = 0;                   // start of the next pass
  bool pass_ended_ = false;
  bool in_pass_ = false, done_ = false;
  int64_t uncounted_ = 0;  // records read but not yet reported to BadRecords
  std::shared_ptr<const DoneSamples> done_before_;
  std::shared_ptr<SampleCache> cache_;
  bool cache_open_ = false;  // if it is shared
  Json before_cache_;
  std::function<bool(uint64_t)> ghost_;
  std::function<Demand(uint64_t, uint64_t)> demand_;
  mutable std::mutex lengths_mutex_;
  std::map<uint64_t, std::vector<uint64_t>> lengths_;  // by epoch
  std::optional<uint64_t> last_length_;
  std::shared_ptr<const Json> data_;
  std::optional<uint64_t> samples_;
};

// A segment whose head is a serial stage.
class SerialSegment final : public Segment, private Emitter {
 public:
  SerialSegment(SegmentHost& host, std::string name, uint64_t position, QueueLimits limits,
                std::unique_ptr<SerialStage> stage);

  // under_way: the stage has already begun the epoch
  void start_at(uint64_t epoch, bool under_way = false);
  // For restoring: discards those copies in the first epoch.
  void set_done(std::shared_ptr<const DoneSamples> done) { done_before_ = std::move(done); }
  SerialStage& stage() { return *stage_; }
  const SerialTraits& traits() const { return traits_; }

  bool head_blocks() const override { return traits_.may_block; }

 protected:
  Idle advance() override;

 private:
  void emit(Item&& item) override {
    if (!host_.wants(epoch_)) return;
    if (done_before_ && done_before_->copies().count({item.ordinal, item.replica})) return;
    pending_.push_back(std::move(item));
  }
  void reject(const Item& item, const Error& error) override;
  size_t waiting() const { return pending_.size() - sent_; }
  std::optional<Idle> step();
  bool flush(bool everything);
  size_t echoes_wanted() const;
  void tell_pace();
  bool ending() const { return pending_end_ != End::none || pending_failure_; }
  void process_some();
  void finish_input();

  const std::unique_ptr<SerialStage> stage_;
  const SerialTraits traits_;
  OnDemand* const on_demand_;  // nullptr: the stage gives nothing without input
  std::shared_ptr<const DoneSamples> done_before_;
  uint64_t epoch_ = 0;
  Chunk current_;        // being processed
  size_t position_ = 0;  // in current_
  bool has_current_ = false;
  bool of_the_item_ = false;   // whether an Error of the stage is about the item that it gets
  std::vector<Item> pending_;  // emitted by the stage; the first sent_ items were sent
  size_t sent_ = 0;
  End pending_end_ = End::none;
  bool failed_ = false;
  std::shared_ptr<const Error> pending_failure_;
  int64_t pace_told_ns_ = 0;
};

}  // namespace etr::pipeline
