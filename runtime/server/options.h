// What a shard does with gradients, how far workers may be apart, and which settings all have to agree on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace etr::server {

struct ShardOptions {
  // Adagrad: s += g^2, w -= rate g / (sqrt(s) + epsilon). Otherwise SGD: s = momentum s + g, w -= rate s.
  bool adagrad = true;
  float epsilon = 1e-10f;
  float momentum = 0;
  float weight_decay = 0;  // g += weight_decay w, of the parameters under decay

  // How many pushes a worker may be ahead of the slowest; none: any number. 0 is sequential: no worker gets weights before
  // all have pushed as often as it has.
  std::optional<uint64_t> delay;
  uint64_t warm_start = 0;  // this many pushes come from one worker alone, while the others wait

  // Settings that have to be the same on workers and shards, a line "NAME VALUE" for each.
  std::string terms;
};

struct Difference {
  std::string name, one, other;
};

// The first of two parties' terms that differs; the value of one that is missing is "(none)".
std::optional<Difference> difference(const std::string& one, const std::string& other);

}  // namespace etr::server
