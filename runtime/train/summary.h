// The layers and parameters of a model, for people and programs.
#pragma once

#include <string>

#include "core/json_fwd.h"
#include "nn/model.h"

namespace etr::train {

// Returns {"inputs": [{"name", "dtype", "shape"}], "layers": [{"name", "op", "shape",
// "parameters"}], "parameters", "states"}. The batch axis of a shape is -1. A parameter counts in
// the layer that uses it first. States are running statistics.
Json summary(const nn::ModelGraph& net);

// The same for a model without a batch. `fields` gives each field that the model reads: {"image":
// [28, 28, 1]}, the shape of a sample, or {"text": {"dtype": "i32", "shape": [12]}}. Throws
// Error(invalid_argument).
Json summary(const nn::Model& model, const Json& fields);

// Returns the summary as a table.
std::string summary_text(const Json& summary);

}  // namespace etr::train
