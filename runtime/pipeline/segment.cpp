#include "pipeline/segment.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/clock.h"
#include "core/error.h"

namespace etr::pipeline {
namespace {

constexpr int64_t kPaceNs = 20'000'000;  // between two looks of an adapting stage at the pace

// What goes through the maps of a segment together; bytes as it leaves them.
constexpr size_t kBlockItems = 16;
constexpr double kBlockBytes = 16384, kMessageBytes = 1 << 20;

// An item counts for something even before a map reads what it names.
int64_t bytes_of(const Item& item) {
  return static_cast<int64_t>(std::max<size_t>(item.size_bytes(), 64));
}

int64_t bytes_of(const Chunk& chunk) {
  int64_t total = 0;
  for (const Item& item : chunk.items) total += bytes_of(item);
  return total;
}

const std::shared_ptr<const Error>& no_memory_error() {
  static const auto error =
      std::make_shared<const Error>(Code::out_of_memory, "out of memory in the pipeline");
  return error;
}

std::shared_ptr<const Error> error_of_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return std::make_shared<const Error>(error);
  } catch (const std::bad_alloc&) {
    return no_memory_error();
  } catch (const std::exception& error) {
    return std::make_shared<const Error>(Code::internal, error.what());
  } catch (...) {
    return std::make_shared<const Error>(Code::internal, "an unknown exception in a stage");
  }
}

}  // namespace

void keep_no_memory_error() { no_memory_error(); }

std::shared_ptr<const Error> current_error() noexcept {
  try {
    return error_of_exception();
  } catch (...) {
    return no_memory_error();
  }
}

Segment::Segment(SegmentHost& host, std::string head_name, uint64_t position, QueueLimits limits)
    : host_(host), limits_(limits) {
  stats_.name = std::move(head_name);
  stats_.position = position;
}

double Segment::expected_bytes(const Item& item) const {
  return growth_.load() * static_cast<double>(bytes_of(item));
}

// Large items travel in small messages, so that the threads share even a first batch; the first message is one item, which
// tells how large they become.
bool Segment::fits(double bytes) const {
  return bytes < (growth_known_.load() ? kMessageBytes : 1);
}

void Segment::connect(Segment* previous, Segment* next) {
  previous_ = previous;
  next_ = next;
}

void Segment::start(FlowGraph& graph) {
  path_ = graph.make_path([this](Chunk& chunk) { run_maps(chunk); },
                          [this](Chunk&& chunk) { hand_over(std::move(chunk)); });
  head_ = head_blocks() ? make_thread_task([this] { run_head(); })
                        : graph.make_task([this] { run_head(); });
}

void Segment::trigger() { head_->poke(); }

void Segment::run_head() noexcept {
  if (host_.stopped()) return;
  const int64_t now = now_ns();
  idle_ns_[static_cast<size_t>(idle_.exchange(Idle::no))] += now - idle_since_ns_;
  Idle idle = Idle::no;
  try {
    idle = advance();
  } catch (...) {
    host_.abandon(current_error());
  }
  idle_since_ns_ = now_ns();
  idle_ = idle;
}

double Segment::idle_seconds(Idle kind) const {
  int64_t total = idle_ns_[static_cast<size_t>(kind)];
  if (idle_ == kind) total += std::max<int64_t>(now_ns() - idle_since_ns_, 0);
  return static_cast<double>(total) * 1e-9;
}

bool Segment::take_input(Chunk& chunk) {
  std::scoped_lock lock(input_mutex_);
  if (input_.empty()) return false;
  chunk = std::move(input_.front());
  input_.pop_front();
  return true;
}

void Segment::send(Chunk&& chunk) {
  chunk.sequence = next_sequence_++;
  chunk.counted_items = static_cast<int64_t>(chunk.items.size());
  chunk.sent_bytes = bytes_of(chunk);
  chunk.counted_bytes =
      static_cast<int64_t>(static_cast<double>(chunk.sent_bytes) * growth_.load());
  ++in_maps_;
  out_items_ += chunk.counted_items;
  out_bytes_ += chunk.counted_bytes;
  stats_.items_out += chunk.counted_items;
  try {
    path_->put(std::move(chunk));
  } catch (...) {  // its number is missing now: nothing behind it could go on
    host_.abandon(current_error());
  }
}

void Segment::release(const Chunk& chunk) {
  out_items_ -= chunk.counted_items;
  out_bytes_ -= chunk.counted_bytes;
  if (half_empty()) trigger();
}

// Runs one map on one item; false where the record is dropped.
bool Segment::map_item(MapEntry& map, Item& item, uint64_t epoch) {
  StageStats& stats = *map.stats;
  if (item.ghost) return !host_.was_dropped(stats.position, item.ordinal);
  if (item.missing) return true;
  if (item.cached && !map.stage->sample_cache()) return true;
  try {
    ++stats.items_in;
    map.stage->process(item, epoch);
    if (item.dropped) {
      host_.bad_records().note_drop(stats.position, item.ordinal, epoch);
      return false;
    }
    ++stats.items_out;
    return true;
  } catch (const Error& error) {
    item.missing = host_.bad_records().handle(stats.name, stats.position, item, error, epoch);
    return item.missing;
  }
}

// In order: each missing item becomes a copy of the last good one. Without one before it, it is dropped.
void Segment::substitute(Chunk& chunk) {
  if (!host_.bad_records().uses(ErrorPolicy::substitute)) return;
  for (Item& item : chunk.items) {
    if (!item.missing) {
      last_good_ = item;
      continue;
    }
    if (last_good_.fields.empty()) {
      host_.bad_records().note_drop(stats_.position, item.ordinal, chunk.epoch);
      continue;
    }
    item.fields = last_good_.fields;
    item.origin = last_good_.origin;
    item.missing = false;
  }
  std::erase_if(chunk.items, [](const Item& item) { return item.missing; });
}

// Stage by stage over a few items: enough for one clock reading to serve several, few enough for what
// one stage leaves to be in the cache for the next.
void Segment::run_block(Chunk& chunk, size_t first, size_t last, std::vector<char>& keep) {
  int64_t begin = now_ns();
  for (MapEntry& map : maps_) {
    for (size_t i = first; i < std::min(last, chunk.items.size()); ++i) {
      if (!keep[i]) continue;
      try {
        keep[i] = map_item(map, chunk.items[i], chunk.epoch);
      } catch (...) {  // ends the run: what came before is still delivered
        chunk.failure = current_error();
        chunk.end = End::none;
        chunk.items.resize(i);
      }
    }
    const int64_t end = now_ns();
    map.stats->busy_ns += end - begin;
    host_.trace().add(map.stats->name, begin, end, last - first);
    begin = end;
  }
}

void Segment::run_maps(Chunk& chunk) noexcept {
  if (maps_.empty() || chunk.items.empty() || host_.stopped()) return;
  try {
    std::vector<char> keep(chunk.items.size(), 1);
    for (size_t first = 0; first < chunk.items.size();) {
      size_t last = first;
      double bytes = 0;
      while (last < chunk.items.size() && last - first < kBlockItems && bytes < kBlockBytes)
        bytes += expected_bytes(chunk.items[last++]);
      run_block(chunk, first, last, keep);
      first = last;
    }
    size_t i = 0;
    std::erase_if(chunk.items, [&](const Item&) { return !keep[i++]; });
  } catch (...) {
    chunk.failure = current_error();
    chunk.end = End::none;
    chunk.items.clear();  // some have not been through the maps
  }
}

void Segment::hand_over(Chunk&& chunk) noexcept {
  try {
    pass_on(std::move(chunk));
  } catch (...) {
    host_.abandon(current_error());
  }
}

void Segment::pass_on(Chunk&& chunk) {
  substitute(chunk);
  // Maps change sizes: account what really lies in the queue.
  const int64_t items = static_cast<int64_t>(chunk.items.size()), bytes = bytes_of(chunk);
  out_items_ += items - chunk.counted_items;
  out_bytes_ += bytes - chunk.counted_bytes;
  if (chunk.sent_bytes > 0) {
    const double grown = static_cast<double>(bytes) / static_cast<double>(chunk.sent_bytes);
    growth_.store(std::max(growth_.load(), grown));  // hand_over() runs one at a time
  }
  chunk.counted_items = items;
  chunk.counted_bytes = bytes;
  --in_maps_;
  if (items > 0) growth_known_.store(true);
  if (half_empty()) trigger();  // the head may have waited for the maps
  if (!next_) return host_.deliver(std::move(chunk));
  {
    std::scoped_lock lock(next_->input_mutex_);
    next_->input_.push_back(std::move(chunk));
  }
  next_->trigger();
}

// Sources ---------------------------------------------------------------------------------------

SourceSegment::SourceSegment(SegmentHost& host, std::string name, QueueLimits limits,
                             std::unique_ptr<Source> source, uint64_t passes, uint64_t epochs)
    : Segment(host, std::move(name), 0, limits),
      source_(std::move(source)),
      passes_(passes),
      epochs_(epochs) {}

std::vector<uint64_t> SourceSegment::pass_lengths(uint64_t epoch) const {
  std::scoped_lock lock(lengths_mutex_);
  const auto it = lengths_.find(epoch);
  return it == lengths_.end() ? std::vector<uint64_t>{} : it->second;
}

std::optional<uint64_t> SourceSegment::last_pass_length() const {
  std::scoped_lock lock(lengths_mutex_);
  return last_length_;
}

void SourceSegment::begin_at(uint64_t epoch, uint64_t pass, uint64_t index,
                             std::vector<uint64_t> lengths) {
  std::scoped_lock lock(lengths_mutex_);
  pass_ = pass;
  first_index_ = index;
  lengths.resize(pass);
  lengths_[epoch] = std::move(lengths);
}

void SourceSegment::forget_before(uint64_t epoch) {
  std::scoped_lock lock(lengths_mutex_);
  lengths_.erase(lengths_.begin(), lengths_.lower_bound(epoch));
}

// Goes past samples of other ranks, bad ones too: their ranks see to them.
void SourceSegment::pass_over(uint64_t samples) {
  for (uint64_t i = 0; i < samples && !pass_ended_ && !host_.stopped(); ++i) {
    try {
      pass_ended_ = !source_->skip();
    } catch (const Error&) {
    }
  }
}

bool SourceSegment::read_or_recall(Item& item) {
  if (!cache_) return source_->next(item);
  const auto upcoming = source_->upcoming();
  if (upcoming && cache_->has(*upcoming)) {
    item.record = upcoming;
    item.cached = true;
    return source_->skip();
  }
  if (!source_->next(item)) return false;
  item.record = source_->record();
  return true;
}

// The next own sample of the pass, without payload where it is a ghost; false at the end of the pass.
bool SourceSegment::read_own(Item& item) {
  pass_over(rank_);
  item = {};
  item.ordinal = pass_ << kPassShift | (index_ * world_ + rank_);
  item.ghost = ghost_ && ghost_(item.ordinal);
  std::exception_ptr bad;
  try {
    if (!pass_ended_) pass_ended_ = !(item.ghost ? source_->skip() : read_or_recall(item));
  } catch (const Error&) {
    bad = std::current_exception();
  }
  pass_over(world_ - 1 - rank_);
  if (pass_ended_) return false;  // also where the others of this round are missing
  ++index_;  // a bad record keeps its number, so that a restored run numbers the rest alike
  if (bad) std::rethrow_exception(bad);
  return true;
}

// Reads the next usable item; bad records are handled here. Sets `end` at the end of the pass.
bool SourceSegment::next_item(Item& item, End& end) {
  while (!host_.stopped()) {
    const Demand demand = demand_(epoch_, pass_);
    if (demand != Demand::more) {
      end = demand == Demand::end_epoch ? End::epoch : End::pass;
      return false;
    }
    try {
      if (read_own(item)) {
        ++stats_.items_in;
        host_.bad_records().count_read(1);
        if (item.ghost && host_.was_dropped(stats_.position, item.ordinal)) continue;
        return true;
      }
      std::scoped_lock lock(lengths_mutex_);
      last_length_ = index_;
      end = End::pass;
      return false;
    } catch (const Error& error) {
      host_.bad_records().count_read(1);
      item.missing = host_.bad_records().handle(stats_.name, stats_.position, item, error, epoch_);
      if (item.missing) return true;
    }
  }
  return false;
}

void SourceSegment::end_pass(Chunk& chunk, End end) {
  in_pass_ = false;
  {
    std::scoped_lock lock(lengths_mutex_);
    lengths_[epoch_].push_back(index_);
  }
  ++pass_;
  chunk.end = end == End::epoch || pass_ == passes_ ? End::epoch : End::pass;
  if (chunk.end == End::pass) return;
  pass_ = 0;
  ++epoch_;
  ghost_ = nullptr;
  done_ = epochs_ != 0 && epoch_ >= epochs_;
}

Segment::Idle SourceSegment::advance() {
  // A slow source does not hold back a part-filled chunk.
  constexpr int64_t kPatienceNs = 1'000'000;
  while (!host_.stopped() && !done_) {
    if (!has_room()) return no_room();
    Chunk chunk;
    chunk.epoch = epoch_;
    chunk.items.reserve(limits_.chunk);
    const int64_t begin = now_ns();
    int64_t reading_since = begin;
    try {
      if (!in_pass_) {
        pass_ended_ = false;
        in_pass_ = true;
        source_->start_pass(epoch_, pass_);
        index_ = std::exchange(first_index_, 0);
        pass_over(index_ * world_);
        reading_since = now_ns();
      }
      End end = End::none;
      Item item;
      double bytes = 0;
      while (chunk.items.size() < limits_.chunk && fits(bytes) &&
             now_ns() - reading_since < kPatienceNs && next_item(item, end)) {
        bytes += expected_bytes(item);
        chunk.items.push_back(std::move(item));
      }
      if (end != End::none) end_pass(chunk, end);
    } catch (...) {
      chunk.failure = current_error();
      done_ = true;
    }
    const int64_t done = now_ns();
    stats_.busy_ns += done - begin;
    host_.trace().add(stats_.name, begin, done, chunk.items.size());
    send(std::move(chunk));
  }
  return Idle::no;
}

// Serial stages ---------------------------------------------------------------------------------

SerialSegment::SerialSegment(SegmentHost& host, std::string name, uint64_t position,
                             QueueLimits limits, std::unique_ptr<SerialStage> stage)
    : Segment(host, std::move(name), position, limits), stage_(std::move(stage)) {}

void SerialSegment::start_at(uint64_t epoch, bool under_way) {
  epoch_ = epoch;
  if (!under_way) stage_->start_epoch(epoch);
}

// Sends what the stage has emitted while there is room; false when something remains.
bool SerialSegment::flush(bool everything) {
  while (waiting() > 0 && (everything || waiting() >= limits_.chunk)) {
    if (!has_room()) return false;
    Chunk chunk;
    chunk.epoch = epoch_;
    const size_t end = sent_ + std::min(waiting(), limits_.chunk);
    chunk.items.reserve(end - sent_);
    for (double bytes = 0; sent_ < end && fits(bytes); ++sent_) {
      bytes += expected_bytes(pending_[sent_]);
      chunk.items.push_back(std::move(pending_[sent_]));
    }
    if (2 * sent_ >= pending_.size()) {  // amortised: each item is moved up once on average
      pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(sent_));
      sent_ = 0;
    }
    send(std::move(chunk));
  }
  if (waiting() > 0 || !ending()) return true;
  Chunk last;
  last.epoch = epoch_;
  last.end = std::exchange(pending_end_, End::none);
  last.failure = std::exchange(pending_failure_, nullptr);
  if (last.end == End::epoch) start_at(epoch_ + 1);
  send(std::move(last));
  return true;
}

void SerialSegment::tell_pace() {
  pace_told_ns_ = now_ns();
  stage_->observe({host_.elapsed_seconds(), previous_->idle_seconds(Idle::blocked),
                   host_.consumer_starved_seconds()});
}

// Feeds the stage from the current chunk until a message's worth of output has gathered.
void SerialSegment::process_some() {
  const int64_t begin = now_ns();
  const size_t first = position_;
  if (stage_->adapts() && begin - pace_told_ns_ > kPaceNs) tell_pace();
  while (position_ < current_.items.size() && waiting() < limits_.chunk && !host_.stopped()) {
    Item& item = current_.items[position_++];
    ++stats_.items_in;
    if (item.ghost && host_.was_dropped(stats_.position, item.ordinal)) continue;
    Item named;  // for the error: the stage takes the item
    named.ordinal = item.ordinal;
    named.origin = item.origin;
    try {
      stage_->process(std::move(item), *this);
    } catch (const Error& error) {
      if (host_.bad_records().handle(stats_.name, stats_.position, named, error, epoch_))
        host_.bad_records().note_drop(stats_.position, named.ordinal, epoch_);
    }
  }
  const size_t processed = position_ - first;
  if (position_ >= current_.items.size()) finish_input();
  const int64_t end = now_ns();
  stats_.busy_ns += end - begin;
  host_.trace().add(stats_.name, begin, end, processed);
}

void SerialSegment::finish_input() {
  has_current_ = false;
  if (current_.failure) {
    pending_failure_ = current_.failure;
    failed_ = true;
  } else if (current_.end != End::none) {
    stage_->finish_pass(*this);
    if (stage_->forwards_end(current_.end == End::epoch)) pending_end_ = current_.end;
  }
  release_upstream(current_);
}

// Echoes only while the consumer is about to wait, and never far ahead: a fresh sample that arrives
// now should not queue behind a burst of old ones.
bool SerialSegment::may_echo() const {
  return stage_->echoes_on_demand() && host_.consumer_starves() &&
         queued_items() < static_cast<int64_t>(limits_.chunk);
}

// One step of the head; an Idle where it must wait.
std::optional<Segment::Idle> SerialSegment::step() {
  const bool close = ending();  // before an end goes out, everything goes out
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
  if (may_echo() && stage_->echo_one(*this)) return std::nullopt;
  return Idle::starved;
}

Segment::Idle SerialSegment::advance() {
  while (!host_.stopped()) {
    try {
      if (const auto idle = step()) return *idle;
    } catch (...) {
      if (std::exchange(failed_, true)) throw;  // the failure itself cannot be sent
      pending_failure_ = current_error();
      if (has_current_) release_upstream(current_);
      has_current_ = false;
    }
  }
  return Idle::no;
}

}  // namespace etr::pipeline
