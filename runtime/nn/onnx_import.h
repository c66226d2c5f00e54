// Turns ONNX files into models: networks that other frameworks trained, for fine-tuning.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/json.h"
#include "nn/onnx_reader.h"

namespace etr::nn {

struct ImportedModel {
  Json layers;                       // as in a model's spec; the last one is the output
  std::vector<std::string> inputs;   // fields of the batch, with the names of the file's inputs
  checkpoint::NamedTensors weights;  // initial values by our names, in our layouts
};

// The first axis of every input is the batch. Inputs of four axes are images, [N, C, H, W] in the
// file and fields [N, H, W, C] here, unless the file itself reads them with channels last (files of
// this program, and of others that transpose an image first). All other values have the file's
// axes, and values of four axes are [N, H, W, C].
//
// Layers are called after the weights they have in the file ("layer1.0.conv1" for
// "layer1.0.conv1.weight"), else after their node. `until` cuts the network behind a value, a node
// or one of our layers of that name; "" keeps the file's first output. `fields`, if not empty,
// renames the file's inputs in order.
//
// Throws Error(unsupported), naming the node, its operator and what is not supported;
// Error(corrupt_data) for a file that is wrong; Error(not_found) for an unknown `until`.
ImportedModel import_onnx(OnnxGraph graph, const std::string& until,
                          const std::vector<std::string>& fields = {});

}  // namespace etr::nn
