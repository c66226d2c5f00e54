// A static graph of operations: a model before it is planned for a device.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/rng.h"
#include "ops/op.h"

namespace etr::graph {

using ValueId = int;
inline size_t index(ValueId id) { return static_cast<size_t>(id); }

// Training changes parameters by their gradients, and states in the forward pass. A `frozen` value
// is a parameter that it leaves as it is.
enum class ValueKind { input, parameter, frozen, state, constant, result };

// Returns whether the value is part of the model's weights, which checkpoints hold.
constexpr bool is_weight(ValueKind kind) {
  return kind == ValueKind::parameter || kind == ValueKind::frozen || kind == ValueKind::state;
}

// Fills a new parameter; the generator is keyed by (seed, the parameter's position).
using Initializer = std::function<void(std::span<float> values, Rng& rng)>;

struct Value {
  ValueKind kind;
  std::string name;  // unique among inputs, parameters and states
  Shape shape;
  DType dtype = DType::f32;
  bool decay = false;       // parameters: whether weight decay applies
  Initializer initializer;  // parameters, states and constants
  int stored_bits = 32;     // in memory, of an element of a frozen value (graph/quantized.h)
};

struct Node {
  const ops::OpSpec* op;
  Options options;
  std::string label;  // the layer it belongs to
  std::vector<ValueId> inputs;
  ValueId output;
  std::vector<Shape> saved;
  uint32_t key = 0;  // key of its random numbers
};

// Built once by appending; immutable afterwards. Shapes are checked as nodes are added, so an error
// names the layer at fault.
class Graph {
 public:
  ValueId add_input(std::string name, Shape shape, DType dtype);
  ValueId add_parameter(std::string name, Shape shape, bool decay, Initializer initializer);
  // Adds a value that ops change in training (running statistics); part of a checkpoint.
  ValueId add_state(std::string name, Shape shape, Initializer initializer);
  ValueId add_frozen(std::string name, Shape shape, Initializer initializer);
  // Adds a value that never changes. The initializer recreates it, so it is not part of a
  // checkpoint.
  ValueId add_constant(std::string name, Shape shape, Initializer initializer);
  // Adds a node. `key` identifies its op's random numbers; default: the node's position in the
  // graph.
  ValueId add(const std::string& op, const Json& options, std::vector<ValueId> inputs,
              const std::string& label, std::optional<uint32_t> key = {});

  // Freezes the parameters whose names match one of the patterns, with * for any characters.
  // Error(not_found) names a pattern that matches none; Error(invalid_argument) if no parameter
  // would be left to train.
  void freeze(const std::vector<std::string>& patterns);
  // Freezes the parameters for whose names `chosen` returns true.
  void freeze_if(const std::function<bool(const std::string& name)>& chosen);

  // Keeps the frozen weights of products and convolutions in `bits` bits, 8 or 4. Throws
  // Error(invalid_argument) if there are none.
  void quantize(int bits);

  // Returns the parameter of that name, for layers that share one. Throws Error(not_found), naming
  // the nearest.
  ValueId parameter(const std::string& name) const;

  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  // By value, since adding a value invalidates references to values.
  Shape shape(ValueId id) const { return value(id).shape; }

 private:
  ValueId add_value(Value value);

  std::vector<Value> values_;
  std::unordered_set<std::string> names_;  // of named values
  std::vector<Node> nodes_;
};

}  // namespace etr::graph
