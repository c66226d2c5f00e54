// The order of the features that a parameter applies to in PyTorch.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace etr::nn {

// Images are [N, H, W, C] here and [N, C, H, W] in PyTorch. So a flattened image has its features
// in another order, and a layer that reads them (dense, a normalisation) has its weights in that
// order.
class PytorchOrder {
 public:
  using Order = std::vector<size_t>;  // feature i here is feature order[i] there

  explicit PytorchOrder(const graph::Graph& graph);

  // Returns the order along the first axis of a parameter or state; nullptr if it is the same in
  // both. Throws Error(unsupported), naming the layer, if the order cannot be determined.
  std::shared_ptr<const Order> of(graph::ValueId id) const;

 private:
  // The layout of a value's axes in PyTorch.
  struct Axes {
    // image: the channels, our last axis, are the second axis there. Of five axes, the last two.
    enum Kind { same, image, flat, unknown };
    Kind kind = same;
    std::shared_ptr<const Order> order;  // for `flat`, a flattened image
  };

  Axes& axes(graph::ValueId id) { return axes_[static_cast<size_t>(id)]; }
  Axes after(const graph::Graph& graph, const graph::Node& node);
  Axes reshaped(const Shape& from, const Shape& to, const Axes& axes) const;
  static Axes reduced(const Shape& from, const Shape& to, const Axes& axes);
  Axes permuted(const graph::Graph& graph, const graph::Node& node);
  Axes joined(const graph::Graph& graph, const graph::Node& node);
  void note_parameters(const graph::Graph& graph, const graph::Node& node);

  std::vector<Axes> axes_;
  std::map<graph::ValueId, std::shared_ptr<const Order>> orders_;
  std::map<graph::ValueId, std::string> untold_;  // parameters with an unknown order, and the layer
};

}  // namespace etr::nn
