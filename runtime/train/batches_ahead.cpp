#include "train/batches_ahead.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"

namespace etr::train {
namespace {

constexpr const char* kTaken = "taken";
constexpr int64_t kRank = int64_t{1} << 32;  // more batches than a rank can hold

}  // namespace

size_t LengthBuckets::of(const pipeline::Item& batch) const {
  const Tensor* tensor = batch.find(field);
  if (!tensor || tensor->shape().size() < 2) return 0;
  const auto after = std::upper_bound(boundaries.begin(), boundaries.end(), tensor->shape()[1]);
  return static_cast<size_t>(after - boundaries.begin());
}

std::optional<LengthBuckets> LengthBuckets::of_pipeline(const Json& pipeline) {
  for (const Json& stage : pipeline.at("stages"))
    if (stage.at("stage") == "bucket")
      return LengthBuckets{stage.at("field").get<std::string>(),
                           stage.at("boundaries").get<std::vector<int64_t>>()};
  return std::nullopt;
}

BatchesAhead::BatchesAhead(pipeline::Pipeline& pipeline, LengthBuckets buckets, size_t most)
    : pipeline_(pipeline), buckets_(std::move(buckets)), most_(most) {}

bool BatchesAhead::wait(double seconds) {
  while (!is_full()) {
    if (!pipeline_.wait(seconds)) return false;
    read_one();
  }
  return true;
}

void BatchesAhead::read_one() {
  if (read_ > 0) before_ = std::make_shared<const Json>(pipeline_.save());
  pipeline::Item batch;
  if (pipeline_.next(batch) == pipeline::Pipeline::Next::end_of_epoch) {
    ended_ = true;
    return;
  }
  const uint64_t number = read_++;
  if (taken_.erase(number) > 0) return;
  const size_t bucket = buckets_.of(batch);
  held_.push_back({std::move(batch), bucket, number});
}

bool BatchesAhead::next(pipeline::Item& batch, const Sum& sum) {
  while (!is_full()) read_one();
  std::vector<int64_t> of_all(buckets_.count());
  for (const Held& held : held_) {
    int64_t& held_by_rank = of_all[held.bucket];
    held_by_rank += held_by_rank == 0 ? kRank + 1 : 1;
  }
  sum(of_all);
  if (held_.empty()) return false;
  const auto wanted = std::ranges::max_element(of_all) - of_all.begin();
  const auto away = [&](const Held& held) {
    return std::abs(static_cast<int64_t>(held.bucket) - static_cast<int64_t>(wanted));
  };
  // the oldest, since ties go to the first
  const auto nearest = std::ranges::min_element(held_, {}, away);
  batch = std::move(nearest->batch);
  held_.erase(nearest);
  return true;
}

void BatchesAhead::end_epoch() {
  if (!ended_) pipeline_.end_epoch();
  held_.clear();
  taken_.clear();
  before_.reset();
  ended_ = false;
  read_ = 0;
}

// At the end of its epoch the pipeline already reports the next epoch, so the position before the
// end is used.
Json BatchesAhead::position() const {
  Json position = ended_ && before_ ? *before_ : pipeline_.save();
  const uint64_t oldest = held_.empty() ? read_ : held_.front().number;
  Json taken = Json::array();
  for (uint64_t number = oldest; number < read_; ++number)
    if (std::ranges::find(held_, number, &Held::number) == held_.end())
      taken.push_back(number - oldest);
  for (const uint64_t number : taken_) taken.push_back(number - oldest);
  position["delivered"] = position["delivered"].get<uint64_t>() - (read_ - oldest);
  if (!taken.empty()) position[kTaken] = std::move(taken);
  return position;
}

bool BatchesAhead::has_taken(const Json& position) {
  return position.is_object() && position.contains(kTaken);
}

void BatchesAhead::restore(Json position) {
  if (has_taken(position)) {
    const Json& taken = position[kTaken];
    const auto is_number = [](const Json& number) { return number.is_number_unsigned(); };
    if (!taken.is_array() || !std::all_of(taken.begin(), taken.end(), is_number))
      fail(Code::corrupt_data, "the position is damaged: '", kTaken, "' is ", brief_json(taken),
           ", and not a list of numbers of batches");
    taken_ = taken.get<std::set<uint64_t>>();
    remove_member(position, kTaken);
  }
  pipeline_.restore(position);
}

}  // namespace etr::train
