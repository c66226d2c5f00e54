#include "spirv/storage.h"

#include <algorithm>

namespace etr::spirv {

Storage::Storage(uint64_t size_bytes, Fetch fetch)
    : size_bytes_(size_bytes), fetch_(std::move(fetch)) {}

Storage::Page& Storage::page(uint64_t number) {
  if (number == last_) return *last_page_;
  auto& slot = pages_[number];
  if (!slot) {
    slot = std::make_unique<Page>();
    const uint64_t first = number * kPageWords;
    const uint64_t count = std::min(kPageWords, size_bytes_ / 4 - first);
    slot->words.resize(count);
    slot->states.resize(count);
    slot->traces.resize(count);
    fetch_(first * 4, slot->words);
  }
  last_ = number;
  last_page_ = slot.get();
  return *slot;
}

Storage::Word Storage::word(uint64_t offset) {
  Page& of = page(offset / 4 / kPageWords);
  const uint64_t at = offset / 4 % kPageWords;
  return {of.words[at], of.states[at], of.traces[at]};
}

}  // namespace etr::spirv
