// A folder of drawn digits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace digits {

// Writes `count` PNG images into folder/0 ... folder/9, cycling through the digits. `progress` gets
// the number done at intervals. Throws std::runtime_error.
void draw(const std::string& folder, int count, uint32_t seed,
          const std::function<void(int done)>& progress);

}  // namespace digits
