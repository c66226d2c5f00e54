// Loads weights trained by PyTorch into a model.
#pragma once

#include <map>
#include <span>
#include <string>

#include "checkpoint/safetensors.h"
#include "nn/model.h"

namespace etr::nn {

// Returns the model's parameters and running statistics in our layouts, read from `file`, a
// state_dict in PyTorch's: a dense weight is [units, features], a convolution's [filters, channels,
// kh, kw], and gates are rows. A layer that reads a flattened image (nn/pytorch_order.h) has its
// features in another order there.
//
// A tensor is looked up under our name with PyTorch's words for its last part (gamma: weight, beta:
// bias, LSTM's weight_ih_l0, ...), and with torchvision's for a residual block's shortcut; then
// under the name that Hugging Face gives to such a part of a Llama model. Before that `names`
// replaces prefixes of our names: {"backbone.": "model.encoder.", "head": ""}; "" omits the
// tensors, which keep their values. `origin` names the file in errors. Throws Error(not_found) for
// a missing tensor and Error(invalid_argument) for a wrong shape.
std::map<std::string, Tensor> weights_of_pytorch(const ModelGraph& model,
                                                 const checkpoint::NamedTensors& file,
                                                 const std::map<std::string, std::string>& names,
                                                 const std::string& origin);

// Returns a convolution's weight [kh, kw, c, f], which is `shape`, from [f, c, kh, kw], as PyTorch
// and ONNX have it. (For a transposed convolution f and c are swapped on both sides.)
Tensor unrolled(std::span<const float> from, const Shape& shape);

}  // namespace etr::nn
