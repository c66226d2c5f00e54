#include "nn/model.h"

#include "core/error.h"
#include "core/json.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kLoss[] = {
    {"loss", OptionType::string, "\"softmax_cross_entropy\"", "what training minimises", 0, 0, "",
     "softmax_cross_entropy|mse"},
    {"label_smoothing", OptionType::number, "0",
     "probability spread evenly over all classes (cross-entropy only)", 0, 0.99},
};

}  // namespace

Schema loss_schema() { return kLoss; }

Model::Model(const Json& spec) {
  const std::string keys[] = {"layers", "loss"};
  check_keys(spec, keys, "model");
  if (!spec.is_object() || !spec.contains("layers") || !spec["layers"].is_array() ||
      spec["layers"].empty())
    fail(Code::invalid_argument, "model: 'layers' must be a list with at least one layer");
  size_t position = 0;
  for (Json options : spec["layers"]) {
    const std::string where = cat("model layer ", ++position);
    if (!options.is_object() || !options.contains("layer") || !options["layer"].is_string())
      fail(Code::invalid_argument, where,
           " needs a key 'layer' with a layer's name: ", options.dump());
    const auto kind = options["layer"].get<std::string>();
    options.erase("layer");
    const LayerSpec& layer = find_layer(kind);
    layers_.push_back({&layer, Options(layer.options, cat(where, " ('", kind, "')"), options),
                       cat(kind, "_", position)});
  }
  const Options loss(kLoss, "model loss", spec.value("loss", Json::object()));
  loss_ = loss.string("loss");
  label_smoothing_ = loss.number("label_smoothing");
}

ModelGraph Model::build(int64_t batch, const Shape& sample) const {
  ModelGraph m;
  graph::Graph& g = m.graph;
  m.image = g.add_input("image", with_batch(batch, sample), DType::f32);
  graph::ValueId x = m.image;
  for (const Layer& layer : layers_) x = layer.spec->build({g, layer.options, layer.name, x});
  if (g.shape(x).size() != 2)
    fail(Code::invalid_argument, "the model ends with shape ", shape_text(g.shape(x)),
         "; the loss needs [N, outputs]: end with a dense layer");
  m.logits = x;
  const Shape label_shape = classifies() ? Shape{batch} : g.shape(x);
  m.label = g.add_input("label", label_shape, label_dtype());
  const Json options = classifies() ? Json{{"label_smoothing", label_smoothing_}} : Json::object();
  m.loss =
      g.add("mean_rows", Json::object(), {g.add(loss_, options, {x, m.label}, "loss")}, "loss");
  if (classifies())
    m.accuracy = g.add("mean_rows", Json::object(),
                       {g.add("accuracy", Json::object(), {x, m.label}, "accuracy")}, "accuracy");
  return m;
}

}  // namespace etr::nn
