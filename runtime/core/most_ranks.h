#pragma once

namespace etr {

inline constexpr int kMostRanks = 1'000'000;  // in a group

}  // namespace etr
