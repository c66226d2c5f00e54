#include "nn/onnx.h"

#include <map>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "nn/onnx_file.h"

namespace etr::nn {
namespace {

using graph::Node;
using graph::ValueId;
using ops::OnnxName;

class Exporter {
 public:
  Exporter(const ModelGraph& model, const std::function<Tensor(const std::string&)>& value_of)
      : model_(model), graph_(model.graph), value_of_(value_of) {}

  std::string run();

 private:
  class OpNode;

  std::set<ValueId> needed() const;
  OnnxName value(ValueId id);

  const ModelGraph& model_;
  const graph::Graph& graph_;
  const std::function<Tensor(const std::string&)>& value_of_;
  OnnxFile file_;
  std::map<ValueId, OnnxName> names_;
};

// A node of the graph, as its op sees it while it is exported.
class Exporter::OpNode final : public ops::OnnxNode {
 public:
  OpNode(Exporter& exporter, const Node& node) : exporter_(exporter), node_(node) {}

  const Options& options() const override { return node_.options; }
  size_t inputs() const override { return node_.inputs.size(); }
  Shape shape_in(size_t input) const override { return graph().shape(node_.inputs[input]); }
  Shape shape() const override { return graph().shape(node_.output); }
  OnnxName in(size_t input) override { return exporter_.value(node_.inputs[input]); }
  std::vector<float> floats(size_t input) override {
    const Tensor tensor = exporter_.value_of_(name_of(input));
    const auto view = tensor.view<float>();
    return {view.begin(), view.end()};
  }
  OnnxName parameter(size_t input, const std::vector<int64_t>& dims,
                     const std::vector<float>& values) override {
    return exporter_.file_.parameter(name_of(input), dims, values);
  }
  OnnxName emit(const char* op, const std::vector<OnnxName>& inputs,
                const ops::OnnxAttributes& attributes, int outputs) override {
    return exporter_.file_.emit(op, inputs, attributes, outputs);
  }
  OnnxName constant(const std::vector<int64_t>& dims, const std::vector<float>& values) override {
    return exporter_.file_.constant(dims, values);
  }
  OnnxName integers(const std::vector<int64_t>& values) override {
    return exporter_.file_.integers(values);
  }
  void lacks(const std::string& what) const override {
    fail(Code::unsupported, "layer '", node_.label, "' cannot be exported to ONNX: ", what);
  }

 private:
  const graph::Graph& graph() const { return exporter_.graph_; }
  const std::string& name_of(size_t input) const { return graph().value(node_.inputs[input]).name; }

  Exporter& exporter_;
  const Node& node_;
};

// Returns what the output depends on, which excludes the loss.
std::set<ValueId> Exporter::needed() const {
  std::set<ValueId> out{model_.output};
  for (size_t n = graph_.nodes().size(); n-- > 0;) {
    const Node& node = graph_.nodes()[n];
    if (out.count(node.output)) out.insert(node.inputs.begin(), node.inputs.end());
  }
  return out;
}

// Returns the name of a value in the file. A weight or a constant is written when it is first read.
OnnxName Exporter::value(ValueId id) {
  if (const auto it = names_.find(id); it != names_.end()) return it->second;
  const OnnxName name = graph_.value(id).name;
  file_.parameter(name, value_of_(name));
  return names_[id] = name;
}

std::string Exporter::run() {
  const std::set<ValueId> read = needed();
  for (const ValueId id : model_.inputs) names_[id] = graph_.value(id).name;
  for (const Node& node : graph_.nodes()) {
    if (!read.count(node.output)) continue;
    OpNode exported(*this, node);
    if (!node.op->to_onnx)
      exported.lacks(cat("its op '", node.op->name, "' has no counterpart there"));
    names_[node.output] = node.op->to_onnx(exported);
  }
  for (const ValueId id : model_.inputs)
    file_.input(graph_.value(id).name, graph_.value(id).dtype, graph_.shape(id));
  file_.output(names_.at(model_.output), graph_.shape(model_.output));
  return file_.data();
}

}  // namespace

std::string to_onnx(const ModelGraph& model,
                    const std::function<Tensor(const std::string&)>& value_of) {
  return Exporter(model, value_of).run();
}

}  // namespace etr::nn
