#include "nn/model.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/text.h"
#include "nn/models.h"
#include "nn/onnx_import.h"

namespace etr::nn {

struct LayerText {
  const LayerSpec* spec;
  Options options;
  std::string name;                                                   // within its list
  std::vector<std::string> inputs;                                    // empty: the layer before
  std::map<std::string, std::vector<LayerText>, std::less<>> nested;  // by option
};

namespace {

bool is_nested(const LayerSpec& spec, const std::string& key, const Json& value) {
  const auto option = std::find_if(spec.options.begin(), spec.options.end(),
                                   [&](const OptionSpec& o) { return o.is_called(key); });
  return option != spec.options.end() && option->type == OptionType::layers && value.is_array();
}

// A layer's keys in the spec: common options, its own options, and lists of layers.
struct Given {
  Json common = Json::object(), own = Json::object();
  // Lists of layers, which are empty in `own`.
  std::vector<std::pair<std::string, const Json*>> nested;
};

Given sorted(const Json& json, const LayerSpec& spec) {
  Given out;
  const Schema common = layer_common_schema();
  for (const auto& [key, value] : json.items()) {
    if (key == "layer") continue;
    const bool shared =
        std::any_of(common.begin(), common.end(),
                    [&name = key](const OptionSpec& option) { return option.name == name; });
    const bool nested = !shared && is_nested(spec, key, value);
    if (nested) out.nested.emplace_back(key, &value);
    (shared ? out.common : out.own)[key] = nested ? Json::array() : value;
  }
  return out;
}

// Reads all layers, including nested ones, so that errors appear before there is a batch. Each
// layer is read once.
std::vector<LayerText> read_layers(const Json& layers, const std::string& scope, int depth) {
  if (!layers.is_array())
    fail(Code::invalid_argument, "model: 'layers' must be a list, not ", layers.dump());
  if (depth > kMaxLayerDepth)
    fail(Code::invalid_argument, "model layer '", scope.substr(0, scope.find('.')),
         "': layers are nested more than ", kMaxLayerDepth, " deep");
  std::vector<LayerText> out;
  out.reserve(layers.size());
  for (const Json& json : layers) {
    const std::string where = cat("model layer ", scope, out.size() + 1);
    if (!json.is_object() || !json.contains("layer") || !json["layer"].is_string())
      fail(Code::invalid_argument, where,
           " needs a key 'layer' with a layer's name: ", json.dump());
    const auto kind = json["layer"].get<std::string>();
    const std::string owner = cat(where, " ('", kind, "')");
    const LayerSpec& spec = find_layer(kind);
    const Given given = sorted(json, spec);
    const Options shared(layer_common_schema(), owner, given.common);
    const std::string name = shared.string("name");
    LayerText& layer =
        out.emplace_back(LayerText{&spec,
                                   Options(spec.options, owner, given.own),
                                   name.empty() ? cat(kind, "_", out.size() + 1) : name,
                                   shared.strings("input"),
                                   {}});
    for (const auto& [option, list] : given.nested)
      layer.nested[option] = read_layers(*list, scope + layer.name + ".", depth + 1);
  }
  return out;
}

class Builder {
 public:
  // `served`, `lora`: see LayerCall.
  Builder(graph::Graph& graph, std::map<std::string, graph::ValueId> fields,
          std::vector<ServedTable>* served, const Lora* lora)
      : graph_(graph), served_(served), lora_(lora), values_(std::move(fields)) {}

  graph::ValueId build(const std::vector<LayerText>& layers, graph::ValueId input,
                       const std::string& scope) {
    for (const LayerText& layer : layers) {
      const std::string full_name = scope + layer.name;
      if (++built_ > kMaxLayers)
        fail(Code::invalid_argument, "model layer '", full_name, "': with the layers in 'repeat' ",
             "the model has more than ", kMaxLayers, " layers");
      std::vector<graph::ValueId> inputs;
      for (const std::string& name : layer.inputs) inputs.push_back(find(name, scope, full_name));
      if (inputs.empty()) inputs.push_back(input);
      check_count(layer, full_name, inputs.size());
      if (values_.contains(full_name))
        fail(Code::invalid_argument, "model: two layers or fields are called '", full_name, "'");
      const auto nested = [&](const char* option, graph::ValueId from, const std::string& part) {
        const auto found = layer.nested.find(option);
        if (found == layer.nested.end()) return from;
        return build(found->second, from, full_name + "." + (part.empty() ? "" : part + "."));
      };
      input = layer.spec->build({graph_, layer.options, full_name, inputs, nested, served_, lora_});
      values_.emplace(full_name, input);
    }
    return input;
  }

 private:
  // Looks the name up from the innermost scope outwards.
  graph::ValueId find(const std::string& name, std::string scope, const std::string& reader) const {
    while (true) {
      const auto it = values_.find(scope + name);
      if (it != values_.end()) return it->second;
      if (scope.empty()) break;
      scope.pop_back();  // the dot
      scope.resize(scope.rfind('.') + 1);
    }
    std::vector<std::string> names;
    for (const auto& [known, value] : values_) names.push_back(known);
    fail(Code::invalid_argument, "model layer '", reader, "': there is no layer or field '", name,
         "' before it", suggestion(name, names));
  }

  static void check_count(const LayerText& layer, const std::string& name, size_t count) {
    const auto [least, most] = std::pair(layer.spec->min_inputs, layer.spec->max_inputs);
    if (count >= least && count <= most) return;
    fail(Code::invalid_argument, "model layer '", name, "' reads ", count, " value",
         count == 1 ? "" : "s", "; a layer '", layer.spec->name, "' takes ", least,
         most == least ? "" : cat(" to ", most), ": name them with 'input'");
  }

  graph::Graph& graph_;
  std::vector<ServedTable>* const served_;
  const Lora* const lora_;
  size_t built_ = 0;
  std::map<std::string, graph::ValueId> values_;  // by full name
};

// Options besides the layers and the loss.
constexpr OptionSpec kOptions[] = {
    {"inputs", OptionType::strings, "[\"image\"]", "fields of the batch that the layers read"},
    {"frozen", OptionType::strings, "[]",
     "names of parameters that training does not change, such as \"conv2d_1.weight\"; * matches "
     "any characters"},
    {"quantize", OptionType::integer, "0",
     "number of bits in which frozen weights of matrix products and convolutions are "
     "kept in memory: 8 or 4; 0: not quantised",
     0, 8, "bits"},
    {"recompute", OptionType::boolean, "false",
     "keep only the activations at the borders between parts of the model and recompute the others "
     "for the gradients: less memory, more time"},
    {"precision", OptionType::string, "\"fp32\"",
     "format to which matrix products and convolutions round their operands; sums, weights and "
     "everything else stay fp32. fp16 uses loss scaling",
     0, 0, "", "fp32|bf16|fp16"}};

Options options_of(const Json& spec) {
  Json given = Json::object();
  for (const OptionSpec& option : kOptions)
    if (spec.contains(option.name)) given[option.name] = spec[option.name];
  return Options(kOptions, "model", given);
}

std::vector<std::string> beside_layers() {
  std::vector<std::string> keys{"loss", "lora"};
  for (const OptionSpec& option : kOptions) keys.push_back(option.name);
  return keys;
}

ops::Precision precision_named(const std::string& name) {
  return name == "bf16"   ? ops::Precision::bf16
         : name == "fp16" ? ops::Precision::fp16
                          : ops::Precision::fp32;
}

// Expands a ready-made model into its layers; keys given beside "model" take precedence.
Json expanded(const Json& spec) {
  if (!spec.is_object() || !spec.contains("model")) return spec;
  if (!spec["model"].is_string())
    fail(Code::invalid_argument, "model: 'model' must be a name, not ", spec["model"].dump());
  Json options = spec;
  Json kept = Json::object();
  remove_member(options, "model");
  for (const std::string& key : beside_layers()) {
    if (spec.contains(key)) kept[key] = spec[key];
    remove_member(options, key);
  }
  Json out = expand_model(spec["model"].get<std::string>(), options);
  // A given loss without a kind replaces only the given keys: label smoothing keeps the model's
  // target.
  if (kept.contains("loss") && kept["loss"].is_object() && !kept["loss"].contains("loss")) {
    Json loss = out.value("loss", Json::object());
    loss.update(kept["loss"]);
    kept["loss"] = loss;
  }
  out.update(kept);
  return out;
}

// Layers that are appended get names that the file's layers leave free.
void name_appended(Json& layers, const Json& appended) {
  std::vector<std::string> taken;
  for (const Json& list : {layers, appended})
    for (const Json& layer : list)
      if (layer.is_object() && layer.contains("name") && layer["name"].is_string())
        taken.push_back(layer["name"].get<std::string>());
  for (Json layer : appended) {
    if (layer.is_object() && layer.contains("layer") && layer["layer"].is_string() &&
        !layer.contains("name")) {
      std::string name;
      size_t position = layers.size();
      do name = cat(layer["layer"].get<std::string>(), "_", ++position);
      while (std::find(taken.begin(), taken.end(), name) != taken.end());
      taken.push_back(name);
      layer["name"] = name;
    }
    layers.push_back(std::move(layer));
  }
}

// Replaces "onnx" and "until" by the layers of the file.
Json imported(const Json& spec, std::shared_ptr<const checkpoint::NamedTensors>& weights) {
  if (!spec.is_object() || !spec.contains("onnx")) return spec;
  std::vector<std::string> keys = beside_layers();
  keys.insert(keys.end(), {"onnx", "until", "layers"});
  check_keys(spec, keys, "model");
  for (const char* key : {"onnx", "until"})
    if (spec.contains(key) && !spec[key].is_string())
      fail(Code::invalid_argument, "model: '", key, "' must be text, not ", spec[key].dump());
  for (const char* key : {"onnx", "until"})
    if (spec.contains(key)) check_no_nul(spec[key], cat("model: '", key, "'"));
  const Json appended = spec.value("layers", Json::array());
  if (!appended.is_array())
    fail(Code::invalid_argument, "model: 'layers' must be a list, not ", appended.dump());
  std::vector<std::string> fields;
  if (spec.contains("inputs")) fields = options_of(spec).strings("inputs");
  ImportedModel model = import_onnx(read_onnx(spec["onnx"].get<std::string>()),
                                    spec.value("until", std::string()), fields);
  Json out = spec;
  remove_member(out, "onnx");
  remove_member(out, "until");
  out["layers"] = std::move(model.layers);
  out["inputs"] = model.inputs;
  name_appended(out["layers"], appended);
  weights = std::make_shared<const checkpoint::NamedTensors>(std::move(model.weights));
  return out;
}

}  // namespace

void check_quantize(int64_t bits) {
  if (bits != 0 && bits != 4 && bits != 8)
    fail(Code::invalid_argument, "model: 'quantize' is ", bits, "; it takes 8, 4 or 0");
}

Model::Model(const Json& given, bool serves) : serves_(serves), loss_(nullptr) {
  const Json spec = imported(expanded(given), weights_);
  std::vector<std::string> keys = beside_layers();
  keys.push_back("layers");
  check_keys(spec, keys, "model");
  if (!spec.is_object() || !spec.contains("layers") || !spec["layers"].is_array() ||
      spec["layers"].empty())
    fail(Code::invalid_argument, "model: 'layers' must be a list with at least one layer");
  spec_ = std::make_shared<const Json>(spec);
  const Options options = options_of(spec);
  inputs_ = options.strings("inputs");
  if (inputs_.empty()) fail(Code::invalid_argument, "model: 'inputs' is empty");
  frozen_ = options.strings("frozen");
  quantize_ = static_cast<int>(options.integer("quantize"));
  check_quantize(quantize_);
  recompute_ = options.boolean("recompute");
  precision_ = precision_named(options.string("precision"));
  loss_ = Loss(spec.value("loss", Json()));
  if (spec.contains("lora")) lora_ = std::make_shared<const Lora>(spec["lora"]);
  if (lora_ && !frozen_.empty())
    fail(Code::invalid_argument,
         "model: with 'lora', everything is frozen except the adapters and the parameters "
         "that 'lora.train' names: leave out 'frozen'");
  layers_ = std::make_shared<const std::vector<LayerText>>(read_layers(spec["layers"], "", 1));
}

namespace {

bool any_sparse(const std::vector<LayerText>& layers) {
  return std::any_of(layers.begin(), layers.end(), [](const LayerText& layer) {
    const Json& options = layer.options.json();
    return (options.contains("sparse") && options["sparse"].get<bool>()) ||
           std::any_of(layer.nested.begin(), layer.nested.end(),
                       [](const auto& nested) { return any_sparse(nested.second); });
  });
}

}  // namespace

bool Model::has_sparse() const { return any_sparse(*layers_); }

ModelGraph Model::build(int64_t batch, const Fields& fields) const {
  return build(batch, fields, /*with_lora=*/true);
}

ModelGraph Model::without_adapters(const ModelGraph& of) const {
  Fields fields;
  for (const graph::ValueId id : of.inputs) {
    const graph::Value& input = of.graph.value(id);
    fields[input.name] = {input.dtype, Shape(input.shape.begin() + 1, input.shape.end())};
  }
  return build(of.graph.value(of.inputs[0]).shape[0], fields, /*with_lora=*/false);
}

ModelGraph Model::build(int64_t batch, const Fields& fields, bool with_lora) const {
  ModelGraph m;
  std::map<std::string, graph::ValueId> values;
  for (const std::string& name : inputs_) {
    const Field& field = fields.at(name);
    m.inputs.push_back(m.graph.add_input(name, with_batch(batch, field.sample), field.dtype));
    values[name] = m.inputs.back();
  }
  m.output =
      Builder(m.graph, values, serves_ ? &m.served : nullptr, with_lora ? lora_.get() : nullptr)
          .build(*layers_, m.inputs[0], "");
  const Loss::Values loss = loss_.build(m.graph, m.output);
  m.target = loss.target;
  m.loss = loss.loss;
  m.accuracy = loss.accuracy;
  for (const ServedTable& table : m.served)
    for (const std::string& pattern : frozen_)
      if (matches(pattern, table.name))
        fail(Code::unsupported, "model: 'frozen' has '", pattern, "', and the table '", table.name,
             "' is sparse: servers keep it, and train it");
  m.graph.freeze(frozen_);
  if (with_lora && lora_) {
    lora_->freeze_base(m.graph);
    m.lora = lora_;
  }
  if (quantize_ && (with_lora || !lora_)) m.graph.quantize(quantize_);
  m.recompute = recompute_;
  m.precision = precision_;
  return m;
}

}  // namespace etr::nn
