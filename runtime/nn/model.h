// A sequential model: what a job's "model" section says.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "nn/layer.h"

namespace etr::nn {

// A graph with the values that a trainer feeds and reads.
struct ModelGraph {
  graph::Graph graph;
  graph::ValueId image = -1;     // f32 [batch, ...]
  graph::ValueId label = -1;     // i32 [batch], or f32 [batch, outputs] for mse
  graph::ValueId logits = -1;    // f32 [batch, outputs]
  graph::ValueId loss = -1;      // f32 [1], mean over the valid rows
  graph::ValueId accuracy = -1;  // f32 [1]; -1 for mse
};

// Immutable after construction: validated options, no shapes yet.
class Model {
 public:
  // {"layers": [{"layer": "dense", "units": 10}, ...], "loss": {"loss": "softmax_cross_entropy"}}
  // Throws Error(invalid_argument) that names the layer and the key.
  explicit Model(const Json& spec);

  // The graph for one batch size. `sample` is the shape of one input ([28, 28, 1]).
  ModelGraph build(int64_t batch, const Shape& sample) const;

  DType label_dtype() const { return classifies() ? DType::i32 : DType::f32; }
  bool classifies() const { return loss_ == "softmax_cross_entropy"; }

 private:
  struct Layer {
    const LayerSpec* spec;
    Options options;
    std::string name;
  };

  std::vector<Layer> layers_;
  std::string loss_;
  double label_smoothing_ = 0;
};

Schema loss_schema();

}  // namespace etr::nn
