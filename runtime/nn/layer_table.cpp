#include "core/table.h"
#include "nn/layer.h"

namespace etr::nn {

#define ETR_LAYER(name) extern const LayerSpec name##_layer;
#include "nn/layer_list.inc"
#undef ETR_LAYER

Schema layer_common_schema() {
  static constexpr OptionSpec kCommon[] = {
      {"name", OptionType::string, "\"\"",
       "name by which other layers refer to this one, and prefix of its parameters' names; empty: "
       "KIND_POSITION"},
      {"input", OptionType::strings, "[]",
       "layers or fields of the batch that this layer reads; empty: the layer before it"},
  };
  return kCommon;
}

std::span<const LayerSpec* const> layer_table() {
  static constexpr const LayerSpec* kTable[] = {
#define ETR_LAYER(name) &name##_layer,
#include "nn/layer_list.inc"
#undef ETR_LAYER
  };
  return kTable;
}

const LayerSpec& find_layer(const std::string& name) {
  return find_in_table(layer_table(), "layer", name);
}

}  // namespace etr::nn
