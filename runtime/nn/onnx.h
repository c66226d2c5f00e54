// Exports models as ONNX files for other runtimes.
#pragma once

#include <functional>
#include <string>

#include "nn/model.h"

namespace etr::nn {

// Exports the model up to its output, as evaluation computes it (batch normalisation folded into a
// scale and a shift, dropout omitted), for opset 17. Inputs have their fields' names, the only
// output is "output", and the batch axis "N" is free. `value_of` returns the values of parameters,
// states and constants by name. Throws Error(unsupported), naming the layer and what ONNX lacks.
std::string to_onnx(const ModelGraph& model,
                    const std::function<Tensor(const std::string&)>& value_of);

}  // namespace etr::nn
