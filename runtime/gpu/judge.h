// Compares what the host wrote into a buffer with what the device wrote.
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
    empty,    // what they wrote proves little: only zeros, or few integers of which one differs
    faulty,   // the kernel itself is invalid on any driver
    unknown,  // the host could not run it
  };
  Result result = Result::unknown;
  std::string why;  // set for `different`, `faulty` and `unknown`
};

// Floats agree if they differ by at most a thousandth of the value plus a thousandth of the root
// mean square, since drivers may contract and approximate. Integers must be equal except for one
// word in a hundred, since a float that is rounded differently may fall on the other side of a
// threshold. One among fewer words proves nothing either way.
class Judge {
 public:
  // Adds a page of the host's storage that begins at word `first_word` of the buffer; `device`
  // holds the device's words of the same range.
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
