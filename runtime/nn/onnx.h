// Models for other runtimes, as ONNX files.
#pragma once

#include <functional>
#include <string>

#include "nn/model.h"

namespace etr::nn {

// The model up to its output, as evaluation computes it (batch normalisation folded into a scale and a shift,
// dropout left out), for opset 17: inputs by their fields' names, one output "output", the batch axis "N" free.
// `value_of` gives the values of parameters, states and constants by name. Throws Error(unsupported) that names
// the layer and what ONNX lacks.
std::string to_onnx(const ModelGraph& model,
                    const std::function<Tensor(const std::string&)>& value_of);

}  // namespace etr::nn
