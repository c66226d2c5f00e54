#include "sources/sharded_source.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/json.h"
#include "io/pattern.h"
#include "pipeline/rest_lost.h"
#include "sources/data_files.h"
#include "sources/reading.h"

namespace etr::sources {

using namespace pipeline;

namespace {

io::ReadOptions with_ratio(io::ReadOptions reading, double max_ratio) {
  reading.max_ratio = max_ratio;
  reading.ratio_option = kMaxRatioOption.name;
  return reading;
}

}  // namespace

ShardedSource::ShardedSource(const Options& options, const StageContext& context)
    : pattern_(options.string("pattern")),
      shuffle_(options.boolean("shuffle_shards")),
      context_(context),
      reading_(with_ratio(read_options(context), options.number("max_ratio"))) {}

void ShardedSource::list() {
  if (paths_.empty()) paths_ = io::expand_pattern(pattern_, reading_.remote);
}

Json ShardedSource::data() {
  list();
  return describe_files(paths_);
}

Json ShardedSource::changed() {
  list();
  return times_of(paths_);
}

void ShardedSource::start_pass(uint64_t epoch, uint64_t pass) {
  list();
  order_.resize(paths_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  Rng rng(context_.seed, epoch, pass, context_.position);
  if (shuffle_) shuffle(order_, rng);
  if (context_.parts > 1) {
    std::vector<size_t> part;
    for (size_t i = context_.part; i < order_.size(); i += context_.parts)
      part.push_back(order_[i]);
    order_ = std::move(part);
  }
  shard_ = 0;
  leave();
}

bool ShardedSource::past_known_end() const {
  const auto length = lengths_.find(shard());
  return length != lengths_.end() && place_ >= length->second;
}

// Reads the record at place_ of the current shard, opening it if needed. Returns false at its end.
bool ShardedSource::read_here(Item& item) {
  if (!open_) {
    shard_path_ = std::make_shared<std::string>(paths_[shard()]);
    open(*shard_path_);
    open_ = true;
  }
  while (true) {
    const bool wanted = read_ == place_;
    try {
      if (!read(item)) return false;
      ++read_;
      if (wanted) break;
      item.fields.clear();
    } catch (const Error&) {
      ++read_;
      if (wanted || !can_go_on()) throw;  // skipped records may be bad
    }
  }
  given_ = static_cast<uint64_t>(shard()) << 40 | place_++;
  return true;
}

bool ShardedSource::next(Item& item) {
  while (shard_ < order_.size()) {
    try {
      if (!past_known_end() && read_here(item)) return true;
      lengths_[shard()] = place_;
    } catch (const Error& error) {
      item.origin = origin(current_key());
      if (!open_ || !can_go_on()) {
        leave(1);
        throw RestLost(error);
      }
      place_ = read_;
      throw;
    }
    leave(1);
  }
  return false;
}

bool ShardedSource::skip() {
  while (shard_ < order_.size() && lengths_.contains(shard())) {
    if (!past_known_end()) return ++place_;
    leave(1);
  }
  Item unused;
  return next(unused);
}

std::optional<uint64_t> ShardedSource::upcoming() {
  while (shard_ < order_.size() && past_known_end()) leave(1);
  if (shard_ == order_.size()) return std::nullopt;
  return static_cast<uint64_t>(shard()) << 40 | place_;
}

std::shared_ptr<const Origin> ShardedSource::origin(std::string key) {
  return std::make_shared<Origin>(Origin{shard_path_, std::move(key), current_offset()});
}

std::unique_ptr<io::ByteStream> ShardedSource::stream_of(const std::string& path) {
  auto stream = io::open_stream(path, reading_);
  stream_ = stream.get();
  return stream;
}

void ShardedSource::note_held() {
  if (open_) held_bytes_ = std::max(held_bytes_, stream_->holds_bytes());
}

double ShardedSource::holds_bytes(double) {
  note_held();
  return static_cast<double>(held_bytes_);
}

void ShardedSource::leave(size_t shards) {
  note_held();
  shard_ += shards;
  place_ = read_ = 0;
  open_ = false;
  close();
}

}  // namespace etr::sources
