#include "parallel/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "core/bytes_text.h"
#include "core/error.h"
#include "core/format_text.h"
#include "core/options.h"
#include "core/text.h"
#include "graph/part.h"

namespace etr::parallel {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueKind;

double elements(const Shape& shape) { return static_cast<double>(element_count(shape)); }

// Returns the multiplications and additions of the forward pass.
double operations(const Graph& graph, const Node& node) {
  const Shape& out = graph.value(node.output).shape;
  if (node.op->operations) return node.op->operations(out);
  double sum = 0;
  for (const graph::ValueId id : node.inputs) {
    const graph::Value& value = graph.value(id);
    if (!graph::is_weight(value.kind) || value.shape.size() < 2) continue;
    sum += 2 * elements(out) * elements(value.shape) / static_cast<double>(out.back());
  }
  return sum;
}

// A device does about ten operations in the time that it moves a byte; see the recorder's
// weight_of().
double work_of(const Graph& graph, const Node& node) {
  double bytes = 4 * elements(graph.value(node.output).shape);
  for (const graph::ValueId id : node.inputs) bytes += 4 * elements(graph.value(id).shape);
  return 3 * (bytes + operations(graph, node) / 10);  // forward, and two products backward
}

struct Estimate {
  double work = 0, parameters = 0, kept = 0;  // kept: bytes of activations of one batch
  double crossing = 0;                        // bytes handed to the next stage
};

class Search {
 public:
  Search(const Graph& graph, graph::ValueId loss, const PartitionOptions& options)
      : graph_(graph), loss_(loss), options_(options) {
    for (size_t n = 1; n < graph.nodes().size(); ++n)
      if (graph.nodes()[n].label != graph.nodes()[n - 1].label) candidates_.push_back(n);
    find_uses();
    find_places();
    sum_up();
    spread_seconds();
  }

  const std::vector<size_t>& places() const { return places_; }

  std::vector<size_t> given() const {
    std::vector<size_t> out{0};
    for (const std::string& layer : options_.layers) {
      const size_t node = begin_of(layer);
      if (node <= out.back())
        fail(Code::invalid_argument, "parallel.stages: the layer '", layer,
             "' comes before the stage that is to end there; give layers in the model's order");
      out.push_back(node);
    }
    if (out.size() != static_cast<size_t>(options_.stages))
      fail(Code::invalid_argument, "parallel.stages names ", counted(out.size() - 1, "layer"),
           " at which a stage begins, and the mesh has ", options_.stages,
           " stages, the first of which begins with the model: name ", options_.stages - 1);
    return out;
  }

  // Minimizes the largest cost: best[s][c] is the least largest cost of s stages that end at the
  // c-th candidate.
  std::vector<size_t> chosen() const {
    const std::vector<size_t>& ends = places_;
    const size_t count = ends.size(), stages = static_cast<size_t>(options_.stages);
    constexpr double kNever = std::numeric_limits<double>::infinity();
    std::vector<std::vector<double>> best(stages + 1, std::vector<double>(count, kNever));
    std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(count, 0));
    best[0][0] = 0;
    for (size_t s = 1; s <= stages; ++s)
      for (size_t end = 1; end < count; ++end)
        for (size_t begin = 0; begin < end; ++begin) {
          if (best[s - 1][begin] == kNever) continue;
          const double cost = std::max(best[s - 1][begin], cost_of(s - 1, ends[begin], ends[end]));
          if (cost < best[s][end]) best[s][end] = cost, from[s][end] = begin;
        }
    if (best[stages][count - 1] == kNever)
      fail(Code::unsupported, "parallel.mesh: this model cannot be cut into ",
           counted(stages, "stage"), ": it has ", counted(ends.size() - 2, "place"),
           " between layers with parameters of their own on both sides",
           any_shared().empty() ? "" : cat(" (", any_shared(), ")"), "; take fewer stages");
    std::vector<size_t> out(stages);
    for (size_t s = stages, at = count - 1; s > 0; --s) {
      at = from[s][at];
      out[s - 1] = ends[at];
    }
    return out;
  }

  void check(const std::vector<size_t>& begins) const {
    for (size_t s = 0; s < begins.size(); ++s) {
      if (s > 0)
        if (const std::string shared = shared_over(begins[s]); !shared.empty())
          fail(Code::unsupported, "parallel.stages: ", shared, ", and stage ", s,
               " begins between them: let one stage have both");
      if (estimate(begins[s], end_of(begins, s)).parameters == 0)
        fail(Code::unsupported, "parallel.stages: stage ", s, " (",
             layers_text(begins[s], end_of(begins, s)),
             ") has no parameters to train: let it begin or end at another layer");
    }
  }

  std::string reasons(const std::vector<size_t>& begins) const {
    std::string out;
    for (size_t s = 0; s < begins.size(); ++s) {
      const size_t end = end_of(begins, s);
      const Estimate e = estimate(begins[s], end);
      const std::string parameters = e.parameters >= 1e6 ? format_text("%.1f M", e.parameters / 1e6)
                                                         : format_text("%.0f", e.parameters);
      out += cat(s ? "\n" : "", "  stage ", s, ": ", layers_text(begins[s], end), ": ",
                 work_text(s, begins[s], end), ", ", parameters, " parameters, about ",
                 bytes_text(memory_of(s, e)));
      if (s + 1 < begins.size())
        out += cat("; hands on ", bytes_text(e.crossing), " of a micro-batch");
    }
    return out;
  }

 private:
  std::string work_text(size_t stage, size_t begin, size_t end) const {
    if (options_.seconds.empty())
      return format_text("%.0f %% of the estimated work",
                         100 * estimate(begin, end).work / before_.back().work);
    return format_text("%.3g ms a micro-batch", 1e3 * (until_[stage][end] - until_[stage][begin]));
  }

  // Returns the first node of a layer, or of the layers inside it.
  size_t begin_of(const std::string& layer) const {
    std::vector<std::string> names;
    for (const size_t n : candidates_) {
      names.push_back(graph_.nodes()[n].label);
      if (names.back() == layer || names.back().starts_with(layer + ".")) return n;
    }
    fail(Code::invalid_argument, "parallel.stages: no stage can begin at a layer '", layer, "'",
         suggestion(layer, names));
  }

  size_t end_of(const std::vector<size_t>& begins, size_t s) const {
    return s + 1 < begins.size() ? begins[s + 1] : graph_.nodes().size();
  }

  std::string layers_text(size_t begin, size_t end) const {
    const std::string first = graph_.nodes()[begin].label, last = graph_.nodes()[end - 1].label;
    return first == last ? cat("'", first, "'") : cat("'", first, "' to '", last, "'");
  }

  // Finds the first and the last node that use each parameter and state.
  void find_uses() {
    for (size_t n = 0; n < graph_.nodes().size(); ++n)
      for (const graph::ValueId id : graph_.nodes()[n].inputs) {
        const ValueKind kind = graph_.value(id).kind;
        if (!graph::is_weight(kind)) continue;
        const auto [at, is_new] = uses_.emplace(id, std::pair(n, n));
        at->second.second = n;
      }
  }

  void find_places() {
    for (const size_t n : candidates_)
      if (shared_over(n).empty()) places_.push_back(n);
    places_.push_back(graph_.nodes().size());
  }

  std::string shared_text(graph::ValueId id, const std::pair<size_t, size_t>& nodes) const {
    return cat("the layers '", graph_.nodes()[nodes.first].label, "' and '",
               graph_.nodes()[nodes.second].label, "' share '", graph_.value(id).name, "'");
  }

  // Describes what is used on both sides of a cut; "" for nothing.
  std::string shared_over(size_t cut) const {
    for (const auto& [id, nodes] : uses_)
      if (nodes.first < cut && nodes.second >= cut) return shared_text(id, nodes);
    return "";
  }
  std::string any_shared() const {
    for (const auto& [id, nodes] : uses_)
      if (graph_.nodes()[nodes.first].label != graph_.nodes()[nodes.second].label)
        return shared_text(id, nodes);
    return "";
  }

  // Computes the sums over all nodes before each one.
  void sum_up() {
    before_.resize(graph_.nodes().size() + 1);
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      Estimate& next = before_[n + 1] = before_[n];
      next.work += work_of(graph_, node);
      if (!node.op->view) next.kept += 4 * elements(graph_.value(node.output).shape);
      for (const Shape& saved : node.saved) next.kept += 4 * elements(saved);
      for (const graph::ValueId id : node.inputs)
        if (graph_.value(id).kind == ValueKind::parameter && uses_.at(id).first == n)
          next.parameters += elements(graph_.value(id).shape);
    }
    for (const size_t cut : candidates_)
      for (const graph::Crossing& each : crossing(graph_, cut, loss_))
        crossing_[cut] += 4 * elements(graph_.value(each.value).shape);
  }

  Estimate estimate(size_t begin, size_t end) const {
    const Estimate &from = before_[begin], &to = before_[end];
    const auto at = crossing_.find(end);
    return {to.work - from.work, to.parameters - from.parameters, to.kept - from.kept,
            at == crossing_.end() ? 0 : at->second};
  }

  // Weights, gradients and two values of optimizer state per parameter; activations of what is in
  // flight.
  double memory_of(size_t stage, const Estimate& e) const {
    const int in_flight = options_.in_flight.empty() ? 1 : options_.in_flight.at(stage);
    return 16 * e.parameters + in_flight * e.kept;
  }

  double cost_of(size_t stage, size_t begin, size_t end) const {
    const Estimate e = estimate(begin, end);
    if (e.parameters == 0) return std::numeric_limits<double>::infinity();
    const double memory = memory_of(stage, e);
    const bool fits =
        options_.memory_bytes == 0 || memory <= static_cast<double>(options_.memory_bytes);
    constexpr double kTooLarge = 1e30;  // more than any work
    if (!fits) return kTooLarge * memory;
    if (until_.empty()) return e.work + 2 * e.crossing;
    const std::vector<double>& until = until_[stage];
    // The hand-over was not measured: its estimate is converted to this device's time.
    return until[end] - until[begin] + 2 * e.crossing * until.back() / before_.back().work;
  }

  // Assigns a part's whole time to its first node, which is exact because no stage begins inside a
  // part.
  void spread_seconds() {
    for (const std::vector<double>& seconds : options_.seconds) {
      std::vector<double>& until = until_.emplace_back(graph_.nodes().size() + 1, 0.0);
      for (size_t i = 0; i + 1 < places_.size(); ++i) until[places_[i] + 1] = seconds.at(i);
      std::partial_sum(until.begin(), until.end(), until.begin());
    }
  }

  const Graph& graph_;
  const graph::ValueId loss_;
  const PartitionOptions options_;
  std::vector<size_t> candidates_;  // nodes at which a layer begins
  std::vector<size_t> places_{0};   // where a stage can begin, and the end of the graph
  std::map<graph::ValueId, std::pair<size_t, size_t>> uses_;
  std::vector<Estimate> before_;       // by node
  std::map<size_t, double> crossing_;  // by candidate, in bytes
  // By stage and node: the measured seconds of the nodes before; empty: none.
  std::vector<std::vector<double>> until_;
};

}  // namespace

std::vector<size_t> parts_of(const Graph& graph, graph::ValueId loss) {
  std::vector<size_t> out = Search(graph, loss, {}).places();
  out.pop_back();
  return out;
}

Partition partition(const Graph& graph, graph::ValueId loss, const PartitionOptions& options) {
  const Search search(graph, loss, options);
  Partition out;
  out.begins = options.layers.empty() ? search.chosen() : search.given();
  search.check(out.begins);
  out.reasons = search.reasons(out.begins);
  return out;
}

}  // namespace etr::parallel
