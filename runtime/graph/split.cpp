#include "graph/split.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

namespace etr::graph {
namespace {

using ops::SliceRule;

constexpr size_t kNone = SIZE_MAX;

// A part of the graph that devices compute in slices: products by columns at its beginning, one by
// rows at its end.
struct Block {
  struct Columns {
    size_t node;
    int64_t parts = 1;  // 3 where they are q, k and v
  };
  std::vector<Columns> columns;
  std::vector<size_t> inside;  // nodes
  size_t rows = kNone;
  std::string why;  // reason if there is no block
};

class Splitter {
 public:
  Splitter(const Graph& whole, int rank, int size)
      : whole_(whole),
        rank_(rank),
        size_(size),
        producer_(whole.values().size(), kNone),
        users_(whole.values().size()),
        role_(whole.nodes().size()) {
    const auto& nodes = whole.nodes();
    for (size_t n = 0; n < nodes.size(); ++n) {
      producer_[index(nodes[n].output)] = n;
      for (const ValueId id : nodes[n].inputs) ++users_[index(id)];
    }
  }

  SplitGraph run() {
    for (size_t n = 0; n < whole_.nodes().size(); ++n) plan(n);
    out_.values.assign(whole_.values().size(), -1);
    for (size_t i = 0; i < whole_.values().size(); ++i) {
      const Value& value = whole_.values()[i];
      out_.values[i] = value.kind == ValueKind::result ? add_node(producer_[i]) : add_value(value);
    }
    return std::move(out_);
  }

 private:
  enum class Role { whole, columns, inside, rows, entries };

  const Node& node(size_t n) const { return whole_.nodes()[n]; }
  SliceRule rule(size_t n) const { return node(n).op->slices; }
  const Value& weight(size_t n) const {
    return whole_.value(node(n).inputs[rule(n) == SliceRule::entries ? 0 : 1]);
  }

  // Returns whether the node is a product with its own weight.
  bool is_plain_product(size_t n) const {
    return n != kNone && rule(n) == SliceRule::product && !node(n).options.boolean("transposed") &&
           weight(n).kind == ValueKind::parameter && users_[index(node(n).inputs[1])] == 1;
  }

  void plan(size_t n) {
    if (role_[n] != Role::whole) return;
    if (rule(n) == SliceRule::entries) return plan_table(n);
    if (rule(n) == SliceRule::product && node(n).options.boolean("transposed"))
      tell_whole(n, "its weight is the table of an embedding");
    if (!is_plain_product(n)) return;
    const Block block = block_before(n);
    if (block.why.empty()) return take(block);
    tell_whole(n, block.why);  // may still begin another block
  }

  // Records that the node's layer stays whole. A layer of several products keeps the last reason.
  void tell_whole(size_t n, const std::string& why) {
    forget_whole(n);
    out_.layers.push_back({node(n).label, "whole", why});
  }

  void forget_whole(size_t n) {
    std::erase_if(out_.layers, [&label = node(n).label](const SplitLayer& layer) {
      return layer.label == label && layer.how == "whole";
    });
  }

  void plan_table(size_t n) {
    const Value& table = weight(n);
    if (table.kind != ValueKind::parameter) return;
    std::string why;
    if (users_[index(node(n).inputs[0])] > 1)
      why = "another layer uses its table";
    else if (table.shape[0] % size_ != 0)
      why = cat("its ", table.shape[0], " entries do not divide by ", size_);
    if (!why.empty()) return tell_whole(n, why);
    role_[n] = Role::entries;
    add_slice(n, 0, 1, "entries");
  }

  // Returns the block that ends with the product `n`.
  Block block_before(size_t n) const {
    Block block;
    block.rows = n;
    std::vector<ValueId> open{node(n).inputs[0]};
    while (!open.empty() && block.why.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      add_to(block, value, open);
    }
    if (!block.why.empty()) return block;
    const int64_t units = whole_.shape(node(n).inputs[0]).back();
    if (units % size_ != 0)
      block.why = cat("the ", units, " columns before it do not divide by ", size_);
    return block;
  }

  void add_to(Block& block, ValueId value, std::vector<ValueId>& open) const {
    const size_t n = producer_[index(value)];
    if (n == kNone || role_[n] != Role::whole) {
      block.why = "no product that could be split by columns comes before it";
    } else if (users_[index(value)] != 1) {
      block.why = cat("'", node(n).label, "' before it has other users");
    } else if (is_plain_product(n)) {
      block.columns.push_back({n});
    } else if (is_elementwise(n)) {
      block.inside.push_back(n);
      open.insert(open.end(), node(n).inputs.begin(), node(n).inputs.end());
    } else if (rule(n) == SliceRule::heads) {
      add_attention(block, n);
    } else {
      block.why = cat("what comes before it ('", node(n).op->name, "') needs whole tensors");
    }
  }

  // Returns whether each element of the output needs the same ones of all inputs.
  bool is_elementwise(size_t n) const {
    const auto& inputs = node(n).inputs;
    const bool can = rule(n) == SliceRule::elements || rule(n) == SliceRule::random_elements;
    return can && std::all_of(inputs.begin(), inputs.end(), [&](ValueId id) {
             return whole_.shape(id) == whole_.shape(node(n).output);
           });
  }

  // Every device gets an equal number of heads.
  void add_attention(Block& block, size_t n) const {
    const auto& inputs = node(n).inputs;
    const int64_t heads = node(n).options.integer("heads");
    if (heads % size_ != 0) {
      block.why = cat("its ", counted(heads, "head"), " do not divide by ", size_);
      return;
    }
    if (node(n).options.integer("kv_heads") != 0) {
      block.why = "its heads share keys and values";
      return;
    }
    block.inside.push_back(n);
    for (size_t i = 0; i < std::min<size_t>(inputs.size(), 3); ++i) {
      const size_t from = producer_[index(inputs[i])];
      if (!is_plain_product(from) || users_[index(inputs[i])] != 1 || role_[from] != Role::whole)
        block.why = "its queries, keys and values are not products of its own";
      else
        block.columns.push_back({from, inputs.size() == 1 ? 3 : 1});
    }
  }

  void take(const Block& block) {
    const bool heads = std::any_of(block.inside.begin(), block.inside.end(),
                                   [&](size_t n) { return rule(n) == SliceRule::heads; });
    for (const size_t n : block.inside) role_[n] = Role::inside;
    for (const auto& [n, parts] : block.columns) {
      role_[n] = Role::columns;
      forget_whole(n);
      add_slice(n, 1, parts, heads ? "heads" : "columns");
    }
    role_[block.rows] = Role::rows;
    add_slice(block.rows, 0, 1, heads ? "heads" : "rows");
  }

  void add_slice(size_t n, size_t axis, int64_t parts, const char* how) {
    SplitLayer layer{node(n).label, how, "", 0};
    const auto add = [&](const Value& value, size_t along) {
      const Slice slice{value.shape, along, parts, rank_, size_};
      layer.saved_bytes +=
          static_cast<uint64_t>(element_count(value.shape) - element_count(slice.shape())) * 4;
      out_.slices.emplace(value.name, slice);
    };
    add(weight(n), axis);
    if (role_[n] == Role::columns && node(n).inputs.size() > 2)
      add(whole_.value(node(n).inputs[2]), 0);  // the bias
    if (!out_.layers.empty() && out_.layers.back().label == layer.label &&
        out_.layers.back().how == layer.how)
      out_.layers.back().saved_bytes += layer.saved_bytes;
    else
      out_.layers.push_back(std::move(layer));
  }

  ValueId add_value(const Value& value) {
    Graph& g = out_.graph;
    if (value.kind == ValueKind::input) return g.add_input(value.name, value.shape, value.dtype);
    if (value.kind == ValueKind::state)
      return g.add_state(value.name, value.shape, value.initializer);
    if (value.kind == ValueKind::constant)
      return g.add_constant(value.name, value.shape, value.initializer);
    if (value.stored_bits != 32)
      fail(Code::internal, "a quantised weight is not divided among ranks");
    if (value.kind == ValueKind::frozen)
      return g.add_frozen(value.name, value.shape, value.initializer);
    const auto found = out_.slices.find(value.name);
    if (found == out_.slices.end())
      return g.add_parameter(value.name, value.shape, value.decay, value.initializer);
    // Draw what a single device would draw, and take the slice.
    const Slice slice = found->second;
    const auto draw = [slice, initializer = value.initializer](std::span<float> out, Rng& rng) {
      std::vector<float> all(static_cast<size_t>(element_count(slice.whole)));
      initializer(all, rng);
      slice.take(all, out);
    };
    return g.add_parameter(value.name, slice.shape(), value.decay, draw);
  }

  ValueId now(ValueId id) const { return out_.values[index(id)]; }

  ValueId add_op(size_t n, const char* op, const Json& options, std::vector<ValueId> inputs) {
    return out_.graph.add(op, options, std::move(inputs), node(n).label, static_cast<uint32_t>(n));
  }

  ValueId add_node(size_t n) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node(n).inputs) inputs.push_back(now(id));
    Json options = node(n).options.json();
    if (role_[n] == Role::rows) return add_rows(n, std::move(options), std::move(inputs));
    if (role_[n] == Role::entries) {
      const Slice& slice = out_.slices.at(weight(n).name);
      options["all"] = slice.whole[0];
      options["begin"] = slice.length() * rank_;
      return add_op(n, "leave_slices", Json::object(),
                    {add_op(n, node(n).op->name, options, inputs)});
    }
    if (role_[n] == Role::columns) inputs[0] = entered(n, node(n).inputs[0]);
    if (role_[n] == Role::inside && rule(n) == SliceRule::heads)
      options["heads"] = node(n).options.integer("heads") / size_;
    if (role_[n] == Role::inside && rule(n) == SliceRule::random_elements) {
      const int64_t width = whole_.shape(node(n).output).back();
      options["width"] = width;
      options["begin"] = width / size_ * rank_;
    }
    return add_op(n, node(n).op->name, options, std::move(inputs));
  }

  // Products that read the same value share one sum of its gradients.
  ValueId entered(size_t n, ValueId id) {
    const auto [it, is_new] = entered_.emplace(id, -1);
    if (is_new) it->second = add_op(n, "enter_slices", Json::object(), {now(id)});
    return it->second;
  }

  // Bias and ReLU follow the sum and are computed on each device.
  ValueId add_rows(size_t n, Json options, std::vector<ValueId> inputs) {
    const bool relu = node(n).options.boolean("relu");
    options["relu"] = false;
    ValueId value = add_op(n, node(n).op->name, options, {inputs[0], inputs[1]});
    value = add_op(n, "leave_slices", Json::object(), {value});
    if (inputs.size() > 2) value = add_op(n, "bias", Json::object(), {value, inputs[2]});
    return relu ? add_op(n, "unary", {{"function", "relu"}}, {value}) : value;
  }

  const Graph& whole_;
  const int rank_, size_;
  std::vector<size_t> producer_;  // node, by value
  std::vector<size_t> users_;     // number of users, by value
  std::vector<Role> role_;        // by node
  std::map<ValueId, ValueId> entered_;
  SplitGraph out_;
};

}  // namespace

SplitGraph split(const Graph& whole, int rank, int size) {
  return Splitter(whole, rank, size).run();
}

}  // namespace etr::graph
