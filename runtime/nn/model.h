// A model as its user writes it: layers, what they read, and a loss.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/layer.h"
#include "nn/loss.h"

namespace etr::nn {

// What a field of a batch looks like to a model: its type and one sample's shape.
struct Field {
  DType dtype = DType::f32;
  Shape sample;
  bool operator==(const Field&) const = default;
};
using Fields = std::map<std::string, Field>;

// A graph with the values that a trainer feeds and reads.
struct ModelGraph {
  graph::Graph graph;
  std::vector<graph::ValueId> inputs;  // in the order of Model::inputs()
  graph::ValueId target = -1;          // of the loss
  graph::ValueId output = -1;          // the last layer's; before the softmax of a classifier
  graph::ValueId loss = -1;            // f32 [1], mean over the valid rows
  graph::ValueId accuracy = -1;        // f32 [1]; -1 where the loss has no classes
  std::vector<ServedTable> served;     // where the model is built so
  bool recompute = false;              // see graph::PlanOptions
  ops::Precision precision = ops::Precision::fp32;
};

constexpr int kMaxLayerDepth = 64;
constexpr size_t kMaxLayers = 20'000;  // with the repeated ones

struct LayerText;  // a layer with its options, and those in it

// Immutable after construction: validated options, no shapes yet.
class Model {
 public:
  // {"layers": [{"layer": "conv2d", "filters": 16, "name": "a"}, {"layer": "relu"},
  //             {"layer": "add", "input": ["relu_2", "a"]}, ...],
  //  "inputs": ["image"], "loss": {"loss": "softmax_cross_entropy", "target": "label"}, "recompute": false, "precision": "bf16"}
  // or {"model": "resnet8", "classes": 10, "loss": ...}: one of model_table() (nn/models.h).
  // A layer reads the one before it, or what "input" names: layers by their "name" (KIND_POSITION
  // where none is given) or fields of the batch. Layers lie in each other at most kMaxLayerDepth deep. Throws
  // Error(invalid_argument) that names the layer and the key.
  // `serves`: the tables of sparse embeddings lie elsewhere (see ServedTable).
  explicit Model(const Json& spec, bool serves = false);

  // The graph for one batch size; `fields` holds at least inputs(). Throws Error(invalid_argument)
  // that names the layer whose shapes do not fit.
  ModelGraph build(int64_t batch, const Fields& fields) const;

  // The whole spec: layers (of a ready-made model too), inputs and loss.
  const Json& json() const { return *spec_; }

  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::string& target() const { return loss_.target(); }
  const Loss& loss() const { return loss_; }
  bool has_sparse() const;  // a layer with the option `sparse`

 private:
  std::vector<std::string> inputs_;
  bool recompute_ = false, serves_ = false;
  ops::Precision precision_ = ops::Precision::fp32;
  std::shared_ptr<const Json> spec_;
  std::shared_ptr<const std::vector<LayerText>> layers_;
  Loss loss_;
};

}  // namespace etr::nn
