// Rotary positions that a file has in pieces: with the halves a and b of each head x and a table of
// cosines c and sines s, either x c + (-b, a) s or (a c - b s, b c + a s).
#include "nn/rotary.h"

#include <cmath>

#include "nn/onnx_importer.h"

namespace etr::nn {
namespace {

// Of an angle: exporters compute frequencies and angles in single precision.
constexpr double kAngleError = 2e-6;
constexpr double kRounding = 2e-7;  // of a cosine

bool is_last(int64_t axis, size_t rank) {
  return axis == -1 || axis + 1 == static_cast<int64_t>(rank);
}

}  // namespace

const OnnxNode* OnnxImporter::producer(const std::string& value, const char* op) const {
  const auto it = producers_.find(value);
  if (it == producers_.end()) return nullptr;
  const OnnxNode& node = *it->second;
  return node.domain.empty() && node.op == op && node.inputs.size() == 2 ? &node : nullptr;
}

const OnnxView* OnnxImporter::view_of(const std::string& value) const {
  const auto it = values_.find(value);
  return it != values_.end() && it->second.view ? &*it->second.view : nullptr;
}

std::optional<OnnxImporter::Half> OnnxImporter::half(const std::string& value) const {
  const auto it = producers_.find(value);
  if (it == producers_.end() || it->second->inputs.empty()) return std::nullopt;
  const OnnxNode& node = *it->second;
  const OnnxView *part = view_of(value), *of = view_of(node.inputs[0]);
  if (!node.domain.empty() || !part || !of) return std::nullopt;
  std::vector<int64_t> whole = part->dims();
  if (whole.empty()) return std::nullopt;
  const int64_t length = whole.back();
  whole.back() *= 2;
  if (whole != of->dims()) return std::nullopt;
  if (node.op == "Split") return Half{node.inputs[0], value != node.outputs[0]};
  if (node.op != "Slice") return std::nullopt;
  std::vector<OnnxConstant> inputs;
  for (const std::string& input : node.inputs)
    inputs.push_back(values_.contains(input) ? values_.at(input).constant : nullptr);
  for (const OnnxRange& range : onnx_ranges(node, whole, inputs))
    if (range.axis + 1 == whole.size() && (range.begin == 0 || range.begin == length))
      return Half{node.inputs[0], range.begin > 0};
  return std::nullopt;
}

// Returns the two factors, if one of them is known.
std::optional<std::pair<std::string, OnnxConstant>> OnnxImporter::table_product(
    const std::string& value) const {
  const OnnxNode* node = producer(value, "Mul");
  for (const size_t i : {0, 1})
    if (node && view_of(node->inputs[i]))
      if (const auto it = values_.find(node->inputs[1 - i]);
          it != values_.end() && it->second.constant)
        return std::pair(node->inputs[i], it->second.constant);
  return std::nullopt;
}

std::optional<OnnxImporter::Rotation> OnnxImporter::rotation(const OnnxNode& node) const {
  if (node.inputs.size() != 2 || (node.op != "Add" && node.op != "Concat")) return std::nullopt;
  const auto joins_halves = [&](const OnnxNode& join, const std::string& first) {
    const OnnxView* view = view_of(first);
    return view && is_last(join.integer("axis", 0), view->axes.size());
  };
  if (node.op == "Add") {
    for (const size_t i : {0, 1}) {
      const auto kept = table_product(node.inputs[i]), turned = table_product(node.inputs[1 - i]);
      const OnnxNode* join = turned ? producer(turned->first, "Concat") : nullptr;
      if (!kept || !join || !joins_halves(*join, join->inputs[0])) continue;
      const auto negative = producers_.find(join->inputs[0]);
      if (negative == producers_.end() || negative->second->op != "Neg") continue;
      if (half(join->inputs[1]) == Half{kept->first, false} &&
          half(negative->second->inputs.at(0)) == Half{kept->first, true})
        return Rotation{kept->first, kept->second, turned->second,
                        view_of(kept->first)->dims().back()};
    }
    return std::nullopt;
  }
  const OnnxNode *difference = producer(node.inputs[0], "Sub"),
                 *sum = producer(node.inputs[1], "Add");
  if (!difference || !sum || !joins_halves(node, node.inputs[0])) return std::nullopt;
  const auto ac = table_product(difference->inputs[0]), bs = table_product(difference->inputs[1]);
  const auto a = ac ? half(ac->first) : std::nullopt, b = bs ? half(bs->first) : std::nullopt;
  if (!a || !b || a->second || *b != Half{a->of, true}) return std::nullopt;
  for (const size_t i : {0, 1}) {
    const auto bc = table_product(sum->inputs[i]), as = table_product(sum->inputs[1 - i]);
    if (bc && as && bc->second == ac->second && as->second == bs->second && half(bc->first) == b &&
        half(as->first) == a)
      return Rotation{a->of, ac->second, bs->second, view_of(a->of)->dims().back() / 2};
  }
  return std::nullopt;
}

bool OnnxImporter::convert_rotary(const OnnxNode& node) {
  const auto found = rotation(node);
  if (!found) return false;
  const OnnxValue x = values_.at(found->of);
  const size_t rank = x.view->axes.size();
  const OnnxTensor &cosines = *found->cosines, &sines = *found->sines;
  std::vector<int64_t> dims = cosines.dims;
  if (rank < 3 || dims.size() > rank || x.view->axes[0] != Axis{0} || sines.dims != dims)
    return false;
  dims.insert(dims.begin(), rank - dims.size(), 1);
  if (dims.back() != found->columns) return false;
  size_t positions = 0;  // the axis
  for (size_t i = 1; i + 1 < rank; ++i) {
    if (dims[i] == 1) continue;
    if (positions > 0) return false;
    positions = i;
  }
  if (positions == 0)
    lacks(node,
          "its rotary positions are those of one position only, from which their base "
          "cannot be derived: export the model with two positions or more");
  const int64_t head = x.view->dims().back();
  const auto pairs = static_cast<size_t>(head / 2), columns = static_cast<size_t>(found->columns),
             count = static_cast<size_t>(dims[positions]);
  std::vector<double> angles;
  for (size_t i = 0; i < pairs; ++i)
    angles.push_back(std::atan2(sines.number(columns + i), cosines.number(columns + i)));
  const auto rotary = rotary_of(angles, [&](const Rotary& tried) {
    std::vector<double> steps;
    for (size_t i = 0; i < pairs; ++i)
      steps.push_back(rotary_frequency(tried, head, static_cast<int64_t>(i)));
    for (size_t i = 0; i < cosines.count(); ++i) {
      const double angle = static_cast<double>(i / columns % count) * steps[i % columns % pairs];
      if (!(std::abs(cosines.number(i) - std::cos(angle)) <= kAngleError * angle + kRounding) ||
          !(std::abs(sines.number(i) - std::sin(angle)) <= kAngleError * angle))
        return false;
    }
    return true;
  });
  if (!rotary)
    lacks(node,
          "its rotary positions are not those of the layer 'attention', with a base or with "
          "Llama's scaling as well; they are supported in single precision, of positions 0, "
          "1, 2, ... and the whole of each head");
  Json options{{"head", head}, {"rotary_base", rotary->base}};
  if (!rotary->scaling.empty()) options["rotary_scaling"] = rotary->scaling;
  // The layer takes [N, positions, width] with the heads side by side.
  std::vector<size_t> order{0};
  for (size_t i = 1; i + 1 < rank; ++i)
    if (i != positions) order.push_back(i);
  order.insert(order.end(), {positions, rank - 1});
  const Heads by_head = heads(node, x.view->transposed(order), rank - 2, rank - 1);
  if (by_head.group != 1) return false;
  OnnxView out = applied(node, by_head.view, "rotary_core", options);
  std::vector<size_t> back(rank);
  for (size_t i = 0; i < rank; ++i) back[order[i]] = i;
  set(node, out.transposed(back), x.factor);
  return true;
}

}  // namespace etr::nn
