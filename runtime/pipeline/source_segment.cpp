// The segment of a source: passes and epochs, one rank's records, and recalling samples from a
// cache.
#include "pipeline/segment.h"

#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "pipeline/cache_upstream.h"
#include "pipeline/rest_lost.h"

namespace etr::pipeline {
namespace {

// Ends the run under every policy.
class CountLost : public Error {
 public:
  CountLost(const std::string& stage, const Error& error)
      : Error(error.code(),
              cat("stage '", stage, "': ", error.what(),
                  " (on_error does not cover this: it is unknown how many records are lost, and "
                  "therefore which ones other ranks read or a saved position refers to; make the "
                  "data readable, and resume)")) {}
};

// Whether each rank and each run meets the error at the same record, and counts alike after it.
bool lies_in_data(const Error& error) {
  switch (error.code()) {
    case Code::corrupt_data:
    case Code::unsupported:
    case Code::invalid_argument:
    case Code::callback: return true;
    default: return false;
  }
}

}  // namespace

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

std::shared_ptr<const Json> SourceSegment::data() const {
  std::scoped_lock lock(lengths_mutex_);
  return data_;
}

// Records the source's own listing, which is fixed for the whole run even if the folder changes.
std::shared_ptr<const Json> SourceSegment::list() {
  if (data_) return data_;
  auto data = std::make_shared<const Json>(source_->data());
  const auto samples = source_->samples();
  std::scoped_lock lock(lengths_mutex_);
  data_ = std::move(data);
  samples_ = samples;
  return data_;
}

void SourceSegment::note_data() {
  const auto data = list();
  if (!cache_ || !cache_->is_shared() || cache_open_) return;
  cache_->open(cache_upstream(before_cache_, *data, source_->changed()));
  cache_open_ = true;
}

std::optional<uint64_t> SourceSegment::samples() const {
  std::scoped_lock lock(lengths_mutex_);
  return samples_;
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

// The number of the sample at a place in the order that all ranks share.
uint64_t SourceSegment::number_of(uint64_t place) const {
  return done_before_ ? done_before_->left(pass_, place) : place;
}

// Skips samples of other ranks, including bad ones, which their ranks handle.
void SourceSegment::go_to(uint64_t number) {
  for (; number_ < number && !pass_ended_ && !host_.stopped(); ++number_) {
    try {
      pass_ended_ = !source_->skip();
    } catch (const Error& error) {
      if (!lies_in_data(error)) throw CountLost(stats_.name, error);
    }
  }
}

bool SourceSegment::read_or_recall(Item& item) {
  if (!cache_) return source_->next(item);
  const auto upcoming = source_->upcoming();
  if (upcoming && cache_->is_shared()) item.stamp = source_->stamp(*upcoming);
  if (upcoming && cache_->has(*upcoming, item.stamp)) {
    item.record = upcoming;
    item.cached = true;
    return source_->skip();
  }
  if (!source_->next(item)) return false;
  item.record = source_->record();
  return true;
}

// Reads the next own sample of the pass, without payload if it is a ghost. Returns false at the end
// of the pass.
bool SourceSegment::read_own(Item& item) {
  const uint64_t round = index_ * world_;
  go_to(number_of(round + rank_));
  item = {};
  item.ordinal = pass_ << kPassShift | number_of(round + rank_);
  item.ghost = ghost_ && ghost_(item.ordinal);
  std::exception_ptr bad;
  try {
    if (!pass_ended_) pass_ended_ = !(item.ghost ? source_->skip() : read_or_recall(item));
  } catch (const Error& error) {
    const bool loses_rest = dynamic_cast<const RestLost*>(&error) && !lies_in_data(error);
    if (loses_rest && (world_ > 1 || item.ghost)) throw CountLost(stats_.name, error);
    bad = std::current_exception();
  }
  if (pass_ended_) return false;
  ++number_;
  go_to(number_of(round + world_ - 1) + 1);
  if (pass_ended_ && drop_remainder_) return false;  // the other samples of this round are missing
  ++index_;  // also for bad records, so that the numbers after them are the same in a restored run
  if (bad) std::rethrow_exception(bad);
  return true;
}

// Reads the next usable item and handles bad records. Sets `end` at the end of the pass.
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
        ++uncounted_;
        if (item.ghost && host_.was_dropped(stats_.position, item, epoch_)) continue;
        return true;
      }
      std::scoped_lock lock(lengths_mutex_);
      if (!done_before_) last_length_ = index_;
      end = End::pass;
      return false;
    } catch (const Error& error) {
      if (host_.stopped()) return false;  // nobody gets it: the end may have caused the error
      if (dynamic_cast<const CountLost*>(&error)) throw;
      ++uncounted_;
      count_reads();
      item.missing = host_.bad_records().handle(stats_.name, stats_.position, item, error, epoch_);
      if (item.missing) return true;
    }
  }
  return false;
}

// Called once per message, because taking a lock takes about as long as reading a small record.
void SourceSegment::count_reads() {
  if (uncounted_) host_.bad_records().count_read(std::exchange(uncounted_, 0), epoch_);
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
  done_before_.reset();
  done_ = epochs_ != 0 && epoch_ >= epochs_;
}

Segment::Idle SourceSegment::advance() {
  // A slow source does not hold back a partly filled chunk.
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
        note_data();
        number_ = 0;
        index_ = std::exchange(first_index_, 0);
        if (index_ > 0) go_to(number_of(index_ * world_ - 1) + 1);
        if (pass_ended_)
          fail(Code::corrupt_data, "the saved position lies ", index_,
               " samples into a pass over the data, which has fewer");
        reading_since = now_ns();
      }
      End end = End::none;
      Item item;
      double bytes = 0;
      while (chunk.items.size() < limits_.chunk && fits(chunk.items.size(), bytes) &&
             now_ns() - reading_since < kPatienceNs && next_item(item, end)) {
        bytes += expected_bytes(item);
        chunk.items.push_back(std::move(item));
      }
      count_reads();
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

}  // namespace etr::pipeline
