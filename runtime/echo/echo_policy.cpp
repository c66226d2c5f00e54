#include "echo/echo_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace etr::echo {
uint32_t CopyCounter::next() {
  owed_ += factor_;
  // A hair above .5 either way must not depend on how the sum was rounded.
  const double copies = std::floor(owed_ + 1e-9);
  owed_ -= copies;
  return static_cast<uint32_t>(copies);
}

void EchoBuffer::add(pipeline::Item item, uint32_t uses, uint32_t used, int64_t bytes) {
  if (used >= uses) return;
  if (bytes_ + bytes > limit_bytes_)
    fail(Code::out_of_memory, "the echo buffer holds ", counted(size(), "sample"), " of ",
         counted(bytes_, "byte"), " and may not exceed ", limit_bytes_,
         "; lower 'buffer' or raise 'buffer_bytes'");
  copies_ += uses - used;
  bytes_ += bytes;
  Held held{std::move(item), uses, used, bytes};
  if (draw_ == Draw::uniform) return mixed_.push_back(std::move(held));
  const Key key = key_of(held);
  ordered_.emplace(key, std::move(held));
}

void EchoBuffer::use(Held& held, pipeline::Item& out) {
  const uint32_t replica = replica_of(held.item.replica, held.used);
  --copies_;
  if (++held.used == held.uses)
    out = std::move(held.item);
  else
    out = held.item;
  out.replica = replica;
  // A batch that is repeated as a whole holds nothing fresh, whatever its samples were.
  if (replica > 0) out.batch.echoed += std::exchange(out.batch.fresh, 0);
}

bool EchoBuffer::draw(pipeline::Item& out, Rng& rng) {
  if (size() == 0) return false;
  if (draw_ == Draw::uniform) {
    const size_t pick = rng.below(static_cast<uint32_t>(mixed_.size()));
    use(mixed_[pick], out);
    if (mixed_[pick].used == mixed_[pick].uses) forget_mixed(pick);
    return true;
  }
  auto node = ordered_.extract(ordered_.begin());
  use(node.mapped(), out);
  if (node.mapped().used == node.mapped().uses) {
    forget(node.mapped());
    return true;
  }
  // The least used goes after those that were used as often before it; the newest keeps its place.
  if (draw_ == Draw::least_used) node.key() = key_of(node.mapped());
  ordered_.insert(std::move(node));
  return true;
}

void EchoBuffer::evict(Rng& rng) {
  if (size() == 0) return;
  if (draw_ == Draw::uniform) return forget_mixed(rng.below(static_cast<uint32_t>(mixed_.size())));
  auto it = std::prev(ordered_.end());
  if (draw_ == Draw::least_used) it = ordered_.lower_bound({it->first.first, 0});
  forget(it->second);
  ordered_.erase(it);
}

void EchoBuffer::forget(const Held& held) {
  bytes_ -= held.bytes;
  copies_ -= held.uses - held.used;
}

void EchoBuffer::forget_mixed(size_t index) {
  forget(mixed_[index]);
  if (index + 1 != mixed_.size()) mixed_[index] = std::move(mixed_.back());
  mixed_.pop_back();
}

void EchoBuffer::clear() {
  ordered_.clear();
  mixed_.clear();
  added_ = copies_ = 0;
  bytes_ = 0;
}

std::optional<FactorController::Decision> FactorController::observe(const pipeline::Pace& pace,
                                                                    uint64_t fresh, uint64_t given,
                                                                    double factor) {
  const auto begin_window = [&] {
    begin_ = pace;
    fresh_ = fresh;
    given_ = given;
  };
  if (!std::exchange(started_, true)) {
    begin_window();
    return std::nullopt;
  }
  const double elapsed = pace.elapsed_s - begin_.elapsed_s;
  if (elapsed < kWindowSeconds || fresh - fresh_ < kWindowItems) return std::nullopt;
  const double held = std::min(pace.upstream_held_s - begin_.upstream_held_s, elapsed);
  const double starved = std::min(pace.consumer_starved_s - begin_.consumer_starved_s, elapsed);
  const bool downstream_is_slow = held > kHysteresis * elapsed;
  const double t_up = (elapsed - held) / static_cast<double>(fresh - fresh_);
  const double t_down = (downstream_is_slow ? elapsed : elapsed - starved) /
                        static_cast<double>(std::max<uint64_t>(given - given_, 1));
  const auto average = [](double& mean, double value) {
    mean = mean == 0 ? value : kWeight * value + (1 - kWeight) * mean;
  };
  average(t_up_, t_up);
  average(t_down_, t_down);
  begin_window();
  double wanted = std::clamp(t_up_ / std::max(t_down_, 1e-12), 1.0, cap_);
  if (wanted < 1 + kHysteresis / 2) wanted = 1;
  if (std::abs(wanted - factor) <= kHysteresis * factor) return std::nullopt;
  return Decision{wanted, t_up_, t_down_};
}

}  // namespace etr::echo
