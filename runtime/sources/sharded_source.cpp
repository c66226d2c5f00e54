#include "sources/sharded_source.h"

#include <numeric>

#include "core/error.h"
#include "io/pattern.h"

namespace etr::sources {

using namespace pipeline;

ShardedSource::ShardedSource(const Options& options, const StageContext& context)
    : pattern_(options.string("pattern")),
      shuffle_(options.boolean("shuffle_shards")),
      context_(context) {}

void ShardedSource::start_pass(uint64_t epoch, uint64_t pass) {
  if (paths_.empty()) paths_ = io::expand_pattern(pattern_);
  order_.resize(paths_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  Rng rng(context_.seed, epoch, pass, context_.position);
  for (size_t i = order_.size(); shuffle_ && i > 1; --i)
    std::swap(order_[i - 1], order_[rng.below(static_cast<uint32_t>(i))]);
  shard_ = 0;
  leave();
}

bool ShardedSource::next(Item& item) {
  while (shard_ < order_.size()) {
    try {
      if (!open_) {
        shard_path_ = std::make_shared<std::string>(paths_[order_[shard_]]);
        open(*shard_path_);
        open_ = true;
      }
      if (read(item)) return true;
    } catch (const Error&) {
      item.origin = origin(current_key());
      if (!open_ || !can_go_on()) leave(1);  // the rest of this one is lost
      throw;
    }
    leave(1);
  }
  return false;
}

std::shared_ptr<const Origin> ShardedSource::origin(std::string key) {
  return std::make_shared<Origin>(Origin{shard_path_, std::move(key)});
}

void ShardedSource::leave(size_t shards) {
  shard_ += shards;
  open_ = false;
  close();
}

}  // namespace etr::sources
