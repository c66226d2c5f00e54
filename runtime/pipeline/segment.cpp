#include "pipeline/segment.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/clock.h"
#include "core/error.h"

namespace etr::pipeline {
namespace {

// Limits of a block, a group of items that go through a segment's maps together, and of a message.
// Bytes are those that leave the maps.
constexpr size_t kBlockItems = 16;
constexpr double kBlockBytes = 16384, kMessageBytes = 1 << 20, kMessageNs = 2e6;
constexpr double kGrowthKept = 0.95;  // weight of the growth before, at the next message

// At least 64 bytes, so that an item counts even if it only names what a map will read.
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

// Large items travel in small messages, so that threads share even a first batch, and so do items
// that take long in the maps: a thread in a message is not free for an echo node that the consumer
// waits for. The first message has one item, which tells how much items grow.
bool Segment::fits(size_t items, double bytes) const {
  if (!growth_known_.load()) return bytes < 1;
  return bytes < kMessageBytes && static_cast<double>(items) * item_ns_.load() < kMessageNs;
}

void Segment::connect(Segment* previous, Segment* next) {
  previous_ = previous;
  next_ = next;
}

void Segment::loosen(const Overtaking& overtaking) {
  limits_.chunk = 1;  // samples in one message would wait for each other
  loose_order_ = std::make_unique<LooseOrder>(overtaking.window(), [&overtaking](uint64_t epoch) {
    return overtaking.lets_overtake(epoch);
  });
}

void Segment::start(FlowGraph& graph) {
  path_ = graph.make_path([this](Chunk& chunk) { run_maps(chunk); },
                          [this](Chunk&& chunk) { hand_over(std::move(chunk)); },
                          {.ordered = !loose_order_, .threads = map_threads_});
  head_ = head_blocks() ? make_thread_task([this] { run_head(); })
                        : graph.make_task([this] { run_head(); });
}

void Segment::trigger() { head_->poke(); }

void Segment::run_head() noexcept {
  if (host_.stopped()) return;
  const int64_t now = now_ns();
  const Idle was = idle_.exchange(Idle::no);
  for (const Idle kind : {Idle::starved, Idle::blocked, Idle::maps})
    idle_ns_[static_cast<size_t>(kind)] += idle_ns(kind, was, now);
  Idle idle = Idle::no;
  try {
    idle = advance();
  } catch (...) {
    host_.abandon(current_error());
  }
  idle_since_ns_ = now_ns();
  idle_ = idle;
  if (idle == Idle::maps) idle_ = no_room();  // they may have been done before the time was noted
}

// How long the current wait, which began as `idle`, has been of kind `kind`. A wait for the maps
// turns into a wait for room when the maps are done while the queue behind them is more than half
// full, because the head is not woken in between.
int64_t Segment::idle_ns(Idle kind, Idle idle, int64_t now) const {
  const int64_t since = idle_since_ns_, ready = std::clamp(maps_ready_ns_.load(), since, now);
  const bool became_full = idle == Idle::maps && maps_ready_ns_.load() >= since;
  if (became_full)
    return kind == Idle::maps ? ready - since : kind == Idle::blocked ? now - ready : 0;
  return kind == idle ? now - since : 0;
}

double Segment::idle_seconds(Idle kind) const {
  const int64_t now = std::max<int64_t>(now_ns(), idle_since_ns_);
  return static_cast<double>(idle_ns_[static_cast<size_t>(kind)] + idle_ns(kind, idle_, now)) *
         1e-9;
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
  chunk.ends_before = ends_sent_;
  ends_sent_ += chunk.end != End::none;
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
  } catch (...) {  // its sequence number is missing now, so nothing after it could proceed
    host_.abandon(current_error());
  }
}

void Segment::release(const Chunk& chunk) {
  behind_items_ -= chunk.counted_items;
  behind_bytes_ -= chunk.counted_bytes;
  out_items_ -= chunk.counted_items;
  out_bytes_ -= chunk.counted_bytes;
  if (half_empty()) trigger();
}

// Runs one map on one item. Returns false if the record is dropped.
bool Segment::map_item(MapEntry& map, Item& item, uint64_t epoch) {
  StageStats& stats = *map.stats;
  if (item.ghost) return !host_.was_dropped(stats.position, item, epoch);
  if (item.missing) return true;
  if (item.cached && !map.stage->sample_cache()) return true;
  try {
    ++stats.items_in;
    map.stage->process(item, epoch);
    if (item.dropped) {
      host_.bad_records().note_drop(stats.position, item, epoch);
      return false;
    }
    ++stats.items_out;
    return true;
  } catch (const Error& error) {
    if (host_.stopped()) return false;  // nobody gets it: the end may have caused the error
    item.missing = host_.bad_records().handle(stats.name, stats.position, item, error, epoch);
    return item.missing;
  }
}

// Replaces each missing item by a copy of the last good one, in order. Drops the item if there is
// none.
void Segment::substitute(Chunk& chunk) {
  if (!host_.bad_records().uses(ErrorPolicy::substitute)) return;
  for (Item& item : chunk.items) {
    if (!item.missing) {
      last_good_ = item;
      continue;
    }
    if (last_good_.fields.empty() && !last_good_.views && !last_good_.cached) {
      host_.bad_records().note_drop(stats_.position, item, chunk.epoch);
      continue;
    }
    item.fields = last_good_.fields;
    item.views = last_good_.views;
    item.batch = last_good_.batch;  // the last batch of an epoch may be smaller
    item.origin = last_good_.origin;
    item.record.reset();  // a cache must not keep these fields as this record's
    item.cached = last_good_.cached;
    if (item.cached) {  // the cache downstream has the fields
      item.record = last_good_.record;
      item.stamp = last_good_.stamp;
    }
    item.missing = false;
  }
  std::erase_if(chunk.items, [](const Item& item) { return item.missing; });
}

// Runs stage by stage over a few items: enough to share one clock reading, and few enough that one
// stage's output is still cached for the next.
void Segment::run_block(Chunk& chunk, size_t first, size_t last, std::vector<char>& keep) {
  int64_t begin = now_ns();
  for (MapEntry& map : maps_) {
    for (size_t i = first; i < std::min(last, chunk.items.size()); ++i) {
      if (!keep[i]) continue;
      try {
        keep[i] = map_item(map, chunk.items[i], chunk.epoch);
      } catch (...) {  // ends the run after the items before
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
  if (!host_.wants(chunk.epoch)) {
    chunk.items.clear();
    chunk.sent_bytes = 0;  // it does not tell how much items grow
    return;
  }
  try {
    const int64_t begin = now_ns();
    const auto count = static_cast<double>(chunk.items.size());
    std::vector<char> keep(chunk.items.size(), 1);
    for (size_t first = 0; first < chunk.items.size();) {
      size_t last = first;
      double bytes = 0;
      while (last < chunk.items.size() && last - first < kBlockItems && bytes < kBlockBytes)
        bytes += expected_bytes(chunk.items[last++]);
      run_block(chunk, first, last, keep);
      first = last;
    }
    // Threads may overwrite each other's value: it is an estimate.
    item_ns_.store(0.8 * item_ns_.load() + 0.2 * static_cast<double>(now_ns() - begin) / count);
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
    if (!loose_order_) return pass_on(std::move(chunk));
    --in_maps_;  // chunks waiting for their turn do not occupy the maps
    for (Chunk& next : loose_order_->add(std::move(chunk))) pass_on(std::move(next));
    if (half_empty()) trigger();
  } catch (...) {
    host_.abandon(current_error());
  }
}

void Segment::pass_on(Chunk&& chunk) {
  substitute(chunk);
  // A run that is restored in the next epoch has not seen the samples of this one.
  if (chunk.end == End::epoch) last_good_ = {};
  // Maps change sizes: account for the actual size in the queue.
  const int64_t items = static_cast<int64_t>(chunk.items.size()), bytes = bytes_of(chunk);
  // The end of a pass without output fills the queue: nothing else would keep the head from running
  // through such passes while nobody takes their ends.
  pass_items_ += items;
  const bool empty_pass = chunk.end != End::none && std::exchange(pass_items_, 0) == 0;
  const int64_t counted = empty_pass ? limits_.items : items;
  out_items_ += counted - chunk.counted_items;
  out_bytes_ += bytes - chunk.counted_bytes;
  if (chunk.sent_bytes > 0) {
    // Decays, so that one large sample does not make all later ones count as much.
    const double grown = static_cast<double>(bytes) / static_cast<double>(chunk.sent_bytes);
    const double before = growth_.load(), kept = limits_.budgeted ? 1 : kGrowthKept;
    const double expected = std::max({1.0, grown, kept * before + (1 - kept) * grown});
    growth_.store(expected);  // no race: hand_over() is serialised
  }
  behind_items_ += counted;
  behind_bytes_ += bytes;
  chunk.counted_items = counted;
  chunk.counted_bytes = bytes;
  if (!loose_order_) --in_maps_;
  if (items > 0) growth_known_.store(true);
  if (held_back() && maps_ready_ns_ <= idle_since_ns_) maps_ready_ns_ = now_ns();
  if (half_empty()) trigger();  // the head may have waited for the maps
  if (!next_) return host_.deliver(std::move(chunk));
  {
    std::scoped_lock lock(next_->input_mutex_);
    next_->input_.push_back(std::move(chunk));
  }
  next_->trigger();
}

}  // namespace etr::pipeline
