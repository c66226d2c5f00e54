// Records which stages dropped which samples of an epoch.
#pragma once

#include <algorithm>
#include <bitset>
#include <compare>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pipeline/item.h"

namespace etr::pipeline {

constexpr uint64_t kEveryCopy = UINT64_MAX;

struct Drop {
  uint64_t stage = 0, ordinal = 0;
  uint64_t copy = 0;  // Item::copy(), or kEveryCopy
  auto operator<=>(const Drop&) const = default;
};

// Drops of every copy are in paged bit sets, because a filter may drop half of a million samples,
// and each is looked up several times. Any thread may call contains().
class DropSet {
 public:
  DropSet() = default;
  explicit DropSet(const std::vector<Drop>& drops) {
    for (const auto& [number, ordinal, copy] : drops) {
      Stage& by = stage(number);
      if (copy == kEveryCopy)
        by.pages[ordinal / kPage].set(ordinal % kPage);
      else
        by.copies.emplace_back(ordinal, copy);
    }
    for (Stage& stage : stages_) std::sort(stage.copies.begin(), stage.copies.end());
  }

  bool contains(uint64_t stage, const Item& item) const {
    for (const Stage& by : stages_) {
      if (by.number != stage) continue;
      const auto page = by.pages.find(item.ordinal / kPage);
      if (page != by.pages.end() && page->second.test(item.ordinal % kPage)) return true;
      return std::binary_search(by.copies.begin(), by.copies.end(),
                                std::pair(item.ordinal, item.copy()));
    }
    return false;
  }

 private:
  static constexpr uint64_t kPage = 4096;
  struct Stage {
    uint64_t number;
    std::unordered_map<uint64_t, std::bitset<kPage>> pages;
    std::vector<std::pair<uint64_t, uint64_t>> copies;  // ordinal and copy, sorted
  };

  Stage& stage(uint64_t number) {
    for (Stage& by : stages_)
      if (by.number == number) return by;
    return stages_.emplace_back(Stage{number, {}, {}});
  }

  std::vector<Stage> stages_;  // few stages drop anything
};

}  // namespace etr::pipeline
