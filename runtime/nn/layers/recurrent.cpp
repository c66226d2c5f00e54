// Recurrent layers, and layers that pick positions.
#include <cmath>

#include "core/error.h"
#include "nn/layers/common.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kRecurrent[] = {
    {"units", OptionType::integer, nullptr, "size of the state and of the output", 1, 1 << 20},
    {"output", OptionType::string, "\"sequence\"",
     "sequence: the state after every position; last: only the final state", 0, 0, "",
     "sequence|last"},
    {"reverse", OptionType::boolean, "false",
     "process the sequence from the last position to the first; the final state is then that of "
     "the first position"},
};

graph::ValueId build_recurrent(const LayerCall& call, const char* cell, int64_t parts) {
  graph::Graph& g = call.graph;
  const Shape x = call.shape();
  if (x.size() != 3)
    fail(Code::invalid_argument, call.name, ": ", cell, " takes [N, positions, features], not ",
         shape_text(x));
  const int64_t units = call.options.integer("units"), gates = parts * units;
  const bool reverse = call.options.boolean("reverse");
  // As cuDNN's frontends do.
  const auto limit = static_cast<float>(1 / std::sqrt(static_cast<double>(units)));
  const auto parameter = [&](const char* name, const Shape& shape, bool decay) {
    return g.add_parameter(cat(call.name, ".", name), shape, decay, uniform(limit));
  };
  const auto states = g.add(
      "recurrent", {{"cell", cell}, {"reverse", reverse}},
      {call.input(), parameter("input.weight", {x[2], gates}, true),
       parameter("input.bias", {gates}, false), parameter("recurrent.weight", {units, gates}, true),
       parameter("recurrent.bias", {gates}, false)},
      call.name);
  if (call.options.string("output") == "sequence") return states;
  const auto last = g.add("slice", {{"axis", 1}, {"begin", reverse ? 0 : -1}, {"length", 1}},
                          {states}, call.name);
  return g.add("reshape", {{"shape", Json::array({units})}}, {last}, call.name);
}

graph::ValueId build_lstm(const LayerCall& call) { return build_recurrent(call, "lstm", 4); }
graph::ValueId build_gru(const LayerCall& call) { return build_recurrent(call, "gru", 3); }

graph::ValueId build_gather(const LayerCall& call) {
  return call.graph.add("gather", Json::object(), call.inputs, call.name);
}

}  // namespace

extern const LayerSpec lstm_layer, gru_layer, gather_layer;
const LayerSpec lstm_layer{
    "lstm", "long short-term memory over the positions (Hochreiter and Schmidhuber 1997)",
    kRecurrent, build_lstm};
const LayerSpec gru_layer{"gru", "gated recurrent units over the positions (Cho et al. 2014)",
                          kRecurrent, build_gru};
const LayerSpec gather_layer{
    "gather",
    "selects rows of each sample [N, rows, ...] by the indices of a second input, i32 [N, picks]",
    {},
    build_gather,
    2,
    2};

}  // namespace etr::nn
