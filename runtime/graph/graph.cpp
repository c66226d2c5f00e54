#include "graph/graph.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "graph/patterns.h"

namespace etr::graph {

namespace {

// Kernels count a tensor's elements, and a store all parameters', with 32 bits.
void check_count(const std::string& name, DType dtype, const Shape& shape) {
  if (size_of(dtype, shape) / dtype_size(dtype) > UINT32_MAX)
    fail(Code::invalid_argument, "'", name, "' of the model has the shape ", shape_text(shape),
         ": more than 2^32 elements");
}

}  // namespace

ValueId Graph::add_value(Value value) {
  check_count(value.name, value.dtype, value.shape);
  if (!value.name.empty() && !names_.insert(value.name).second)
    fail(Code::invalid_argument, "two values of the model are called '", value.name, "'");
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::add_input(std::string name, Shape shape, DType dtype) {
  return add_value({ValueKind::input, std::move(name), std::move(shape), dtype, false, {}});
}

ValueId Graph::add_parameter(std::string name, Shape shape, bool decay, Initializer initializer) {
  return add_value({ValueKind::parameter, std::move(name), std::move(shape), DType::f32, decay,
                    std::move(initializer)});
}

ValueId Graph::add_state(std::string name, Shape shape, Initializer initializer) {
  return add_value({ValueKind::state, std::move(name), std::move(shape), DType::f32, false,
                    std::move(initializer)});
}

ValueId Graph::add_frozen(std::string name, Shape shape, Initializer initializer) {
  return add_value({ValueKind::frozen, std::move(name), std::move(shape), DType::f32, false,
                    std::move(initializer)});
}

ValueId Graph::add_constant(std::string name, Shape shape, Initializer initializer) {
  return add_value({ValueKind::constant, std::move(name), std::move(shape), DType::f32, false,
                    std::move(initializer)});
}

void Graph::freeze(const std::vector<std::string>& patterns) {
  if (patterns.empty()) return;
  std::vector<std::string> names;
  for (const Value& value : values_)
    if (value.kind == ValueKind::parameter) names.push_back(value.name);
  check_patterns("frozen", patterns, names, "parameter");
  freeze_if([&](const std::string& name) { return any_matches(patterns, name); });
  if (std::none_of(values_.begin(), values_.end(),
                   [](const Value& value) { return value.kind == ValueKind::parameter; }))
    fail(Code::invalid_argument, "model: 'frozen' leaves no parameter to train");
}

void Graph::freeze_if(const std::function<bool(const std::string& name)>& chosen) {
  for (Value& value : values_)
    if (value.kind == ValueKind::parameter && chosen(value.name)) value.kind = ValueKind::frozen;
}

// A table that is looked up, or a weight that some op reads in another way, stays as it is.
void Graph::quantize(int bits) {
  std::vector<bool> fits(values_.size(), true), read(values_.size(), false);
  for (const Node& node : nodes_)
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto id = static_cast<size_t>(node.inputs[i]);
      read[id] = true;
      fits[id] = fits[id] && node.op->quantizes && node.op->quantizes(node.options, i);
    }
  bool any = false;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].kind != ValueKind::frozen || !fits[i] || !read[i]) continue;
    values_[i].stored_bits = bits;
    any = true;
  }
  if (!any)
    fail(Code::invalid_argument,
         "model: 'quantize' keeps the frozen weights of products and convolutions in fewer bits, "
         "and none is frozen: give 'lora' or 'frozen', too");
}

ValueId Graph::parameter(const std::string& name) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].kind != ValueKind::parameter) continue;
    if (values_[i].name == name) return static_cast<ValueId>(i);
    names.push_back(values_[i].name);
  }
  fail(Code::not_found, "the model has no parameter '", name, "' so far", suggestion(name, names));
}

ValueId Graph::add(const std::string& op_name, const Json& options, std::vector<ValueId> inputs,
                   const std::string& label, std::optional<uint32_t> key) {
  const ops::OpSpec& op = ops::find_op(op_name);
  size_t required = 0;
  for (const ops::OpInput& input : op.inputs) required += !input.optional;
  if (inputs.size() < required || inputs.size() > op.inputs.size())
    fail(Code::invalid_argument, label, ": op '", op.name, "' takes ", required, " to ",
         counted(op.inputs.size(), "input"), ", not ", inputs.size());
  std::vector<Shape> shapes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (value(inputs[i]).dtype != op.inputs[i].dtype)
      fail(Code::invalid_argument, label, ": ", op.inputs[i].name, " of op '", op.name,
           "' must be ", dtype_name(op.inputs[i].dtype), ", not ",
           dtype_name(value(inputs[i]).dtype));
    shapes.push_back(shape(inputs[i]));
  }
  Options checked(op.options, cat(label, " (op '", op.name, "')"), options);
  ops::OpShapes out;
  try {
    out = op.shapes(checked, shapes);
  } catch (const Error& error) {
    fail(error.code(), label, ": ", error.what());
  }
  check_count(label, DType::f32, out.output);
  const ValueId output = add_value({ValueKind::result, "", out.output, DType::f32, false, {}});
  nodes_.push_back({&op, std::move(checked), label, std::move(inputs), output, out.saved,
                    key.value_or(static_cast<uint32_t>(nodes_.size()))});
  return output;
}

}  // namespace etr::graph
