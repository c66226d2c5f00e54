// The loss that training minimises.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace etr::nn {

// The validated options of a loss, without shapes.
class Loss {
 public:
  explicit Loss(const Json& spec);  // {"loss": "huber", "delta": 2}; null: the default

  bool classifies() const { return kind_ == "softmax_cross_entropy"; }
  const std::string& target() const { return target_; }        // the field of the batch
  int64_t ignore_index() const { return ignored_; }           // only if it classifies
  double label_smoothing() const { return label_smoothing_; }  // only if it classifies
  DType target_dtype() const { return classifies() ? DType::i32 : DType::f32; }

  struct Values {
    graph::ValueId target, loss, accuracy;  // accuracy is -1 without classes
  };
  // Appends the loss and its target for `output`: [N, ..., classes], [N, ..., columns], or for
  // "multibox" [N, anchors, 1 + classes + 8].
  Values build(graph::Graph& graph, graph::ValueId output) const;

 private:
  graph::ValueId weights(graph::Graph& graph, graph::ValueId target) const;
  Values build_multibox(graph::Graph& graph, graph::ValueId output) const;

  std::string kind_, target_;
  double label_smoothing_ = 0, delta_ = 1, iou_threshold_ = 0.5, negative_ratio_ = 3;
  int64_t ignored_ = -1, max_boxes_ = 32;
  std::vector<double> class_weights_;
};

Schema loss_schema();

}  // namespace etr::nn
