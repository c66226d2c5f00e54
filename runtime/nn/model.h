// A model as the user writes it: layers, their inputs, and a loss.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "nn/layer.h"
#include "nn/lora.h"
#include "nn/loss.h"

namespace etr::nn {

// A field of a batch as a model sees it: its type and the shape of one sample.
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
  graph::ValueId output = -1;          // the last layer's value; of a classifier, before softmax
  graph::ValueId loss = -1;            // f32 [1], mean over the valid rows
  graph::ValueId accuracy = -1;        // f32 [1]; -1 where the loss has no classes
  std::vector<ServedTable> served;     // tables that are stored elsewhere, if the model `serves`
  std::shared_ptr<const Lora> lora;    // null: no adapters
  bool recompute = false;              // see graph::PlanOptions
  ops::Precision precision = ops::Precision::fp32;
};

constexpr int kMaxLayerDepth = 64;
constexpr size_t kMaxLayers = 20'000;  // repeated layers included

// Throws Error(invalid_argument) if frozen weights cannot be kept in that many bits.
void check_quantize(int64_t bits);

struct LayerText;  // a layer with its options and nested layers

// A validated model without shapes. Immutable after construction.
class Model {
 public:
  //   {"layers": [{"layer": "conv2d", "filters": 16, "name": "a"}, {"layer": "relu"},
  //               {"layer": "add", "input": ["relu_2", "a"]}, ...],
  //    "inputs": ["image"], "loss": {"loss": "softmax_cross_entropy", "target": "label"},
  //    "quantize": 4, "recompute": false, "precision": "bf16"}
  // or {"model": "resnet8", "classes": 10, "loss": ...}: one of model_table() (nn/models.h), or
  // {"onnx": "net.onnx", "until": "flatten", "layers": [...], "loss": ...}: a file of another
  // framework (nn/onnx_import.h), optionally cut behind a value, with layers behind it. Without
  // "inputs" the fields have the names of the file's inputs.
  // A layer reads the one before it, or what "input" names: layers by their "name" (KIND_POSITION
  // by default) or fields of the batch. Layers nest at most kMaxLayerDepth deep. With `serves` the
  // tables of sparse embeddings are stored elsewhere (ServedTable). Throws Error(invalid_argument),
  // naming the layer and the key.
  explicit Model(const Json& spec, bool serves = false);

  // Builds the graph for one batch size; `fields` must contain inputs(). Throws
  // Error(invalid_argument), naming the layer whose shapes do not fit.
  ModelGraph build(int64_t batch, const Fields& fields) const;

  // Returns the graph of the same shapes without the adapters of `lora`.
  ModelGraph without_adapters(const ModelGraph& of) const;

  // The whole spec: layers (also of a ready-made model or a file), inputs and loss.
  const Json& json() const { return *spec_; }

  // Weights to begin with, by name: those of an ONNX file. Null: all have their usual initial
  // values.
  const std::shared_ptr<const checkpoint::NamedTensors>& weights() const { return weights_; }

  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::string& target() const { return loss_.target(); }
  const Loss& loss() const { return loss_; }
  ops::Precision precision() const { return precision_; }
  bool has_sparse() const;  // whether a layer has the option `sparse`

 private:
  ModelGraph build(int64_t batch, const Fields& fields, bool with_lora) const;

  std::vector<std::string> inputs_, frozen_;
  std::shared_ptr<const Lora> lora_;
  bool recompute_ = false, serves_ = false;
  int quantize_ = 0;
  ops::Precision precision_ = ops::Precision::fp32;
  std::shared_ptr<const Json> spec_;
  std::shared_ptr<const checkpoint::NamedTensors> weights_;
  std::shared_ptr<const std::vector<LayerText>> layers_;
  Loss loss_;
};

}  // namespace etr::nn
