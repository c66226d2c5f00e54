#include "echo/echo_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace etr::echo {
namespace {

// Takes the whole part of what is owed. A value just below an integer counts as that integer, so
// that the result does not depend on rounding of the sum.
uint32_t whole_of(double& owed) {
  const double whole = std::max(std::floor(owed + 1e-9), 0.0);
  owed -= whole;
  return static_cast<uint32_t>(whole);
}

}  // namespace

void make_copy(pipeline::Item& item, uint32_t use) {
  item.replica = item.replica * kUseNumbers + use;
  if (item.replica > 0) item.batch.echoed += std::exchange(item.batch.fresh, 0);
}

uint32_t CopyCounter::next() {
  owed_ += factor_;
  return whole_of(owed_);
}

void EchoBuffer::add(pipeline::Item item, Uses uses, int64_t bytes, Rng& rng) {
  if (uses.used >= uses.most) return;
  if (bytes > limit_bytes_)
    fail(Code::out_of_memory, "the echo buffer: one sample takes ", counted(bytes, "byte"),
         ", and 'buffer_bytes' is ", limit_bytes_, "; raise 'buffer_bytes'");
  if (bytes_ + bytes > limit_bytes_)
    fail(Code::out_of_memory, "the echo buffer holds ", counted(size(), "sample"), " of ",
         counted(bytes_, "byte"), " and may not exceed ", limit_bytes_,
         "; lower 'buffer' or raise 'buffer_bytes'");
  copies_ += uses.left();
  bytes_ += bytes;
  samples_.push_back({std::move(item), uses, bytes, order_.end(), 0});
  put(std::prev(samples_.end()), rng);
}

// Places the sample where draw() finds it.
void EchoBuffer::put(Samples::iterator held, Rng& rng) {
  const uint64_t number = numbers_++;
  const uint32_t used = held->uses.used;
  if (held->uses.left() == 0) {
    held->place = order_.emplace(Key(true, used, number), held).first;
    return;
  }
  if (draw_ == Draw::uniform) {
    held->mixed = mixed_.size();
    mixed_.push_back(held);
    return;
  }
  uint64_t by = draw_ == Draw::newest ? UINT64_MAX - number : used;
  // With n samples held, the next use is n/2 to 3n/2 draws ahead.
  if (draw_ == Draw::spread)
    by = 2 * draws_ + size() + rng.below(static_cast<uint32_t>(2 * size()));
  held->place = order_.emplace(Key(false, by, number), held).first;
}

void EchoBuffer::take(const Held& held) {
  if (held.place != order_.end()) {
    order_.erase(held.place);
    return;
  }
  mixed_[held.mixed] = mixed_.back();
  mixed_[held.mixed]->mixed = held.mixed;
  mixed_.pop_back();
}

void EchoBuffer::use(Held& held, pipeline::Item& out) {
  const uint32_t number = held.uses.given ? (*held.uses.given)++ : held.uses.used;
  if (held.uses.used++ < held.uses.planned) --copies_;
  if (held.uses.used == held.uses.most)
    out = std::move(held.item);
  else
    out = held.item;
  make_copy(out, number);
}

bool EchoBuffer::use_next(Samples::iterator held, pipeline::Item& out, Rng& rng) {
  ++draws_;
  take(*held);
  held->place = order_.end();
  use(*held, out);
  if (held->uses.used < held->uses.most) {
    put(held, rng);
    return true;
  }
  bytes_ -= held->bytes;
  samples_.erase(held);
  return true;
}

bool EchoBuffer::draw(pipeline::Item& out, Rng& rng) {
  if (!mixed_.empty())
    return use_next(mixed_[rng.below(static_cast<uint32_t>(mixed_.size()))], out, rng);
  if (order_.empty() || std::get<0>(order_.begin()->first)) return false;
  return use_next(order_.begin()->second, out, rng);
}

bool EchoBuffer::draw_spent(pipeline::Item& out, Rng& rng) {
  const auto first = order_.lower_bound({true, 0, 0});
  return first != order_.end() && use_next(first->second, out, rng);
}

EchoBuffer::Samples::iterator EchoBuffer::least_worth(Rng& rng) {
  if (draw_ == Draw::spread) return samples_.begin();
  if (order_.empty()) return mixed_[rng.below(static_cast<uint32_t>(mixed_.size()))];
  const auto [spent, by, number] = std::prev(order_.end())->first;
  const bool by_use = spent || draw_ == Draw::least_used;  // of the most used, the oldest
  return order_.lower_bound({spent, by, by_use ? 0 : number})->second;
}

uint32_t EchoBuffer::evict(Rng& rng) {
  if (size() == 0) return 0;
  const auto held = least_worth(rng);
  const uint32_t left = held->uses.left();
  take(*held);
  copies_ -= left;
  bytes_ -= held->bytes;
  samples_.erase(held);
  return left;
}

void EchoBuffer::clear() {
  samples_.clear();
  order_.clear();
  mixed_.clear();
  numbers_ = draws_ = copies_ = 0;
  bytes_ = 0;
}

uint32_t Credit::repaid(uint32_t uses) {
  const int64_t back = std::clamp<int64_t>(-uses_, 0, static_cast<int64_t>(uses) - 1);
  uses_ += back;
  return uses - static_cast<uint32_t>(back);
}

uint32_t EchoPlan::echoes_after_fresh() {
  owed_ += factor_ - 1;
  return whole_of(owed_);
}

void EchoPlan::observe(const pipeline::Pace& pace, uint64_t fresh, uint64_t given) {
  // The first items only fill the queues and say nothing about the pace.
  if (!started_ && static_cast<double>(fresh) < kItems) return;
  const Sums now{pace.elapsed_s, pace.upstream_held_s, static_cast<double>(fresh),
                 static_cast<double>(given)};
  const Sums before = std::exchange(last_, now);
  if (!std::exchange(started_, true)) return;
  const double elapsed = now.elapsed_s - before.elapsed_s, items = now.fresh - before.fresh;
  const double kept = std::exp(-std::min(elapsed / kSeconds, items / kItems));
  if (owed_ < 0) owed_ *= kept;
  const auto add = [kept](double& sum, double more) { sum = kept * sum + more; };
  add(sums_.elapsed_s, elapsed);
  add(sums_.held_s, std::min(now.held_s - before.held_s, elapsed));
  add(sums_.fresh, items);
  add(sums_.given, now.given - before.given);
  if (sums_.fresh < kItems / 4 || sums_.elapsed_s <= 0) return;
  const double needed = sums_.given / sums_.fresh * (1 - sums_.held_s / sums_.elapsed_s);
  factor_ = needed < kHealthy ? 1 : std::min(needed, cap_);
}

}  // namespace etr::echo
