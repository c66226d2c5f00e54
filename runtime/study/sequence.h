// Scrambled quasi-random points, from Sobol and Halton sequences. They are pure functions of index
// and seed, so a search may grow without changing its first points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace etr::study {

enum class SequenceKind { sobol, halton };

SequenceKind sequence_named(const std::string& name);  // "sobol" or "halton"

constexpr size_t kMostDimensions = 16;

// Return coordinate `dimension` of point `index`, in [0, 1), without scrambling. Sobol points come
// in Gray-code order, as Joe and Kuo list them.
double sobol(uint64_t index, size_t dimension);
double halton(uint64_t index, size_t dimension);

// The same, scrambled, in (0, 1). Each bit of a Sobol point is flipped according to a hash of the
// seed and the higher bits (Owen, "Randomly permuted (t,m,s)-nets and (t,s)-sequences", 1995),
// which preserves the net: each block of 2^k points has one in each of 2^k equal intervals of a
// coordinate. Each digit of a Halton point gets its own permutation.
double scrambled(SequenceKind kind, uint64_t index, size_t dimension, uint64_t seed);

}  // namespace etr::study
