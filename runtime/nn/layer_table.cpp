#include "core/error.h"
#include "nn/layer.h"

namespace etr::nn {

#define ETR_LAYER(name) extern const LayerSpec name##_layer;
#include "nn/layer_list.inc"
#undef ETR_LAYER

std::span<const LayerSpec* const> layer_table() {
  static constexpr const LayerSpec* kTable[] = {
#define ETR_LAYER(name) &name##_layer,
#include "nn/layer_list.inc"
#undef ETR_LAYER
  };
  return kTable;
}

const LayerSpec& find_layer(const std::string& name) {
  std::vector<std::string> names;
  for (const LayerSpec* layer : layer_table()) {
    if (layer->name == name) return *layer;
    names.emplace_back(layer->name);
  }
  fail(Code::not_found, "there is no layer '", name, "'", suggestion(name, names));
}

}  // namespace etr::nn
