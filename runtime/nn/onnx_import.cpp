// The whole file: fields, the order of conversion, where the network ends, names.
#include "nn/onnx_import.h"

#include <algorithm>

#include "core/options.h"
#include "core/text.h"
#include "nn/layer.h"
#include "nn/onnx_importer.h"
#include "nn/onnx_patterns.h"

namespace etr::nn {
namespace {

// Free axes get lengths of their own: shape arithmetic is then that of numbers, and a length is
// found again wherever it appears. Primes do not split. What a model must not depend on differs
// between the two sets.
struct Lengths {
  int64_t batch, others[8];
};
constexpr Lengths kFree[] = {
    {1000003, {30011, 30013, 30029, 30047, 30059, 30071, 30089, 30091}},
    {1000033, {30097, 30103, 30109, 30113, 30119, 30133, 30137, 30139}},
};
constexpr const char* kFixedLengths =
    "export the model with fixed lengths; only the batch may be free";
constexpr int64_t kMostExtent = int64_t{1} << 31;
constexpr size_t kMostInputs = 1000;

// How many elements the constants that are computed may have, beyond the number in the file.
constexpr size_t kFoldedElements = size_t{1} << 24;

size_t elements_of(const OnnxGraph& graph) {
  size_t out = 0;
  for (const auto& [name, tensor] : graph.initializers) out += tensor->count();
  for (const OnnxNode& node : graph.nodes)
    for (const auto& [name, attribute] : node.attributes)
      if (attribute.tensor) out += attribute.tensor->count();
  return out;
}

// Keeps what is easy to write in patterns and other tools.
std::string clean(const std::string& name) {
  std::string out;
  for (const char c : name.substr(0, 120)) {
    const bool plain = is_letter_or_digit(c) || c == '.' || c == '-';
    out += plain ? c : '_';
  }
  const size_t begin = out.find_first_not_of("._-");
  return begin == std::string::npos ? "" : out.substr(begin);
}

// "layer1.0.conv1" for "layer1.0.conv1.weight"; "" for names that a program made up.
std::string stem(const std::string& weight) {
  const size_t dot = weight.rfind('.');
  if (dot == std::string::npos || weight.find("::") != std::string::npos) return "";
  return weight.substr(0, dot);
}

// "layer1.0.conv1" for "/layer1/layer1.0/conv1/Conv": the modules, without those that the next one
// names again.
std::string modules(const std::string& node, bool with_last) {
  std::vector<std::string> parts;
  for (const std::string_view part : split(std::string_view(node), '/'))
    if (!part.empty()) parts.emplace_back(part);
  if (parts.size() < 2) return "";
  const std::string last = lower_case(parts.back());
  parts.pop_back();
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i + 1 < parts.size() && parts[i + 1].starts_with(parts[i] + ".")) continue;
    out += (out.empty() ? "" : ".") + parts[i];
  }
  const bool says_more = with_last && !lower_case(parts.back()).starts_with(last.substr(0, 4));
  return says_more ? out + "." + last : out;
}

// The modules that all names have in common.
std::string common(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string out = names[0];
  for (const std::string& name : names)
    while (!out.empty() && name != out && !name.starts_with(out + "."))
      out.resize(out.rfind('.') == std::string::npos ? 0 : out.rfind('.'));
  return out;
}

}  // namespace

OnnxImporter::OnnxImporter(OnnxGraph graph, const std::vector<std::string>& fields, size_t lengths)
    : graph_(std::move(graph)),
      budget_(kFoldedElements + 8 * elements_of(graph_)),
      lengths_(lengths) {
  combine_patterns(graph_);
  choose_batch();
  add_fields(fields);
  if (free_lengths_) advice_ = cat(". The file leaves the length of an axis free: ", kFixedLengths);
  budget_.advise(advice_);
  for (const auto& [name, tensor] : graph_.initializers)
    values_[name] = {.constant = tensor, .source = name, .origin = tensor.get()};
  for (const OnnxNode& node : graph_.nodes)
    for (const std::string& output : node.outputs)
      if (!output.empty() &&
          (values_.contains(output) || !producers_.emplace(output, &node).second))
        damaged(node, cat("it writes '", output, "', which is the name of another value, too"));
}

void OnnxImporter::lacks(const OnnxNode& node, const std::string& what) const {
  fail(Code::unsupported, "ONNX file ", graph_.origin, ": node '", node.name, "' (", node.op,
       "): ", what);
}

void OnnxImporter::damaged(const OnnxNode& node, const std::string& what) const {
  fail(Code::corrupt_data, "ONNX file ", graph_.origin, ": node '", node.name, "' (", node.op,
       "): ", what);
}

void OnnxImporter::choose_batch() {
  if (graph_.inputs.empty())
    fail(Code::unsupported, "ONNX file ", graph_.origin, ": its graph has no input");
  if (graph_.inputs.size() > kMostInputs)
    fail(Code::unsupported, "ONNX file ", graph_.origin, ": its graph has ", graph_.inputs.size(),
         " inputs; at most ", kMostInputs, " are supported");
  std::optional<int64_t> size;
  for (const OnnxInput& input : graph_.inputs) {
    if (input.dims.empty() || input.dims.size() > 5)
      fail(Code::unsupported, "ONNX file ", graph_.origin, ": input '", input.name, "' has ",
           input.dims.size(), " axes; the first of one to five is the batch");
    int64_t all = 1;
    for (size_t d = 0; d < input.dims.size(); ++d) {
      const int64_t dim = input.dims[d], least = d == 0 ? kFree[1].batch : kFree[1].others[7];
      if (dim > kMostExtent || __builtin_mul_overflow(all, dim < 1 ? least : dim, &all) ||
          all > kMostElements)
        fail(Code::unsupported, "ONNX file ", graph_.origin, ": input '", input.name,
             "' is too large, or has too many free axes");
    }
    if (size && *size != input.dims[0])
      fail(Code::unsupported, "ONNX file ", graph_.origin, ": the first axis of input '",
           input.name, "' is ", input.dims[0], " long, and that of others ", *size,
           "; it is the batch of all inputs. Export the model with a free batch axis");
    size = input.dims[0];
  }
  free_batch_ = *size < 0;
  batch_ = free_batch_ ? kFree[lengths_].batch : *size;
}

// Exporters of frameworks with channels last transpose images before the first convolution.
bool OnnxImporter::is_channels_last(const OnnxInput& input) const {
  if (graph_.producer == "EchoTrain" || graph_.producer == "tf2onnx") return true;
  bool any = false;
  for (const OnnxNode& node : graph_.nodes)
    for (const std::string& read : node.inputs) {
      if (read != input.name) continue;
      if (node.op != "Transpose" || node.integers("perm") != std::vector<int64_t>{0, 3, 1, 2})
        return false;
      any = true;
    }
  return any;
}

void OnnxImporter::add_fields(const std::vector<std::string>& fields) {
  if (!fields.empty() && fields.size() != graph_.inputs.size())
    fail(Code::invalid_argument, "model: 'inputs' names ",
         counted(static_cast<int64_t>(fields.size()), "field"), ", and the ONNX file ",
         graph_.origin, " has ", counted(static_cast<int64_t>(graph_.inputs.size()), "input"),
         ": name one for each");
  std::map<std::string, int64_t> symbols;
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const OnnxInput& input = graph_.inputs[i];
    std::vector<std::vector<Atom>> ours;
    for (size_t d = 0; d < input.dims.size(); ++d) {
      Atom atom{input.dims[d], input.dims[d] > 0};
      if (d == 0) atom = {batch_, !free_batch_};
      const std::string symbol = input.symbols[d].empty() ? cat(i, "/", d) : input.symbols[d];
      if (atom.size < 0) {
        const size_t known = symbols.size();
        const auto& others = kFree[lengths_].others;
        if (known >= std::size(others))
          fail(Code::unsupported, "ONNX file ", graph_.origin, ": its inputs have more than ",
               std::size(others), " free axes");
        atom.size = symbols.emplace(symbol, others[known]).first->second;
        free_lengths_ = true;
      }
      ours.push_back({atom});
    }
    std::vector<size_t> order(ours.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = d;
    if (is_channels_last(input)) {
      channels_last_ = true;
    } else if (ours.size() == 4) {
      std::rotate(ours.begin() + 1, ours.begin() + 2, ours.end());
      order = {0, 3, 1, 2};
    }
    OnnxLayer field;
    field.name = fields.empty() ? input.name : fields[i];
    values_[input.name].view = OnnxView::of(add(field), ours, order);
  }
}

// Converts the nodes that `wanted` depends on. The file lists them in the order of computation, so
// nothing is read before it is known.
void OnnxImporter::convert_for(const std::set<std::string>& wanted) {
  std::set<std::string> needed = wanted;
  std::vector<const OnnxNode*> order;
  for (size_t n = graph_.nodes.size(); n-- > 0;) {
    const OnnxNode& node = graph_.nodes[n];
    if (std::none_of(node.outputs.begin(), node.outputs.end(),
                     [&](const std::string& output) { return needed.contains(output); }))
      continue;
    needed.insert(node.inputs.begin(), node.inputs.end());
    order.push_back(&node);
  }
  uses_.clear();
  for (const std::string& name : wanted) ++uses_[name];
  for (const OnnxNode* node : order)
    for (const std::string& input : node->inputs) ++uses_[input];
  // The nodes come last first: it is known how others read what a node writes.
  computed_with_ = wanted;
  for (const OnnxNode* node : order) {
    const std::string& op = node->op;
    const bool keeps = op == "Cast" || op == "Identity" || op == "Reshape" || op == "Squeeze" ||
                       op == "Unsqueeze" || op == "Transpose";
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const bool is_index =
          (op.starts_with("Gather") && i == 1) || op == "Less" ||
          (keeps && i == 0 && !node->outputs.empty() && !computed_with_.contains(node->outputs[0]));
      if (!is_index) computed_with_.insert(node->inputs[i]);
    }
  }
  for (size_t n = order.size(); n-- > 0;) try {
      convert(*order[n]);
    } catch (const Error& error) {
      // Lengths that are not known do not fit constants: that is not the file's fault.
      if (!free_lengths_ || error.code() != Code::corrupt_data) throw;
      fail(Code::unsupported, error.what(), advice_);
    }
}

int OnnxImporter::cut_at(const std::string& until) {
  std::string value = until.empty() ? graph_.outputs[0] : until;
  const OnnxNode* node = nullptr;
  for (const OnnxNode& each : graph_.nodes) {
    if (each.outputs.empty()) continue;
    const bool writes =
        std::find(each.outputs.begin(), each.outputs.end(), value) != each.outputs.end();
    if (!writes && (until.empty() || each.name != until)) continue;
    node = &each;
    if (!writes) value = each.outputs[0];
    break;
  }
  if (node || values_.contains(value)) {
    convert_for({value});
    const auto found = values_.find(value);
    if (found == values_.end())
      fail(Code::unsupported, "ONNX file ", graph_.origin, ": '", value,
           "' is an output that is not supported");
    return finished(found->second, node);
  }
  if (until.empty())
    fail(Code::corrupt_data, "ONNX file ", graph_.origin, ": no node writes its output '", value,
         "'");
  // One of our layers: their names are known when all is converted.
  const std::vector<int> all = reachable(cut_at(""));
  name_layers(all);
  std::vector<std::string> names;
  for (const int i : all) {
    if (layer(i).name == until) return i;
    names.push_back(layer(i).name);
  }
  for (const OnnxNode& each : graph_.nodes) names.push_back(each.name);
  fail(Code::not_found, "model: 'until' is '", until, "', and the ONNX file ", graph_.origin,
       " has no value, node or layer of that name", suggestion(until, names));
}

// Returns the layer whose value is `value` with the axes that the rest of a model expects.
int OnnxImporter::finished(const OnnxValue& value, const OnnxNode* node) {
  static const OnnxNode kInput{.name = "(input)", .op = "input"};
  const OnnxNode& at = node ? *node : kInput;
  if (value.constant) lacks(at, "the network would end with a constant");
  if (value.scores) lacks(at, "the network would end inside of attention");
  const OnnxView view = settled(at, value);
  return plain(at, view).layer;
}

std::vector<int> OnnxImporter::reachable(int output) const {
  std::set<int> found;
  std::vector<int> open{output};
  while (!open.empty()) {
    const int i = open.back();
    open.pop_back();
    if (!found.insert(i).second) continue;
    const OnnxLayer& of = layer(i);
    open.insert(open.end(), of.inputs.begin(), of.inputs.end());
    if (of.tied >= 0) open.push_back(of.tied);
  }
  return {found.begin(), found.end()};  // inputs come before what reads them
}

std::string OnnxImporter::wish(const OnnxLayer& of) const {
  std::vector<std::string> stems;
  for (const std::string& source : of.sources)
    if (const std::string name = of.kind == "parameter" ? source : stem(source); !name.empty())
      stems.push_back(name);
  const bool is_group = of.kind == "attention" || of.kind == "lstm" || of.kind == "gru";
  if (!stems.empty() && stems[0].find("::") == std::string::npos) {
    const std::string name = clean(is_group ? common(stems) : stems[0]);
    if (!name.empty()) return name;
  }
  if (!of.node || of.kind == "reshape" || of.kind == "permute" || of.kind == "parameter") return "";
  return clean(modules(of.node->name, of.weights.empty()));
}

void OnnxImporter::name_layers(const std::vector<int>& layers) {
  std::set<std::string> taken;
  for (const int i : layers)
    if (layer(i).kind.empty()) taken.insert(layer(i).name);
  const auto is_free = [&](const std::string& name) { return taken.insert(name).second; };
  std::map<std::string, int> next;  // the number of a name that is taken
  size_t position = 0;
  for (const int i : layers) {
    OnnxLayer& of = layer(i);
    if (of.kind.empty()) continue;
    ++position;
    std::string name = wish(of);
    if (name.empty()) name = cat(of.kind, "_", position);
    of.name = name;
    int& count = next.emplace(name, 2).first->second;
    while (!is_free(of.name)) of.name = cat(name, "_", count++);
  }
}

// The file may exceed limits of a layer. The error names the node, because that is what the user
// knows.
void OnnxImporter::check_options(const OnnxLayer& of, const Json& options) const {
  if (!of.node) return;
  try {
    Options(find_layer(of.kind).options, cat("layer '", of.kind, "'"), options);
  } catch (const Error& error) {
    lacks(*of.node, error.what());
  }
}

ImportedModel OnnxImporter::written(int output) {
  const std::vector<int> all = reachable(output);
  name_layers(all);
  ImportedModel out;
  out.layers = Json::array();
  std::string before;
  for (const int i : all)
    if (layer(i).kind.empty()) out.inputs.push_back(layer(i).name);
  if (out.inputs.size() == 1) before = out.inputs[0];
  for (const int i : all) {
    OnnxLayer of = layer(i);
    if (of.kind.empty()) continue;
    if (of.kind == "erf" || of.kind == "attention_core")
      lacks(*of.node,
            of.kind == "erf"
                ? "erf is supported only as a part of GELU"
                : "attention is supported only with a product after it that joins its heads");
    if (of.kind == "rotary_core")
      lacks(*of.node,
            "rotary positions are supported only as parts of attention, on queries and keys "
            "that are products with weights");
    Json json = of.options;
    if (of.kind == "attention")
      json["bias"] = std::any_of(of.weights.begin(), of.weights.end(), [](const auto& weight) {
        return weight.first.ends_with(".bias");
      });
    if (of.kind == "dense" || of.kind.starts_with("conv"))
      json["bias"] = of.weights.contains("bias");
    check_options(of, json);
    json["layer"] = of.kind;
    json["name"] = of.name;
    if (of.tied >= 0) json["tied_to"] = layer(of.tied).name;
    std::vector<std::string> inputs;
    for (const int input : of.inputs) inputs.push_back(layer(input).name);
    if (inputs.size() == 1 && inputs[0] != before) json["input"] = inputs[0];
    if (inputs.size() > 1) json["input"] = inputs;
    before = of.name;
    out.layers.push_back(std::move(json));
    for (const auto& [part, tensor] : of.weights) out.weights[cat(of.name, ".", part)] = tensor;
  }
  if (out.layers.empty())
    fail(Code::unsupported, "ONNX file ", graph_.origin, ": no layer is left of it");
  return out;
}

ImportedModel OnnxImporter::run(const std::string& until) {
  output_ = cut_at(until);
  return written(output_);
}

void OnnxImporter::compare(const OnnxImporter& other) const {
  const auto same_weights = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.shape() == b.second.shape() &&
           std::ranges::equal(a.second.bytes(), b.second.bytes());
  };
  for (const int i : reachable(output_)) {
    const OnnxLayer& a = layer(i);
    if (a.kind.empty()) continue;
    const bool both = static_cast<size_t>(i) < other.layers_.size();
    const OnnxLayer& b = both ? other.layer(i) : a;
    if (both && a.kind == b.kind && a.options == b.options && a.inputs == b.inputs &&
        a.tied == b.tied &&
        std::equal(a.weights.begin(), a.weights.end(), b.weights.begin(), b.weights.end(),
                   same_weights))
      continue;
    lacks(*a.node, cat("it computes with the length of an axis that the file leaves free: ",
                       free_lengths_ ? kFixedLengths : "export the model with a fixed batch"));
  }
}

ImportedModel import_onnx(OnnxGraph graph, const std::string& until,
                          const std::vector<std::string>& fields) {
  OnnxImporter importer(graph, fields, 0);
  ImportedModel out = importer.run(until);
  if (importer.has_free_axes()) {
    OnnxImporter again(std::move(graph), fields, 1);
    again.run(until);
    importer.compare(again);
  }
  return out;
}

}  // namespace etr::nn
