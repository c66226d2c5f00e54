#include "train/summary.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/number_text.h"

namespace etr::train {
namespace {

constexpr int64_t kMostElements = INT32_MAX;  // of a sample

Json shape_of(const Shape& shape, int64_t rows) {
  Json out = Json::array();
  for (const int64_t extent : shape) out.push_back(extent);
  if (!shape.empty() && shape[0] == rows) out[0] = -1;
  return out;
}

std::string shape_text(const Json& shape) {
  std::string out;
  for (const Json& extent : shape)
    out += cat(out.empty() ? "" : ", ", extent == -1 ? "N" : extent.dump());
  return "[" + out + "]";
}

nn::Field field_of(const std::string& name, const Json& given) {
  const auto wrong = [&] {
    fail(Code::invalid_argument, "summary: field '", name, "' is ", given.dump(),
         "; give the shape of a sample, as in [28, 28, 1], or {\"dtype\": \"i32\", \"shape\": "
         "[12]}");
  };
  nn::Field field;
  const Json* shape = &given;
  if (given.is_object()) {
    for (const auto& [key, value] : given.items())
      if (key != "shape" && key != "dtype") wrong();
    if (!given.contains("shape")) wrong();
    const Json dtype = given.value("dtype", Json("f32"));
    if (dtype != "f32" && dtype != "i32" && dtype != "u8") wrong();
    field.dtype = dtype == "i32" ? DType::i32 : DType::f32;  // a model gets bytes as floats
    shape = &given["shape"];
  }
  if (!shape->is_array()) wrong();
  int64_t count = 1;
  for (const Json& extent : *shape) {
    if (!extent.is_number_integer() || extent.get<int64_t>() < 1 ||
        extent.get<int64_t>() > kMostElements)
      wrong();
    field.sample.push_back(extent.get<int64_t>());
    count *= extent.get<int64_t>();
    if (count > kMostElements) wrong();
  }
  return field;
}

}  // namespace

Json summary(const nn::ModelGraph& net) {
  const graph::Graph& graph = net.graph;
  const int64_t rows = graph.shape(net.inputs[0])[0];
  Json inputs = Json::array(), layers = Json::array();
  for (const graph::ValueId id : net.inputs) {
    const graph::Value& value = graph.value(id);
    inputs.push_back({{"name", value.name},
                      {"dtype", dtype_name(value.dtype)},
                      {"shape", shape_of(value.shape, rows)}});
  }
  std::vector<bool> counted(graph.values().size(), false);
  int64_t parameters = 0, frozen = 0, states = 0;
  for (const graph::Node& node : graph.nodes()) {
    if (node.label == "loss") continue;
    if (layers.empty() || layers.back()["name"] != node.label)
      layers.push_back({{"name", node.label}, {"op", node.op->name}, {"parameters", 0}});
    Json& layer = layers.back();
    layer["shape"] = shape_of(graph.shape(node.output), rows);
    for (const graph::ValueId id : node.inputs) {
      const graph::Value& value = graph.value(id);
      const auto index = static_cast<size_t>(id);
      if (counted[index]) continue;
      counted[index] = true;
      const int64_t count = element_count(value.shape);
      if (value.kind == graph::ValueKind::state) states += count;
      if (value.kind == graph::ValueKind::frozen) frozen += count;
      if (value.kind != graph::ValueKind::parameter && value.kind != graph::ValueKind::frozen)
        continue;
      layer["parameters"] = layer["parameters"].get<int64_t>() + count;
      parameters += count;
    }
  }
  return {{"inputs", std::move(inputs)},
          {"layers", std::move(layers)},
          {"parameters", parameters},
          {"frozen", frozen},
          {"states", states}};
}

Json summary(const nn::Model& model, const Json& fields) {
  if (!fields.is_object())
    fail(Code::invalid_argument, "summary: the fields are a JSON object of shapes, not ",
         fields.dump());
  for (const auto& [name, shape] : fields.items())
    if (std::find(model.inputs().begin(), model.inputs().end(), name) == model.inputs().end())
      fail(Code::invalid_argument, "summary: the model reads no field '", name, "'",
           suggestion(name, model.inputs()));
  nn::Fields made;
  for (const std::string& name : model.inputs()) {
    if (!fields.contains(name))
      fail(Code::invalid_argument, "summary: the model reads field '", name,
           "', so its shapes depend on that of a sample: give {\"", name, "\": [...]}");
    made[name] = field_of(name, fields[name]);
  }
  return summary(model.build(1, made));
}

std::string summary_text(const Json& summary) {
  size_t names = 5, shapes = 5;
  for (const char* kind : {"inputs", "layers"})
    for (const Json& row : summary[kind]) {
      names = std::max(names, row["name"].get<std::string>().size());
      shapes = std::max(shapes, shape_text(row["shape"]).size());
    }
  const auto line = [&](std::string name, std::string shape, const std::string& count) {
    name.resize(names, ' ');
    shape.resize(shapes, ' ');
    return name + "  " + shape + "  " +
           std::string(count.size() < 12 ? 12 - count.size() : 0, ' ') + count + "\n";
  };
  const auto number = [](const Json& row, const char* key) {
    return number_text(static_cast<double>(row[key].get<int64_t>()));
  };
  std::string out = line("layer", "shape", "parameters");
  for (const Json& row : summary["inputs"])
    out += line(row["name"], shape_text(row["shape"]), row["dtype"].get<std::string>());
  for (const Json& row : summary["layers"])
    out += line(row["name"], shape_text(row["shape"]), number(row, "parameters"));
  out += cat(number(summary, "parameters"), " parameters");
  if (summary["frozen"] != 0) out += cat(", ", number(summary, "frozen"), " of them frozen");
  if (summary["states"] != 0) out += cat(", ", number(summary, "states"), " running statistics");
  return out + "\n";
}

}  // namespace etr::train
