#include "train/weights.h"

#include <algorithm>
#include <utility>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/text.h"
#include "nn/onnx.h"
#include "nn/weights.h"
#include "train/split_state.h"

namespace etr::train {
namespace {

std::unique_ptr<optim::LossScale> loss_scale_of(gpu::Kernels& kernels, const nn::ModelGraph& net) {
  return net.precision == ops::Precision::fp16
             ? std::make_unique<optim::LossScale>(kernels.device())
             : nullptr;
}

// Rejects unknown weights, which would be dropped silently.
void check_no_others(const checkpoint::NamedTensors& given, const std::vector<std::string>& names) {
  for (const auto& [name, tensor] : given)
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail(Code::invalid_argument, "the model has no weight '", name, "' (the file holds ",
           dtype_name(tensor.dtype()), " ", shape_text(tensor.shape()), ")");
}

}  // namespace

Weights::Weights(gpu::Kernels& kernels, nn::ModelGraph of, uint64_t seed,
                 parallel::TensorParallel* tensor, parallel::ModelStage* its_stage,
                 parallel::ShardedUpdate* its_sharded)
    : device(kernels.device()),
      tensor_ranks(tensor),
      whole(std::move(of)),
      split(tensor ? nn::split(whole, tensor->rank(), tensor->size()) : nn::SplitModel{}),
      net(tensor ? split.net : whole),
      stage(its_stage),
      sharded(its_sharded),
      store(device, net.graph, seed,
            stage ? stage->values_of(net.graph, stage->stage()) : std::vector<bool>{},
            /*keeps_gradients=*/!sharded || sharded->stage() < 2),
      loss_scale(loss_scale_of(kernels, net)) {
  if (!tensor) return;
  if (split.slices.empty())
    fail(Code::invalid_argument, "parallel.mesh: ", tensor->size(),
         " ranks are to share the model's tensors, and none of its layers can be split:",
         nn::to_text(split.layers));
  const auto has = stage ? whole_values_of(stage->stage()) : std::vector<bool>{};
  shared =
      std::make_unique<SharedTensors>(graph::layout_of(whole.graph, has), split.slices, *tensor);
}

// Returns which of the whole model's values the ranks of a stage have together.
std::vector<bool> Weights::whole_values_of(int of_stage) const {
  const std::vector<bool> own = stage->values_of(net.graph, of_stage);
  if (!tensor_ranks) return own;
  std::vector<bool> out;
  for (const graph::ValueId id : split.values) out.push_back(own[static_cast<size_t>(id)]);
  return out;
}

void Weights::make_update(const optim::UpdateSpec& spec) {
  const auto share = sharded ? std::optional(sharded->share_of(store)) : std::nullopt;
  update = std::make_unique<optim::Update>(spec, store, loss_scale.get(), share);
}

nn::ModelGraph Weights::part_of(nn::ModelGraph of) const {
  if (!tensor_ranks) return of;
  return nn::split(of, tensor_ranks->rank(), tensor_ranks->size()).net;
}

std::vector<std::string> Weights::frozen() const {
  std::vector<std::string> out;
  for (const graph::Value& value : whole.graph.values())
    if (value.kind == graph::ValueKind::frozen) out.push_back(value.name);
  return out;
}

int64_t Weights::trainable() const {
  int64_t all = 0;
  for (const auto& parameter : graph::layout_of(whole.graph).parameters) all += parameter.count;
  for (const nn::ServedTable& table : whole.served) all += table.entries * table.width;
  return all;
}

std::string Weights::base() const {
  if (!net.lora || !base_.empty()) return base_;
  uint32_t sum = 0;
  for (const std::string& name : frozen()) {
    const Tensor value = store.read(name);
    sum = crc32c(std::as_bytes(std::span(name)), sum);
    sum = crc32c(std::as_bytes(value.view<float>()), sum);
  }
  return base_ = cat("crc32c:", sum);
}

// Completes adapters by the frozen parameters that they were trained on, which must be here.
void Weights::add_base(checkpoint::NamedTensors& tensors, const Loaded& loaded) const {
  const std::vector<std::string> kept = frozen();
  if (loaded.frozen != kept)
    fail(Code::invalid_argument, loaded.origin,
         " was made with other 'layers' or another 'train' of 'lora': use those that it was made with");
  if (loaded.scale != net.lora->scale())
    fail(Code::invalid_argument, loaded.origin, " holds adapters with alpha / rank ", loaded.scale,
         ", and here it is ", net.lora->scale());
  if (loaded.base != base())
    fail(Code::invalid_argument, loaded.origin,
         " holds adapters for a model whose other weights are not those of this one: load the "
         "weights that the adapters were trained on first");
  for (const std::string& name : kept) tensors[name] = store.read(name);
}

checkpoint::NamedTensors Weights::save() const {
  checkpoint::NamedTensors out;
  if (net.lora) {
    for (const std::string& name : store.names()) out[name] = {};
    for (const std::string& name : frozen()) out.erase(name);
    for (auto& [name, tensor] : out) tensor = store.read(name);
  } else {
    out = store.download();
  }
  if (shared)
    for (auto& [name, tensor] : out) tensor = shared->whole(name, tensor);
  return out;
}

checkpoint::NamedTensors Weights::save_state() const {
  checkpoint::NamedTensors out = update->download();
  if (shared)
    for (auto& [name, tensor] : out) tensor = shared->whole_state(tensor, store);
  if (sharded)
    for (const std::string& name : update->shared_out())
      out[name] = sharded->whole_state(out[name], store);
  return out;
}

// Returns this stage's part of a checkpoint, which is stored as for one device.
Loaded Weights::of_stage(const Loaded& all) const {
  Loaded part = all;
  check_origin(all.origin, "model", [&] {
    check_all(all.weights, whole.graph);
    std::vector<std::string> names;
    for (const graph::Value& value : whole.graph.values()) names.push_back(value.name);
    check_no_others(all.weights, names);
  });
  std::erase_if(part.weights, [&](const auto& each) { return !has(each.first); });
  part.optimizer = part_of_state(all.optimizer, whole.graph, whole_values_of(stage->stage()));
  return part;
}

// The first stage joins the files of all stages as for one device.
std::optional<SavedWeights> Weights::saved() const {
  SavedWeights mine{{}, save_state()};
  if (sharded && ranks->rank() > 0) return std::nullopt;
  mine.weights = save();
  if (!stage) return mine;
  const parallel::Coordinates& at = stage->mesh().coordinates();
  if (at.data > 0 || at.tensor > 0) return std::nullopt;  // their state is a copy
  std::vector<checkpoint::NamedTensors> optimizers;
  std::vector<std::vector<bool>> parts;
  const auto gathered = [&](const checkpoint::NamedTensors& tensors) {
    const std::vector<std::byte> bytes = checkpoint::write_safetensors(tensors);
    std::vector<checkpoint::NamedTensors> out;
    for (const std::string& each :
         stage->gather({reinterpret_cast<const char*>(bytes.data()), bytes.size()}))
      out.push_back(
          checkpoint::read_safetensors(std::as_bytes(std::span(each)), "a stage's state"));
    return out;
  };
  const auto weights = gathered(mine.weights);
  optimizers = gathered(mine.optimizer);
  if (weights.empty()) return std::nullopt;
  SavedWeights out;
  for (const auto& each : weights) out.weights.insert(each.begin(), each.end());
  for (int s = 0; s < stage->stages(); ++s) parts.push_back(whole_values_of(s));
  out.optimizer = joined_state(optimizers, whole.graph, parts);
  return out;
}

void Weights::import(const Imported& given) {
  start_from(nn::weights_of_pytorch(whole, given.tensors, given.names, given.path));
}

void Weights::start_from(const checkpoint::NamedTensors& given) {
  auto tensors = store.download();
  std::map<std::string, Shape> shapes;
  for (const graph::Value& value : whole.graph.values()) shapes[value.name] = value.shape;
  for (const auto& [name, tensor] : given) {
    const auto shape = shapes.find(name);
    if (shape != shapes.end() && shape->second != tensor.shape())
      fail(Code::invalid_argument, "the model begins with a weight '", name, "' of shape ",
           shape_text(tensor.shape()), ", and with samples as in this batch it is ",
           shape_text(shape->second), ": give it fields of the shapes that the model's file names");
    if (tensors.contains(name))  // others belong to another stage, or to layers that were taken out
      tensors[name] = shared ? shared->own(name, tensor) : tensor;
  }
  store.upload(tensors);
}

SavedWeights Weights::own_of(const Loaded& all) const {
  const Loaded loaded = stage ? of_stage(all) : all;
  SavedWeights out{loaded.weights, loaded.optimizer};
  checkpoint::NamedTensors& tensors = out.weights;
  checkpoint::NamedTensors& state = out.optimizer;
  if (net.lora && !loaded.base.empty()) add_base(tensors, loaded);
  check_origin(loaded.origin, "model", [&] {
    if (shared)
      for (auto& [name, tensor] : tensors) tensor = shared->own(name, tensor);
    store.check(tensors);
    check_no_others(tensors, store.names());
  });
  check_origin(loaded.origin, "optimizer", [&] {
    // Optimizer state is one vector over all trained parameters, so the same ones must be trained
    // here.
    if (loaded.frozen != frozen() && !state.empty())
      fail(Code::invalid_argument, "other parameters were frozen (",
           loaded.frozen.empty() ? "none" : loaded.frozen.front(), ", ...; here ",
           frozen().empty() ? "none" : frozen().front(), ", ...)");
    if (shared)
      for (auto& [name, tensor] : state) tensor = shared->own_state(tensor, store);
    if (sharded)
      for (const std::string& name : update->shared_out())
        if (const auto given = state.find(name); given != state.end())
          given->second = own_state(name, given->second);
    update->check(state);
  });
  return out;
}

void Weights::load(const SavedWeights& own) {
  store.upload(own.weights);
  update->upload(own.optimizer);
  ++age;
  base_.clear();
}

checkpoint::NamedTensors Weights::states() const {
  checkpoint::NamedTensors out;
  for (const std::string& name : store.states())
    out[name] = graph::download(device, store.tensor(name));
  return out;
}

void Weights::set_states(const checkpoint::NamedTensors& to) {
  for (const auto& [name, tensor] : to) graph::upload(device, tensor, store.tensor(name));
}

Tensor Weights::own_state(const std::string& name, const Tensor& given) const {
  if (given.dtype() != DType::f32 || given.shape() != Shape{store.count()})
    fail(Code::invalid_argument, "state '", name, "' is ", dtype_name(given.dtype()), " ",
         shape_text(given.shape()), " in the file but f32 ", shape_text({store.count()}),
         " in the optimizer");
  return sharded->own_state(given, store);
}

// Constants have names, too, but are not weights.
bool Weights::has(const std::string& name) const {
  return std::find(store.names().begin(), store.names().end(), name) != store.names().end();
}

void Weights::require(const std::string& name) const {
  if (has(name)) return;
  for (const graph::Value& value : net.graph.values())
    if (stage && value.name == name && value.initializer)
      fail(Code::state, "the weight '", name, "' is not in stage ", stage->stage(),
           " of the model, which this rank has: a checkpoint has them all");
  for (const nn::ServedTable& table : whole.served)
    if (table.name == name)
      fail(Code::state, "the table '", name,
           "' is sparse: its rows are on the servers, and in checkpoints "
           "(tables.safetensors)");
  fail(Code::not_found, "the model has no weight '", name, "'", suggestion(name, store.names()));
}

std::vector<pipeline::Field> Weights::read(const std::string& name) const {
  const auto field = [&](const std::string& of) {
    require(of);
    const Tensor own = store.read(of);
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
    require(field.name);
    const Shape& to = store.shape(field.name);
    if (shared) field.tensor = shared->own(field.name, field.tensor);
    if (field.tensor.dtype() != DType::f32 || field.tensor.shape() != to)
      fail(Code::invalid_argument, "weight '", field.name, "' is f32 ", shape_text(to), ", not ",
           dtype_name(field.tensor.dtype()), " ", shape_text(field.tensor.shape()));
    store.check_finite(field.name, field.tensor);
  }
  const gpu::Buffer averages = update->averages();
  for (const pipeline::Field& field : own) {
    store.write(field.name, field.tensor);
    if (averages && store.is_trainable(field.name))
      graph::upload(device, field.tensor, store.elsewhere(field.name, averages));
  }
  ++age;
  base_.clear();
}

const ops::DeviceTensor& Weights::gradient(const std::string& name) const {
  require(name);
  if (!store.is_trainable(name))
    fail(Code::invalid_argument, "'", name,
         "' is frozen or a running statistic, and has no gradient");
  return store.gradient(name);
}

std::vector<pipeline::Field> Weights::read_gradients(const std::string& name) const {
  if (!name.empty()) return {{name, graph::download(device, gradient(name))}};
  std::vector<pipeline::Field> out;
  for (const std::string& each : store.names())
    if (store.is_trainable(each)) out.push_back({each, graph::download(device, gradient(each))});
  return out;
}

void Weights::write_gradients(const std::vector<pipeline::Field>& given) {
  for (const auto& [name, value] : given)
    if (const Shape& shape = gradient(name).shape;
        value.dtype() != DType::f32 || value.shape() != shape)
      fail(Code::invalid_argument, "the gradient of '", name, "' is f32 ", shape_text(shape),
           ", not ", dtype_name(value.dtype()), " ", shape_text(value.shape()));
  for (const auto& [name, value] : given) graph::upload(device, value, gradient(name));
}

std::string Weights::onnx(const nn::Model& model) const {
  if (stage)
    fail(Code::unsupported,
         "a model that is cut into stages cannot be exported: load its checkpoint on one "
         "device");
  if (served)
    fail(Code::unsupported, "a model with sparse tables ('", whole.served[0].name,
         "') cannot be exported: they are not on the device");
  const gpu::Buffer averages = update->averages();
  const auto value_of = [&](const std::string& name) {
    const bool averaged = averages && store.is_trainable(name);
    const Tensor own =
        averaged ? graph::download(device, store.elsewhere(name, averages)) : store.read(name);
    return shared ? shared->whole(name, own) : own;
  };
  if (!whole.lora) return nn::to_onnx(whole, value_of);
  // Adapters are added to the weights that they adapt.
  return nn::to_onnx(model.without_adapters(whole), [&](const std::string& name) {
    const std::string product = name.substr(0, name.rfind('.'));
    const std::string a = nn::Lora::name_of_a(product), b = nn::Lora::name_of_b(product);
    if (!name.ends_with(".weight") || !has(a)) return value_of(name);
    return whole.lora->merged(value_of(name), value_of(a), value_of(b));
  });
}

}  // namespace etr::train
