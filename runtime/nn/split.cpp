#include "nn/split.h"

#include <utility>

#include "core/bytes_text.h"
#include "core/text.h"

namespace etr::nn {

SplitModel split(const ModelGraph& whole, int rank, int size) {
  graph::SplitGraph parts = graph::split(whole.graph, rank, size);
  const auto now = [&](graph::ValueId id) {
    return id < 0 ? id : parts.values[static_cast<size_t>(id)];
  };
  SplitModel out{{}, std::move(parts.slices), std::move(parts.layers), {}};
  for (const graph::ValueId id : whole.inputs) out.net.inputs.push_back(now(id));
  out.net.target = now(whole.target);
  out.net.output = now(whole.output);
  out.net.loss = now(whole.loss);
  out.net.accuracy = now(whole.accuracy);
  out.net.recompute = whole.recompute;
  out.net.precision = whole.precision;
  out.net.graph = std::move(parts.graph);
  out.values = std::move(parts.values);
  return out;
}

std::string to_text(const std::vector<graph::SplitLayer>& layers) {
  std::string out;
  for (const graph::SplitLayer& layer : layers)
    out += layer.why.empty()
               ? cat("\n  ", layer.label, ": split by ", layer.how, ", ",
                     bytes_text(static_cast<double>(layer.saved_bytes)), " less on each rank")
               : cat("\n  ", layer.label, ": whole, because ", layer.why);
  return out;
}

}  // namespace etr::nn
