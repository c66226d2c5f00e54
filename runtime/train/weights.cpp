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

Weights::Weights(gpu::Kernels& kernels, nn::ModelGraph of, uint64_t seed)
    : device(kernels.device()),
      net(std::move(of)),
      store(device, net.graph, seed),
      loss_scale(loss_scale_of(kernels, net)) {}

void Weights::import(const Imported& given) {
  auto tensors = store.download();
  for (auto& [name, tensor] : nn::weights_of_pytorch(net, given.tensors, given.names, given.path))
    tensors[name] = std::move(tensor);
  store.upload(tensors);
}

void Weights::load(const Loaded& loaded) {
  check_origin(loaded.origin, "model", [&] {
    store.check(loaded.weights);
    check_no_others(loaded.weights, store.names());
  });
  check_origin(loaded.origin, "optimizer", [&] { update->check(loaded.optimizer); });
  store.upload(loaded.weights);
  update->upload(loaded.optimizer);
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
  if (!name.empty()) return {{name, graph::download(device, tensor(name))}};
  std::vector<pipeline::Field> out;
  for (const std::string& each : store.names())
    out.push_back({each, graph::download(device, store.tensor(each))});
  return out;
}

void Weights::write(const std::vector<pipeline::Field>& given) {
  for (const pipeline::Field& field : given) {
    const ops::DeviceTensor& to = tensor(field.name);
    if (field.tensor.dtype() != DType::f32 || field.tensor.shape() != to.shape)
      fail(Code::invalid_argument, "weight '", field.name, "' is f32 ", shape_text(to.shape),
           ", not ", dtype_name(field.tensor.dtype()), " ", shape_text(field.tensor.shape()));
  }
  const gpu::Buffer averages = update->averages();
  for (const pipeline::Field& field : given) {
    graph::upload(device, field.tensor, tensor(field.name));
    if (averages && store.is_trainable(field.name))
      graph::upload(device, field.tensor, store.elsewhere(field.name, averages));
  }
  ++age;
}

std::string Weights::onnx() const {
  const gpu::Buffer averages = update->averages();
  return nn::to_onnx(net, [&](const std::string& name) {
    ops::DeviceTensor tensor = store.tensor(name);
    if (averages) tensor = store.elsewhere(name, averages);
    return graph::download(device, tensor);
  });
}

}  // namespace etr::train
