#include "nn/onnx.h"

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "nn/onnx_file.h"

namespace etr::nn {
namespace {

using graph::Node;
using graph::ValueId;
using graph::ValueKind;

class Exporter : private OnnxFile {
 public:
  Exporter(const ModelGraph& model, const std::function<Tensor(const std::string&)>& value_of)
      : model_(model), graph_(model.graph), value_of_(value_of) {}

  std::string run();

 private:
  Name relu_where(const Node& node, const Name& x) {
    return node.options.boolean("relu") ? emit("Relu", {x}) : x;
  }
  template <typename F>
  Name on_image(const Name& x, F&& f) {  // f works on [N, C, H, W]
    return transpose(f(transpose(x, {0, 3, 1, 2})), {0, 2, 3, 1});
  }
  std::vector<float> floats(ValueId id);
  Name weight(ValueId id);  // unchanged
  Name name_of(const Node& node, size_t i) { return graph_.value(node.inputs[i]).name; }
  std::vector<int64_t> free_batch(const Shape& shape);

  // One for each op.
  Name convert(const Node& node);
  Name attention(const Node& node);
  Name rotary(const Node& node);
  Name batch_norm(const Node& node);
  Name binary(const Node& node);
  Name conv2d(const Node& node, bool transposed);
  Name dense(const Node& node);
  Name group_norm(const Node& node);
  Name each_sample(const Node& node, size_t i);
  Name layer_norm(const Node& node);
  Name pool(const Node& node, const char* op);
  Name recurrent(const Node& node);
  Name reduce(const Node& node);
  Name slice(const Node& node);
  Name unary(const Node& node);

  Name in(const Node& node, size_t i) { return names_.at(node.inputs[i]); }
  Shape shape_in(const Node& node, size_t i) { return graph_.shape(node.inputs[i]); }
  [[noreturn]] void lacks(const Node& node, const std::string& what) {
    fail(Code::unsupported, "layer '", node.label, "' cannot be exported to ONNX: ", what);
  }
  void find_needed();

  const ModelGraph& model_;
  const graph::Graph& graph_;
  const std::function<Tensor(const std::string&)>& value_of_;
  std::set<ValueId> needed_;
  std::map<ValueId, Name> names_;
};

std::vector<float> Exporter::floats(ValueId id) {
  const Tensor tensor = value_of_(graph_.value(id).name);
  const auto view = tensor.view<float>();
  return {view.begin(), view.end()};
}

OnnxFile::Name Exporter::weight(ValueId id) {
  if (const auto it = names_.find(id); it != names_.end()) return it->second;
  const Name name = graph_.value(id).name;
  parameter(name, value_of_(name));
  return names_[id] = name;
}

// Returns a shape for Reshape that keeps the first axis.
std::vector<int64_t> Exporter::free_batch(const Shape& shape) {
  std::vector<int64_t> out(shape.begin(), shape.end());
  out[0] = 0;
  return out;
}

// Finds what the output depends on, which excludes the loss.
void Exporter::find_needed() {
  needed_ = {model_.output};
  for (size_t n = graph_.nodes().size(); n-- > 0;) {
    const Node& node = graph_.nodes()[n];
    if (needed_.count(node.output)) needed_.insert(node.inputs.begin(), node.inputs.end());
  }
}

OnnxFile::Name Exporter::unary(const Node& node) {
  const std::string f = node.options.string("function");
  const Name x = in(node, 0);
  const double alpha = node.options.number("alpha");
  const std::map<std::string, const char*> plain{
      {"relu", "Relu"},         {"sigmoid", "Sigmoid"}, {"tanh", "Tanh"},
      {"softplus", "Softplus"}, {"exp", "Exp"},         {"log", "Log"},
      {"sqrt", "Sqrt"},         {"abs", "Abs"},         {"negate", "Neg"}};
  if (const auto it = plain.find(f); it != plain.end()) return emit(it->second, {x});
  if (f == "leaky_relu") return emit("LeakyRelu", {x}, OnnxAttributes().real("alpha", alpha));
  if (f == "elu") return emit("Elu", {x}, OnnxAttributes().real("alpha", alpha));
  if (f == "square") return emit("Mul", {x, x});
  if (f == "silu") return emit("Mul", {x, emit("Sigmoid", {x})});
  // x times a factor between 0 and 1.
  Name inner;
  if (f == "gelu") {
    inner = emit("Erf", {emit("Mul", {x, number(std::sqrt(0.5))})});
  } else {  // gelu_tanh
    const Name cube = emit("Mul", {emit("Mul", {x, x}), emit("Mul", {x, number(0.044715)})});
    inner = emit("Tanh", {emit("Mul", {emit("Add", {x, cube}), number(std::sqrt(2 / M_PI))})});
  }
  return emit("Mul", {emit("Mul", {x, number(0.5)}), emit("Add", {inner, number(1)})});
}

OnnxFile::Name Exporter::binary(const Node& node) {
  const std::string f = node.options.string("function");
  const char* op = f == "add"        ? "Add"
                   : f == "subtract" ? "Sub"
                   : f == "multiply" ? "Mul"
                   : f == "divide"   ? "Div"
                   : f == "maximum"  ? "Max"
                                     : "Min";
  return relu_where(node, emit(op, {in(node, 0), in(node, 1)}));
}

OnnxFile::Name Exporter::dense(const Node& node) {
  Name w = in(node, 1);
  if (node.options.boolean("transposed")) w = transpose(w, {1, 0});
  Name y = emit("MatMul", {in(node, 0), w});
  if (node.inputs.size() > 2) y = emit("Add", {y, in(node, 2)});
  return relu_where(node, y);
}

OnnxFile::Name Exporter::conv2d(const Node& node, bool transposed) {
  const Shape w = shape_in(node, 1);
  const Options& o = node.options;
  const int64_t pad = o.integer("pad");
  int64_t pad_y = pad;
  OnnxAttributes attributes;
  if (!transposed) {
    pad_y = o.integer("pad_height") < 0 ? pad : o.integer("pad_height");
    attributes.integers("dilations", {o.integer("dilation"), o.integer("dilation")})
        .integer("group", o.integer("groups"));
  }
  attributes.integers("kernel_shape", {w[0], w[1]})
      .integers("pads", {pad_y, pad, pad_y, pad})
      .integers("strides", {o.integer("stride"), o.integer("stride")});
  // [KH, KW, C, F] -> [F, C, KH, KW]; for the transpose [KH, KW, F, C] -> [C, F, KH, KW]: the same
  // permutation.
  const std::vector<float> from = floats(node.inputs[1]);
  std::vector<float> to(from.size());
  const auto taps = static_cast<size_t>(w[0] * w[1]), c = static_cast<size_t>(w[2]),
             f = static_cast<size_t>(w[3]);
  for (size_t t = 0; t < taps; ++t)
    for (size_t i = 0; i < c; ++i)
      for (size_t k = 0; k < f; ++k) to[(k * c + i) * taps + t] = from[(t * c + i) * f + k];
  std::vector<Name> inputs{"", parameter(name_of(node, 1), {w[3], w[2], w[0], w[1]}, to)};
  if (node.inputs.size() > 2) inputs.push_back(in(node, 2));
  const Name y = on_image(in(node, 0), [&](const Name& image) {
    inputs[0] = image;
    return emit(transposed ? "ConvTranspose" : "Conv", inputs, attributes);
  });
  return transposed ? y : relu_where(node, y);
}

// Folded: y = x scale + shift with the running moments.
OnnxFile::Name Exporter::batch_norm(const Node& node) {
  const auto gamma = floats(node.inputs[1]), beta = floats(node.inputs[2]);
  const auto mean = floats(node.inputs[3]), var = floats(node.inputs[4]);
  std::vector<float> scale(gamma.size()), shift(gamma.size());
  for (size_t i = 0; i < gamma.size(); ++i) {
    const double s = static_cast<double>(gamma[i]) /
                     std::sqrt(static_cast<double>(var[i]) + node.options.number("epsilon"));
    scale[i] = static_cast<float>(s);
    shift[i] = static_cast<float>(static_cast<double>(beta[i]) - s * static_cast<double>(mean[i]));
  }
  const std::vector<int64_t> dims{static_cast<int64_t>(gamma.size())};
  const Name y = emit("Add", {emit("Mul", {in(node, 0), parameter(name_of(node, 1), dims, scale)}),
                              parameter(name_of(node, 2), dims, shift)});
  return relu_where(node, y);
}

// Returns the input, repeated for all samples if it has only one.
OnnxFile::Name Exporter::each_sample(const Node& node, size_t i) {
  const Shape shape = shape_in(node, i);
  if (shape[0] == graph_.shape(node.output)[0]) return in(node, i);
  const Name count = emit("Gather", {emit("Shape", {in(node, 1 - i)}), integers({0})},
                          OnnxAttributes().integer("axis", 0));
  const Name whole = emit("Concat", {count, integers({shape.begin() + 1, shape.end()})},
                          OnnxAttributes().integer("axis", 0));
  return emit("Expand", {in(node, i), whole});
}

OnnxFile::Name Exporter::layer_norm(const Node& node) {
  const double epsilon = node.options.number("epsilon");
  if (node.inputs.size() > 2)
    return emit("LayerNormalization", {in(node, 0), in(node, 1), in(node, 2)},
                OnnxAttributes().integer("axis", -1).real("epsilon", epsilon));
  const Name x = in(node, 0);
  const Name square = emit("ReduceMean", {emit("Mul", {x, x})},
                           OnnxAttributes().integers("axes", {-1}).integer("keepdims", 1));
  return emit("Mul", {emit("Div", {x, emit("Sqrt", {emit("Add", {square, number(epsilon)})})}),
                      in(node, 1)});
}

OnnxFile::Name Exporter::group_norm(const Node& node) {
  const Shape x = shape_in(node, 0);
  const int64_t groups = node.options.integer("groups"), c = x.back(),
                pixels = element_count(x) / (x[0] * c);
  const Name split = reshape(in(node, 0), {0, pixels, groups, c / groups});
  const auto mean_of = [&](const Name& v) {
    return emit("ReduceMean", {v},
                OnnxAttributes().integers("axes", {1, 3}).integer("keepdims", 1));
  };
  const Name centred = emit("Sub", {split, mean_of(split)});
  const Name variance = emit(
      "Add", {mean_of(emit("Mul", {centred, centred})), number(node.options.number("epsilon"))});
  const Name h = reshape(emit("Div", {centred, emit("Sqrt", {variance})}), free_batch(x));
  return emit("Add", {emit("Mul", {h, in(node, 1)}), in(node, 2)});
}

OnnxFile::Name Exporter::pool(const Node& node, const char* op) {
  const Options& o = node.options;
  const Shape x = shape_in(node, 0);
  std::vector<int64_t> window{o.integer("window"), o.integer("window")},
      stride{o.integer("stride"), o.integer("stride")};
  int64_t pad = o.integer("pad");
  if (std::strcmp(op, "AveragePool") == 0 && o.integer("outputs") > 0) {
    const int64_t outputs = o.integer("outputs");
    if (x[1] % outputs || x[2] % outputs)
      lacks(node, cat("windows that share ", x[1], " x ", x[2], " pixels among ", outputs,
                      " outputs differ in size"));
    window = stride = {x[1] / outputs, x[2] / outputs};
    pad = 0;
  }
  return on_image(in(node, 0), [&](const Name& image) {
    return emit(op, {image},
                OnnxAttributes()
                    .integers("kernel_shape", window)
                    .integers("pads", {pad, pad, pad, pad})
                    .integers("strides", stride));
  });
}

// ONNX stores gates as rows, in another order, and both biases in one tensor.
OnnxFile::Name Exporter::recurrent(const Node& node) {
  const bool lstm = node.options.string("cell") == "lstm",
             reverse = node.options.boolean("reverse");
  const std::vector<size_t> order =
      lstm ? std::vector<size_t>{0, 3, 1, 2} : std::vector<size_t>{1, 0, 2};
  const int64_t width = shape_in(node, 3)[0], gates = width * static_cast<int64_t>(order.size());
  // [rows, gates * width] -> [gates * width, rows] in ONNX's order of gates.
  const auto arranged = [&](size_t input, int64_t rows) {
    const std::vector<float> from = floats(node.inputs[input]);
    std::vector<float> to;
    for (const size_t gate : order)
      for (size_t k = 0; k < static_cast<size_t>(width); ++k)
        for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
          to.push_back(
              from[r * static_cast<size_t>(gates) + gate * static_cast<size_t>(width) + k]);
    return to;
  };
  const int64_t features = shape_in(node, 0)[2];
  std::vector<float> biases = arranged(2, 1);
  const std::vector<float> recurrent_biases = arranged(4, 1);
  biases.insert(biases.end(), recurrent_biases.begin(), recurrent_biases.end());
  OnnxAttributes attributes;
  attributes.integer("hidden_size", width).text("direction", reverse ? "reverse" : "forward");
  if (!lstm) attributes.integer("linear_before_reset", 1);
  const Name y = emit(lstm ? "LSTM" : "GRU",
                      {transpose(in(node, 0), {1, 0, 2}),
                       parameter(name_of(node, 1), {1, gates, features}, arranged(1, features)),
                       parameter(name_of(node, 3), {1, gates, width}, arranged(3, width)),
                       constant({1, 2 * gates}, biases)},
                      attributes);
  return transpose(emit("Squeeze", {y, integers({1})}), {1, 0, 2});
}

OnnxFile::Name Exporter::reduce(const Node& node) {
  const std::string f = node.options.string("function");
  const auto axes = node.options.integers("axes");
  const int64_t keep = node.options.boolean("keep_axes");
  if (f == "sum")
    return emit("ReduceSum", {in(node, 0), integers(axes)},
                OnnxAttributes().integer("keepdims", keep));
  const char* op = f == "mean" ? "ReduceMean" : f == "max" ? "ReduceMax" : "ReduceMin";
  return emit(op, {in(node, 0)}, OnnxAttributes().integers("axes", axes).integer("keepdims", keep));
}

OnnxFile::Name Exporter::slice(const Node& node) {
  const auto rank = static_cast<int64_t>(shape_in(node, 0).size());
  int64_t axis = node.options.integer("axis");
  if (axis < 0) axis += rank;
  int64_t begin = node.options.integer("begin");
  if (begin < 0) begin += shape_in(node, 0)[static_cast<size_t>(axis)];
  const int64_t length = graph_.shape(node.output)[static_cast<size_t>(axis)];
  return emit("Slice",
              {in(node, 0), integers({begin}), integers({begin + length}), integers({axis})});
}

OnnxFile::Name Exporter::attention(const Node& node) {
  const Shape y = graph_.shape(node.output);
  const int64_t heads = node.options.integer("heads"), head = y[2] / heads;
  const int64_t given = node.options.integer("kv_heads"), kv_heads = given ? given : heads;
  const bool one = node.inputs.size() == 1;
  const int64_t keys = one ? y[1] : shape_in(node, 1)[1];
  std::vector<Name> parts;
  if (one) {
    const Name first =
        emit("Split", {in(node, 0), integers({y[2], kv_heads * head, kv_heads * head})},
             OnnxAttributes().integer("axis", -1), 3);
    parts = {first, first + ".1", first + ".2"};
  } else {
    parts = {in(node, 0), in(node, 1), in(node, 2)};
  }
  // Heads of keys and values are repeated for the heads of queries that share them.
  for (size_t i = 1; i < 3 && kv_heads != heads; ++i)
    parts[i] = reshape(emit("Expand", {reshape(parts[i], {0, 0, kv_heads, 1, head}),
                                       integers({1, 1, 1, heads / kv_heads, 1})}),
                       {0, keys, heads * head});
  const auto by_head = [&](const Name& x, const std::vector<int64_t>& axes) {
    return transpose(reshape(x, {0, 0, heads, head}), axes);
  };
  Name scores = emit("MatMul", {by_head(parts[0], {0, 2, 1, 3}), by_head(parts[1], {0, 2, 3, 1})});
  scores = emit("Mul", {scores, number(1 / std::sqrt(static_cast<double>(head)))});
  constexpr float kNever = -1e30f;
  if (node.options.boolean("causal")) {
    std::vector<float> mask(static_cast<size_t>(y[1] * keys));
    for (int64_t i = 0; i < y[1]; ++i)
      for (int64_t j = i + keys - y[1] + 1; j < keys; ++j)
        mask[static_cast<size_t>(i * keys + j)] = kNever;
    scores = emit("Add", {scores, constant({y[1], keys}, mask)});
  }
  Name seen;
  if (node.inputs.size() == 4) {
    std::vector<float> places;
    for (int64_t j = 0; j < keys; ++j) places.push_back(static_cast<float>(j));
    const Name lengths = reshape(
        emit("Cast", {in(node, 3)}, OnnxAttributes().integer("to", kOnnxFloat)), {0, 1, 1, 1});
    seen = emit("Less", {constant({keys}, places), lengths});
    scores = emit("Where", {seen, scores, number(static_cast<double>(kNever))});
  }
  Name p = emit("Softmax", {scores}, OnnxAttributes().integer("axis", -1));
  // A sample without keys attends to nothing.
  if (!seen.empty())
    p = emit("Mul", {p, emit("Cast", {seen}, OnnxAttributes().integer("to", kOnnxFloat))});
  const Name mixed = emit("MatMul", {p, by_head(parts[2], {0, 2, 1, 3})});
  return reshape(transpose(mixed, {0, 2, 1, 3}), {0, y[1], y[2]});
}

OnnxFile::Name Exporter::rotary(const Node& node) {
  const Shape x = shape_in(node, 0), table = shape_in(node, 1);
  const int64_t heads = node.options.integer("heads"), head = table[1], half = head / 2;
  const auto columns = [&](const Name& of, int64_t begin, int64_t end, int64_t axis) {
    return emit("Slice", {of, integers({begin}), integers({end}), integers({axis})});
  };
  const auto angles = [&](int64_t begin) {
    return reshape(columns(in(node, 1), begin, begin + half, 1), {x[1], 1, half});
  };
  const Name cosines = angles(0), sines = angles(half);
  const Name by_head = reshape(columns(in(node, 0), 0, heads * head, 2), {0, 0, heads, head});
  const Name a = columns(by_head, 0, half, 3), b = columns(by_head, half, head, 3);
  const auto product = [&](const Name& of, const Name& by) { return emit("Mul", {of, by}); };
  const Name turned = reshape(emit("Concat",
                                   {emit("Sub", {product(a, cosines), product(b, sines)}),
                                    emit("Add", {product(b, cosines), product(a, sines)})},
                                   OnnxAttributes().integer("axis", -1)),
                              {0, x[1], heads * head});
  if (heads * head == x[2]) return turned;
  return emit("Concat", {turned, columns(in(node, 0), heads * head, x[2], 2)},
              OnnxAttributes().integer("axis", -1));
}

OnnxFile::Name Exporter::convert(const Node& node) {
  const std::string op = node.op->name;
  const auto axis = [&] { return OnnxAttributes().integer("axis", node.options.integer("axis")); };
  if (op == "attention") return attention(node);
  if (op == "avg_pool") return pool(node, "AveragePool");
  if (op == "batch_norm") return batch_norm(node);
  if (op == "bias") return emit("Add", {in(node, 0), in(node, 1)});
  if (op == "binary") return binary(node);
  if (op == "concat") return emit("Concat", {each_sample(node, 0), each_sample(node, 1)}, axis());
  if (op == "conv2d") return conv2d(node, false);
  if (op == "conv2d_transpose") return conv2d(node, true);
  if (op == "dense") return dense(node);
  if (op == "dropout") return in(node, 0);
  if (op == "embedding")
    return emit("Gather", {in(node, 0), in(node, 1)}, OnnxAttributes().integer("axis", 0));
  if (op == "flatten" || op == "reshape")
    return reshape(in(node, 0), free_batch(graph_.shape(node.output)));
  if (op == "gather") {
    const Name ids = emit("Cast", {in(node, 1)}, OnnxAttributes().integer("to", kOnnxInt64));
    return emit("GatherND", {in(node, 0), emit("Unsqueeze", {ids, integers({-1})})},
                OnnxAttributes().integer("batch_dims", 1));
  }
  if (op == "global_avg_pool")
    return emit("ReduceMean", {in(node, 0)},
                OnnxAttributes().integers("axes", {1, 2}).integer("keepdims", 0));
  if (op == "group_norm") return group_norm(node);
  if (op == "layer_norm") return layer_norm(node);
  if (op == "max_pool") return pool(node, "MaxPool");
  if (op == "permute") return transpose(in(node, 0), node.options.integers("axes"));
  if (op == "recurrent") return recurrent(node);
  if (op == "reduce") return reduce(node);
  if (op == "rotary") return rotary(node);
  if (op == "slice") return slice(node);
  if (op == "softmax")
    return emit(node.options.boolean("logarithm") ? "LogSoftmax" : "Softmax", {in(node, 0)},
                OnnxAttributes().integer("axis", -1));
  if (op == "unary") return unary(node);
  lacks(node, cat("its op '", op, "' has no counterpart there"));
}

std::string Exporter::run() {
  find_needed();
  for (const ValueId id : model_.inputs) names_[id] = graph_.value(id).name;
  for (const Node& node : graph_.nodes()) {
    if (!needed_.count(node.output)) continue;
    const std::string op = node.op->name;
    // Weights that are folded or rearranged are not exported as they are.
    const bool folds = op == "batch_norm",
               rearranges = op.starts_with("conv2d") || op == "recurrent";
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueKind kind = graph_.value(node.inputs[i]).kind;
      const bool held = graph::is_weight(kind) || kind == ValueKind::constant;
      if (held && !folds && !(rearranges && (i == 1 || op == "recurrent"))) weight(node.inputs[i]);
    }
    names_[node.output] = convert(node);
  }
  for (const ValueId id : model_.inputs)
    input(graph_.value(id).name, graph_.value(id).dtype, graph_.shape(id));
  output(names_.at(model_.output), graph_.shape(model_.output));
  return data();
}

}  // namespace

std::string to_onnx(const ModelGraph& model,
                    const std::function<Tensor(const std::string&)>& value_of) {
  return Exporter(model, value_of).run();
}

}  // namespace etr::nn
