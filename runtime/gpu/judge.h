// What the host has written of a buffer against what the device has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spirv/storage.h"

namespace etr::gpu {

struct Comparison {
  enum class Result {
    equal,
    different,
    empty,    // both wrote nothing but zeros, which says little
    faulty,   // the kernel does what none may, whatever the driver
    unknown,  // the host could not run it
  };
  Result result = Result::unknown;
  std::string why;  // of `different`, `faulty` and `unknown`
};

// Floats agree to a thousandth of themselves or of the mean square's root, as drivers may contract and approximate.
// Integers agree exactly, but for one in a hundred: a float that is rounded otherwise may be on another side of a threshold.
class Judge {
 public:
  // `page` begins at word `first_word` of its buffer, of which the device has these words there.
  void look_at(const spirv::Storage::Page& page, std::span<const uint32_t> device,
               uint64_t first_word);

  Comparison verdict() const;

 private:
  struct Float {
    uint64_t word;
    float host, device;
  };
  struct Integer {
    uint64_t word;
    uint32_t host, device;
  };

  double size_of_floats() const;

  uint64_t written_ = 0, not_zero_ = 0;
  std::vector<Float> floats_;
  std::vector<Integer> unequal_;
};

}  // namespace etr::gpu
