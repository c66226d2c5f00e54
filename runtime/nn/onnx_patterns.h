// Finds functions that exporters write as several operators, and writes each as one.
#pragma once

#include "nn/onnx_reader.h"

namespace etr::nn {

// Operators of this program, in nodes that combine_patterns() has changed.
inline constexpr const char* kOnnxSilu = "EtrSilu";
// (x - mean) / sqrt(variance + epsilon) over `axes`; without `centred` the mean counts as 0.
inline constexpr const char* kOnnxNormalize = "EtrNormalize";

// Recognises GELU (with erf or tanh), SiLU, normalisation by moments, and zeros in place of a
// softmax that is no number. The node that gives a function's result then reads its argument;
// nodes in between stay, and may be unused.
void combine_patterns(OnnxGraph& graph);

}  // namespace etr::nn
