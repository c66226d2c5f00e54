#include "nn/loss.h"

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "nn/init.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kLoss[] = {
    {"loss", OptionType::string, "\"softmax_cross_entropy\"",
     "the function that training minimises", 0, 0, "",
     "softmax_cross_entropy|binary_cross_entropy|mse|l1|huber|multibox"},
    {"target", OptionType::string, "\"label\"",
     "field of the batch with the expected output; for multibox \"boxes\" by default"},
    {"label_smoothing", OptionType::number, "0",
     "probability spread evenly over all classes (softmax_cross_entropy)", 0, 0.99},
    {"ignore_index", OptionType::integer, "-1",
     "label of rows that are ignored (softmax_cross_entropy)", -2147483647, 2147483647, "", "",
     "ignored_label"},
    {"class_weights", OptionType::numbers, "[]",
     "weight of each class's rows; empty: all equal (softmax_cross_entropy)", 0, 1e9},
    {"delta", OptionType::number, "1", "where the loss changes from quadratic to linear (huber)",
     1e-6, 1e6},
    {"max_boxes", OptionType::integer, "32",
     "number of rows of boxes for each image: 'max_boxes' of the stage 'boxes' "
     "(multibox)",
     1, 1 << 16, "", "", "most_boxes"},
    {"iou_threshold", OptionType::number, "0.5",
     "intersection over union above which an anchor is matched to a box (multibox)", 0, 1, "", "",
     "overlap"},
    {"negative_ratio", OptionType::number, "3",
     "number of background anchors that count, for each matched anchor: those with the largest "
     "loss (multibox)",
     0, 1e6, "", "", "negatives"},
};

const char* op_of(const std::string& kind) {
  return kind == "mse" ? "squared_error" : kind == "l1" ? "absolute_error" : kind.c_str();
}

// Returns the field as a value: the model's own input if the model reads it too (an autoencoder).
graph::ValueId field(graph::Graph& graph, const std::string& name, const Shape& shape,
                     DType dtype) {
  for (size_t i = 0; i < graph.values().size(); ++i) {
    const graph::Value& value = graph.values()[i];
    if (value.kind != graph::ValueKind::input || value.name != name) continue;
    if (value.shape != shape || value.dtype != dtype)
      fail(Code::invalid_argument, "model loss: the target '", name, "' is ",
           dtype_name(value.dtype), " ", shape_text(value.shape), "; the model's result needs ",
           dtype_name(dtype), " ", shape_text(shape));
    return static_cast<graph::ValueId>(i);
  }
  return graph.add_input(name, shape, dtype);
}

// An option of another loss has no effect, which would go unnoticed.
void check_read(const Options& options) {
  constexpr struct {
    const char* loss;
    std::string_view option;
  } kReaders[] = {
      {"softmax_cross_entropy", "label_smoothing"},
      {"softmax_cross_entropy", "ignore_index"},
      {"softmax_cross_entropy", "class_weights"},
      {"huber", "delta"},
      {"multibox", "max_boxes"},
      {"multibox", "iou_threshold"},
      {"multibox", "negative_ratio"},
  };
  const std::string kind = options.string("loss");
  for (const auto& [loss, option] : kReaders) {
    if (loss == kind) continue;
    const std::string unread = changed_options(kLoss, options, {&option, 1}, "loss");
    if (!unread.empty())
      fail(Code::invalid_argument, "model: ", unread, ", which the loss '", kind,
           "' does not use: leave it out, or set loss.loss to ", loss);
  }
}

}  // namespace

Schema loss_schema() { return kLoss; }

Loss::Loss(const Json& spec) {
  const Options options(kLoss, "model loss", spec.is_null() ? Json::object() : spec);
  check_read(options);
  kind_ = options.string("loss");
  target_ = options.string("target");
  if (kind_ == "multibox" && !(spec.is_object() && spec.contains("target"))) target_ = "boxes";
  max_boxes_ = options.integer("max_boxes");
  iou_threshold_ = options.number("iou_threshold");
  negative_ratio_ = options.number("negative_ratio");
  label_smoothing_ = options.number("label_smoothing");
  ignored_ = options.integer("ignore_index");
  class_weights_ = options.numbers("class_weights");
  delta_ = options.number("delta");
}

// Adds the weight of each label.
graph::ValueId Loss::weights(graph::Graph& graph, graph::ValueId target) const {
  std::vector<graph::ValueId> inputs{target};
  if (!class_weights_.empty())
    inputs.push_back(graph.add_constant("loss.class_weights",
                                        {static_cast<int64_t>(class_weights_.size())},
                                        [weights = class_weights_](std::span<float> out, Rng&) {
                                          for (size_t i = 0; i < out.size(); ++i)
                                            out[i] = static_cast<float>(weights[i]);
                                        }));
  return graph.add("label_weights", {{"ignored", ignored_}}, inputs, "loss");
}

// The sum over a batch's anchors divided by the number of anchors that have to find a box (Liu et
// al. 2016, equation 1).
Loss::Values Loss::build_multibox(graph::Graph& graph, graph::ValueId output) const {
  const Shape& shape = graph.shape(output);
  if (shape.size() != 3 || shape[2] < 10)
    fail(Code::invalid_argument, "the model ends with shape ", shape_text(shape),
         "; the loss 'multibox' needs [N, anchors, 1 + classes + 8]: end with layers 'box_head', "
         "joined "
         "by 'concat' along axis 1");
  const auto boxes = field(graph, target_, {shape[0], max_boxes_, 5}, DType::f32);
  const auto match =
      graph.add("box_match", {{"iou_threshold", iou_threshold_}}, {output, boxes}, "loss");
  const auto one = graph.add_constant("loss.one", {1}, constant(1));
  // 0 or 1.
  const auto finds = graph.add("binary", {{"function", "minimum"}}, {match, one}, "loss");
  const auto rows = graph.add("multibox_loss", {{"negative_ratio", negative_ratio_}},
                              {output, boxes, match}, "loss");
  return {boxes, graph.add("mean_rows", Json::object(), {rows, finds}, "loss"), -1};
}

Loss::Values Loss::build(graph::Graph& graph, graph::ValueId output) const {
  if (kind_ == "multibox") return build_multibox(graph, output);
  const Shape& shape = graph.shape(output);
  if (shape.size() < 2)
    fail(Code::invalid_argument, "the model ends with shape ", shape_text(shape),
         "; the loss needs [N, outputs]: end with a dense layer");
  if (!classifies()) {
    const graph::ValueId target = field(graph, target_, shape, DType::f32);
    const Json options = kind_ == "huber" ? Json{{"delta", delta_}} : Json::object();
    const auto rows = graph.add(op_of(kind_), options, {output, target}, "loss");
    return {target, graph.add("mean_rows", Json::object(), {rows}, "loss"), -1};
  }
  if (!class_weights_.empty() && static_cast<int64_t>(class_weights_.size()) != shape.back())
    fail(Code::invalid_argument, "model loss: class_weights has ",
         counted(class_weights_.size(), "weight"), " for ",
         counted(shape.back(), "class", "classes"));
  const auto target = field(graph, target_, Shape(shape.begin(), shape.end() - 1), DType::i32);
  const auto weight = weights(graph, target);
  const auto mean = [&](const char* op, const Json& options) {
    const auto rows = graph.add(op, options, {output, target, weight}, "loss");
    return graph.add("mean_rows", Json::object(), {rows, weight}, "loss");
  };
  const auto loss = mean("softmax_cross_entropy", Json::object());
  return {target, loss, mean("accuracy", Json::object())};
}

}  // namespace etr::nn
