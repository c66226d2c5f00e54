// Weights that PyTorch trained, for a model of ours.
#pragma once

#include <map>
#include <string>

#include "checkpoint/safetensors.h"
#include "nn/model.h"

namespace etr::nn {

// The model's parameters and running statistics out of `file`, a state_dict with PyTorch's layouts (a dense weight
// [units, features], a convolution's [filters, channels, kh, kw], gates as rows), in ours. What reads a flattened image
// (nn/pytorch_order.h) has its features in another order there.
//
// A tensor is looked for under our name, with PyTorch's words for its last part (gamma: weight, beta: bias, LSTM's
// weight_ih_l0, ...), and with torchvision's for a residual block's shortcut. `names` replaces beginnings of our names first:
// {"backbone.": "model.encoder.", "head": ""} ("" leaves out: such tensors keep what they are). `origin` names the
// file in errors: Error(not_found) for a tensor that is not there, Error(invalid_argument) where a shape does not fit.
std::map<std::string, Tensor> weights_of_pytorch(const ModelGraph& model,
                                                 const checkpoint::NamedTensors& file,
                                                 const std::map<std::string, std::string>& names,
                                                 const std::string& origin);

}  // namespace etr::nn
