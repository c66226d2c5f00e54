// Quasi-random points: Sobol and Halton sequences, scrambled. Pure functions of index and seed, so that a search may grow
// without its first points changing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace etr::study {

enum class SequenceKind { sobol, halton };

SequenceKind sequence_named(const std::string& name);  // "sobol" or "halton"

constexpr size_t kMostDimensions = 16;

// Coordinate `dimension` of point `index`, in [0, 1), without scrambling. The points of Sobol's sequence come in the order of the
// Gray code, as Joe and Kuo list them.
double sobol(uint64_t index, size_t dimension);
double halton(uint64_t index, size_t dimension);

// The same, scrambled: in (0, 1). Every bit of a Sobol point is flipped as a hash of the seed and the bits above it says (Owen,
// "Randomly permuted (t,m,s)-nets and (t,s)-sequences", 1995), which keeps the net: each block of 2^k points has one in each of 2^k
// equal intervals of a coordinate. Each digit of a Halton point goes through a permutation of its own.
double scrambled(SequenceKind kind, uint64_t index, size_t dimension, uint64_t seed);

}  // namespace etr::study
