// Low-rank adapters (LoRA, Hu et al. 2021): a product x W + b becomes
//   x W + b + (alpha / rank) (dropout(x) A) B,   A [features, rank], B [rank, units],
// where W and b stay as they are and only A and B are trained. A begins uniform in
// +-1 / sqrt(features), and B with zeros, so that the model begins as it was (as in Hugging Face's
// PEFT).
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "graph/graph.h"
#include "tensor/tensor.h"

namespace etr::nn {

class Lora {
 public:
  // {"layers": ["*.query", "*.value"], "rank": 8, "alpha": 16, "dropout": 0, "train": ["head.*"]}.
  // `layers` names products by patterns: dense layers and the projections of attention, which are
  // LAYER.query, .key, .value (or .qkv) and .output. `train` names parameters that are trained as
  // they are, besides the adapters. Throws Error(invalid_argument).
  explicit Lora(const Json& spec);

  bool adapts(const std::string& product) const;

  // Adds the adapter of `product`, whose result without it is `base`, and returns their sum, or the
  // sum's ReLU.
  graph::ValueId add_adapter(graph::Graph& graph, const std::string& product, graph::ValueId x,
                             graph::ValueId base, bool relu, const std::string& label) const;

  // Freezes all parameters of the model but adapters and those that `train` names. Throws
  // Error(not_found) for a pattern that matches nothing.
  void freeze_base(graph::Graph& graph) const;

  double scale() const { return alpha_ / static_cast<double>(rank_); }  // alpha / rank

  // Returns W + (alpha / rank) A B.
  Tensor merged(const Tensor& weight, const Tensor& a, const Tensor& b) const;

  // Return the names of a product's adapter, and whether a parameter belongs to one.
  static std::string name_of_a(const std::string& product) { return product + ".lora_a"; }
  static std::string name_of_b(const std::string& product) { return product + ".lora_b"; }
  static bool is_adapter(std::string_view parameter) {
    return parameter.ends_with(".lora_a") || parameter.ends_with(".lora_b");
  }

 private:
  std::vector<std::string> layers_, train_;
  int64_t rank_;
  double alpha_, dropout_;
};

// Options of the key `lora`.
Schema lora_schema();

}  // namespace etr::nn
