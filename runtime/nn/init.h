// Initial values of parameters.
#pragma once

#include "graph/graph.h"

namespace etr::nn {

graph::Initializer constant(float value);

// Normal with variance 2 / fan_in (He et al. 2015): keeps the variance through ReLU layers.
graph::Initializer he_normal(int64_t fan_in);

// Uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).
graph::Initializer glorot_uniform(int64_t fan_in, int64_t fan_out);

// Uniform in +-limit.
graph::Initializer uniform(float limit);

// Normal with mean 0.
graph::Initializer normal(float deviation);

// Returns the initializer for the layers' option `init`: "he", "glorot", "normal" (deviation 0.02)
// or "zeros".
graph::Initializer weight_initializer(const std::string& kind, int64_t fan_in, int64_t fan_out);

}  // namespace etr::nn
