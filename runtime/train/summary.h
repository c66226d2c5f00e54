// What a model is made of, for people and programs.
#pragma once

#include <string>

#include "core/json_fwd.h"
#include "nn/model.h"

namespace etr::train {

// {"inputs": [{"name", "dtype", "shape"}], "layers": [{"name", "op", "shape", "parameters"}], "parameters", "states"}. A
// shape's batch axis is -1. Parameters count where they are used first; states are running statistics.
Json summary(const nn::ModelGraph& net);

// The same for a model that no batch has been seen for. `fields`: {"image": [28, 28, 1]}, the shape of a sample, or
// {"text": {"dtype": "i32", "shape": [12]}}, of each that the model reads. Throws Error(invalid_argument).
Json summary(const nn::Model& model, const Json& fields);

// As a table.
std::string summary_text(const Json& summary);

}  // namespace etr::train
