// In what order PyTorch counts the features that a parameter meets.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace etr::nn {

// Images are [N, H, W, C] here and [N, C, H, W] in PyTorch, so a flattened one has the same features in another order, and
// what reads them (a dense layer, a normalisation) has its weights in that order.
class PytorchOrder {
 public:
  using Order = std::vector<size_t>;  // feature i here is feature order[i] there

  explicit PytorchOrder(const graph::Graph& graph);

  // Of the first axis of a parameter or state; nullptr: the same in both. Error(unsupported), with the layer, where
  // the features come in an order that cannot be told.
  std::shared_ptr<const Order> of(graph::ValueId id) const;

 private:
  // How a value's axes lie there.
  struct Axes {
    enum Kind {
      same,
      image,
      flat,
      unknown
    };  // image: the channels, here the last axis, are the second
    Kind kind = same;
    std::shared_ptr<const Order> order;  // of `flat`, a flattened image
  };

  Axes& axes(graph::ValueId id) { return axes_[static_cast<size_t>(id)]; }
  Axes after(const graph::Graph& graph, const graph::Node& node);
  Axes reshaped(const Shape& from, const Shape& to, const Axes& axes) const;
  Axes joined(const graph::Graph& graph, const graph::Node& node);
  void note_parameters(const graph::Graph& graph, const graph::Node& node);

  std::vector<Axes> axes_;
  std::map<graph::ValueId, std::shared_ptr<const Order>> orders_;
  std::map<graph::ValueId, std::string> untold_;  // by parameter: the layer
};

}  // namespace etr::nn
