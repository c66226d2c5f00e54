#include "train/weights.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "nn/onnx.h"
#include "nn/weights.h"

namespace etr::train {
namespace {

std::unique_ptr<optim::LossScale> loss_scale_of(gpu::Kernels& kernels, const nn::ModelGraph& net) {
  return net.precision == ops::Precision::fp16
             ? std::make_unique<optim::LossScale>(kernels.device())
             : nullptr;
}

// A weight that the model lacks would be dropped without notice.
void check_no_others(const checkpoint::NamedTensors& given, const std::vector<std::string>& names) {
  for (const auto& [name, tensor] : given)
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail(Code::invalid_argument, "the model has no weight '", name, "' (the file holds ",
           dtype_name(tensor.dtype()), " ", shape_text(tensor.shape()), ")");
}

}  // namespace

Weights::Weights(gpu::Kernels& kernels, nn::ModelGraph of, uint64_t seed,
                 parallel::TensorParallel* tensor)
    : device(kernels.device()),
      tensor_ranks(tensor),
      whole(std::move(of)),
      split(tensor ? nn::split(whole, tensor->rank(), tensor->size()) : nn::SplitModel{}),
      net(tensor ? split.net : whole),
      store(device, net.graph, seed),
      loss_scale(loss_scale_of(kernels, net)) {
  if (!tensor) return;
  if (split.slices.empty())
    fail(Code::invalid_argument, "parallel.mesh: ", tensor->size(),
         " ranks are to share the model's tensors, and none of its layers can be split:",
         nn::to_text(split.layers));
  shared = std::make_unique<SharedTensors>(whole.graph, split.slices, *tensor);
}

nn::ModelGraph Weights::part_of(nn::ModelGraph of) const {
  if (!tensor_ranks) return of;
  return nn::split(of, tensor_ranks->rank(), tensor_ranks->size()).net;
}

int64_t Weights::trainable() const { return shared ? shared->trainable() : store.trainable(); }

checkpoint::NamedTensors Weights::save() const {
  checkpoint::NamedTensors out = store.download();
  if (shared)
    for (auto& [name, tensor] : out) tensor = shared->whole(name, tensor);
  return out;
}

checkpoint::NamedTensors Weights::save_state() const {
  checkpoint::NamedTensors out = update->download();
  if (shared)
    for (auto& [name, tensor] : out) tensor = shared->whole_state(tensor, store);
  return out;
}

void Weights::import(const Imported& given) {
  auto tensors = store.download();
  for (auto& [name, tensor] : nn::weights_of_pytorch(whole, given.tensors, given.names, given.path))
    tensors[name] = shared ? shared->own(name, tensor) : std::move(tensor);
  store.upload(tensors);
}

void Weights::load(const Loaded& loaded) {
  checkpoint::NamedTensors tensors = loaded.weights, state = loaded.optimizer;
  check_origin(loaded.origin, "model", [&] {
    if (shared)
      for (auto& [name, tensor] : tensors) tensor = shared->own(name, tensor);
    store.check(tensors);
    check_no_others(tensors, store.names());
  });
  check_origin(loaded.origin, "optimizer", [&] {
    if (shared)
      for (auto& [name, tensor] : state) tensor = shared->own_state(tensor, store);
    update->check(state);
  });
  store.upload(tensors);
  update->upload(state);
  ++age;
}

// Constants have names too, but are the model's own.
const ops::DeviceTensor& Weights::tensor(const std::string& name) const {
  const std::vector<std::string>& names = store.names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    fail(Code::not_found, "the model has no weight '", name, "'", suggestion(name, names));
  return store.tensor(name);
}

std::vector<pipeline::Field> Weights::read(const std::string& name) const {
  const auto field = [&](const std::string& of) {
    const Tensor own = graph::download(device, tensor(of));
    return pipeline::Field{of, shared ? shared->whole(of, own) : own};
  };
  if (!name.empty()) return {field(name)};
  std::vector<pipeline::Field> out;
  for (const std::string& each : store.names()) out.push_back(field(each));
  return out;
}

void Weights::write(const std::vector<pipeline::Field>& given) {
  std::vector<pipeline::Field> own = given;
  for (pipeline::Field& field : own) {
    const ops::DeviceTensor& to = tensor(field.name);
    if (shared) field.tensor = shared->own(field.name, field.tensor);
    if (field.tensor.dtype() != DType::f32 || field.tensor.shape() != to.shape)
      fail(Code::invalid_argument, "weight '", field.name, "' is f32 ", shape_text(to.shape),
           ", not ", dtype_name(field.tensor.dtype()), " ", shape_text(field.tensor.shape()));
  }
  const gpu::Buffer averages = update->averages();
  for (const pipeline::Field& field : own) {
    graph::upload(device, field.tensor, tensor(field.name));
    if (averages && store.is_trainable(field.name))
      graph::upload(device, field.tensor, store.elsewhere(field.name, averages));
  }
  ++age;
}

std::string Weights::onnx() const {
  const gpu::Buffer averages = update->averages();
  return nn::to_onnx(whole, [&](const std::string& name) {
    ops::DeviceTensor tensor = store.tensor(name);
    if (averages) tensor = store.elsewhere(name, averages);
    const Tensor own = graph::download(device, tensor);
    return shared ? shared->whole(name, own) : own;
  });
}

}  // namespace etr::train
