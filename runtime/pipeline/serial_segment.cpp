// The segment of a serial stage. The stage's output is sent while there is room.
#include "pipeline/segment.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/error.h"

namespace etr::pipeline {
namespace {

constexpr int64_t kPaceNs = 20'000'000;  // interval at which adapting stages get the pace
constexpr int64_t kEchoesAhead = 64;

}  // namespace

SerialSegment::SerialSegment(SegmentHost& host, std::string name, uint64_t position,
                             QueueLimits limits, std::unique_ptr<SerialStage> stage)
    : Segment(host, std::move(name), position, limits),
      stage_(std::move(stage)),
      traits_(stage_->traits()),
      on_demand_(stage_->on_demand()) {}

void SerialSegment::start_at(uint64_t epoch, bool under_way) {
  epoch_ = epoch;
  if (!under_way) stage_->start_epoch(epoch);
}

// Sends what the stage has emitted while there is room. Returns false if something remains.
bool SerialSegment::flush(bool everything) {
  while (waiting() > 0 && (everything || waiting() >= limits_.chunk)) {
    if (!has_room()) return false;
    Chunk chunk;
    chunk.epoch = epoch_;
    const size_t end = sent_ + std::min(waiting(), limits_.chunk);
    chunk.items.reserve(end - sent_);
    for (double bytes = 0; sent_ < end && fits(chunk.items.size(), bytes); ++sent_) {
      bytes += expected_bytes(pending_[sent_]);
      chunk.items.push_back(std::move(pending_[sent_]));
    }
    if (2 * sent_ >= pending_.size()) {  // amortised: each item moves once on average
      pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(sent_));
      sent_ = 0;
    }
    send(std::move(chunk));
  }
  if (waiting() > 0 || !ending()) return true;
  if (!has_room()) return false;
  Chunk last;
  last.epoch = epoch_;
  last.end = std::exchange(pending_end_, End::none);
  last.failure = std::exchange(pending_failure_, nullptr);
  if (last.end == End::epoch) {
    done_before_.reset();
    start_at(epoch_ + 1);
  }
  send(std::move(last));
  return true;
}

void SerialSegment::tell_pace() {
  pace_told_ns_ = now_ns();
  on_demand_->observe({host_.elapsed_seconds(), previous_->idle_seconds(Idle::blocked),
                       host_.consumer_starved_seconds()});
}

// Feeds the stage from the current chunk until a message's worth of output has accumulated.
void SerialSegment::process_some() {
  const int64_t begin = now_ns();
  const size_t first = position_;
  if (on_demand_ && on_demand_->adapts() && begin - pace_told_ns_ > kPaceNs) tell_pace();
  while (position_ < current_.items.size() && waiting() < limits_.chunk && !host_.stopped()) {
    if (!host_.wants(epoch_)) {
      position_ = current_.items.size();
      break;
    }
    Item& item = current_.items[position_++];
    ++stats_.items_in;
    // An item that is needed again may not have fitted into a batch that is a ghost now.
    if ((item.ghost || traits_.makes_batches) && host_.was_dropped(stats_.position, item, epoch_))
      continue;
    Item named;  // for errors, as the stage takes the item
    named.ordinal = item.ordinal;
    named.origin = item.origin;
    named.replica = item.replica;
    named.batch_number = item.batch_number;
    of_the_item_ = true;
    try {
      if (!item.ghost) stage_->admit(item);
      of_the_item_ = traits_.reads_items();
      stage_->process(std::move(item), *this);
    } catch (const Error& error) {
      if (!of_the_item_) throw;
      host_.bad_records().handle(stats_.name, stats_.position, named, error, epoch_,
                                 /*may_replace=*/false);
    }
  }
  const size_t processed = position_ - first;
  if (position_ >= current_.items.size()) finish_input();
  const int64_t end = now_ns();
  stats_.busy_ns += end - begin;
  host_.trace().add(stats_.name, begin, end, processed);
}

void SerialSegment::reject(const Item& item, const Error& error) {
  of_the_item_ = false;  // what handle() throws ends the run
  host_.bad_records().handle(stats_.name, stats_.position, item, error, epoch_,
                             /*may_replace=*/false);
  of_the_item_ = true;
}

void SerialSegment::finish_input() {
  has_current_ = false;
  if (current_.failure) {
    pending_failure_ = current_.failure;
    failed_ = true;
  } else if (current_.end != End::none) {
    stage_->finish_pass(*this);
    PassControl* const control = stage_->pass_control();
    const bool ends_epoch = current_.end == End::epoch;
    // A pass without the items that nobody wants any more says nothing about the data.
    if (host_.wants(epoch_) ? !control || control->forwards_end(ends_epoch) : ends_epoch)
      pending_end_ = current_.end;
  }
  release_upstream(current_);
}

// Echoes only while the consumer is about to wait, and never far ahead: a fresh sample that arrives
// now should not queue behind a burst of old ones.
size_t SerialSegment::echoes_wanted() const {
  const int64_t ahead = std::min(limits_.items, kEchoesAhead), queued = queued_items();
  return on_demand_ && queued < ahead && host_.wants(epoch_) && host_.consumer_starves()
             ? static_cast<size_t>(ahead - queued)
             : 0;
}

// One step of the head. Returns an Idle if it must wait.
std::optional<Segment::Idle> SerialSegment::step() {
  const bool close = ending();  // before an end, everything is sent
  if (!flush(close)) return no_room();
  if (close) return std::nullopt;
  if (failed_) return Idle::no;
  if (has_current_) {
    process_some();
    return std::nullopt;
  }
  if (take_input(current_)) {
    has_current_ = true;
    position_ = 0;
    return std::nullopt;
  }
  if (!flush(/*everything=*/true)) return no_room();
  if (const size_t most = echoes_wanted(); most > 0 && on_demand_->echo(most, *this) > 0)
    return std::nullopt;
  return Idle::starved;
}

Segment::Idle SerialSegment::advance() {
  while (!host_.stopped()) {
    try {
      if (const auto idle = step()) return *idle;
    } catch (...) {
      if (std::exchange(failed_, true)) throw;  // failed again while sending the failure
      pending_failure_ = current_error();
      if (has_current_) release_upstream(current_);
      has_current_ = false;
    }
  }
  return Idle::no;
}

}  // namespace etr::pipeline
