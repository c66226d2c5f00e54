// How a shard applies gradients, how far apart workers may be, and the settings that all must agree
// on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace etr::server {

struct ShardOptions {
  // Adagrad: s += g^2, w -= rate g / (sqrt(s) + epsilon). Otherwise SGD: s = momentum s + g, w -=
  // rate s.
  bool adagrad = true;
  float epsilon = 1e-10f;
  float momentum = 0;
  float weight_decay = 0;  // g += weight_decay w, of the parameters under decay

  // By how many pushes a worker may be ahead of the slowest one. Nothing: any number. 0 is
  // sequential: a worker gets weights only when all have pushed as often as it has.
  std::optional<uint64_t> delay;
  uint64_t warm_start = 0;  // the first pushes, which one worker makes alone while the others wait

  // Settings that must be the same on workers and shards: a line "NAME VALUE" for each.
  std::string terms;
};

struct Difference {
  std::string name, one, other;
};

// Returns the first term in which two parties differ. A missing value is "(none)".
std::optional<Difference> difference(const std::string& one, const std::string& other);

}  // namespace etr::server
