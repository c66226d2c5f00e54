// By which algorithm a job's workers train together.
#pragma once

#include "core/options.h"

namespace etr::train {

enum class Algorithm { synchronous, diloco, downpour, elastic_averaging };

// Of the section 'parallel': its option 'algorithm'.
Algorithm algorithm_of(const Options& parallel);

// Whether it is one with a parameter server.
inline bool has_servers(Algorithm algorithm) {
  return algorithm == Algorithm::downpour || algorithm == Algorithm::elastic_averaging;
}

}  // namespace etr::train
