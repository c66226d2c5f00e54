#include "stages/batching.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace etr::stages {

using namespace pipeline;

Batching::Batching(const Options& options)
    : size_(static_cast<size_t>(options.integer("size"))),
      drop_remainder_(options.boolean("drop_remainder")) {}

void Batching::start_epoch(uint64_t) {
  items_.clear();
  made_ = 0;
  rival_.reset();
}

// Nothing: `item` can be in a batch with `first`. Otherwise, `first` cannot be in one with `item`
// either.
std::optional<Error> Batching::misfit(const Item& first, const Item& item) const {
  if (first.ghost || item.ghost) return std::nullopt;
  try {
    check_fits(first, item);
    for (const Field& field : item.fields)
      if (!first.find(field.name))
        fail(Code::invalid_argument, "cannot batch: the sample has a field '", field.name,
             "', which the others of its batch lack; drop it with keep");
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

// If the first two samples do not fit together, the next one tells which of them is bad. This uses
// the samples of one batch only, because a restored run has not seen the batches before.
void Batching::process(Item&& item, Emitter& out) {
  if (rival_) settle(&item, out);
  if (const auto error = items_.empty() ? std::nullopt : misfit(items_.front(), item)) {
    if (items_.size() > 1) throw Error(*error);
    rival_ = std::move(item);
    return;
  }
  items_.push_back(std::move(item));
  if (items_.size() == size_) emit_batch(out);
}

// Rejects the held item if `next` fits its rival but not the held item, else the rival.
void Batching::settle(const Item* next, Emitter& out) {
  const Item rival = std::move(*rival_);
  rival_.reset();
  Item& held = items_.front();
  if (!next || !misfit(held, *next) || misfit(rival, *next))
    return out.reject(rival, *misfit(held, rival));
  const Item odd = std::exchange(held, rival);
  out.reject(odd, *misfit(rival, odd));
}

void Batching::finish_pass(Emitter& out) {
  if (rival_) settle(nullptr, out);
  if (!items_.empty() && !drop_remainder_) emit_batch(out);
  items_.clear();
}

void Batching::count(BatchInfo& info) {
  ordinals_.clear();
  int64_t age = 0;
  for (const Item& item : items_) {
    age += item.age;
    ordinals_.push_back(item.ordinal);
    ++(item.replica == 0 ? info.fresh : info.echoed);
  }
  std::sort(ordinals_.begin(), ordinals_.end());
  info.unique =
      static_cast<int32_t>(std::unique(ordinals_.begin(), ordinals_.end()) - ordinals_.begin());
  info.mean_age = static_cast<double>(age) / static_cast<double>(items_.size());
}

// Pixels are not copied; the batch shares them.
void Batching::join_views(Item& batch) const {
  auto views = std::make_shared<std::vector<ImageView>>();
  views->reserve(items_.size());
  for (const Item& item : items_) views->push_back(item.views->front());
  batch.views = std::move(views);
}

void Batching::emit_batch(Emitter& out) {
  const Item& first = items_.front();
  Item batch;
  batch.ordinal = first.ordinal;
  batch.batch_number = made_++;
  batch.origin = first.origin;
  batch.batch.size = static_cast<int32_t>(items_.size());
  for (const Item& item : items_) batch.ghost = batch.ghost || item.ghost;
  if (!batch.ghost) {
    count(batch.batch);
    for (const Field& field : first.fields) join(field.name, items_, batch);
    if (first.views) join_views(batch);
  } else if (first.token) {  // restoring: a held batch keeps its samples' tokens alive
    auto tokens = std::make_shared<std::vector<std::shared_ptr<void>>>();
    auto copies = std::make_shared<std::vector<std::pair<uint64_t, uint32_t>>>();
    tokens->reserve(items_.size());
    copies->reserve(items_.size());
    for (Item& item : items_) {
      tokens->push_back(std::move(item.token));
      copies->emplace_back(item.ordinal, item.replica);
    }
    batch.token = std::move(tokens);
    batch.copies = std::move(copies);
  }
  items_.clear();
  out.emit(std::move(batch));
}

}  // namespace etr::stages
