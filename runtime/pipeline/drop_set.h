// Records which stages dropped which samples of an epoch.
#pragma once

#include <bitset>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace etr::pipeline {

using Drop = std::pair<uint64_t, uint64_t>;  // stage number, ordinal

// Paged bit sets, because a filter may drop half of a million samples, and each is looked up
// several times. Any thread may call contains() while nobody inserts.
class DropSet {
 public:
  void insert(const Drop& drop) { stage(drop.first)[drop.second / kPage].set(drop.second % kPage); }
  bool contains(uint64_t stage, uint64_t ordinal) const {
    for (const auto& [number, pages] : stages_) {
      if (number != stage) continue;
      const auto page = pages.find(ordinal / kPage);
      return page != pages.end() && page->second.test(ordinal % kPage);
    }
    return false;
  }

 private:
  static constexpr uint64_t kPage = 4096;
  using Pages = std::unordered_map<uint64_t, std::bitset<kPage>>;

  Pages& stage(uint64_t number) {
    for (auto& [has, pages] : stages_)
      if (has == number) return pages;
    return stages_.emplace_back(number, Pages()).second;
  }

  std::vector<std::pair<uint64_t, Pages>> stages_;  // few stages drop anything
};

}  // namespace etr::pipeline
