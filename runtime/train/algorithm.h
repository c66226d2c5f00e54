// The algorithm by which a job's ranks or workers train together.
#pragma once

#include "core/options.h"

namespace etr::train {

enum class Algorithm { synchronous, diloco, downpour, elastic_averaging };

// Reads the option 'algorithm' of the section 'parallel'.
Algorithm algorithm_of(const Options& parallel);

// Returns whether the algorithm uses a parameter server.
inline bool has_servers(Algorithm algorithm) {
  return algorithm == Algorithm::downpour || algorithm == Algorithm::elastic_averaging;
}

}  // namespace etr::train
