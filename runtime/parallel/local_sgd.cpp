#include "parallel/local_sgd.h"

#include <algorithm>
#include <span>
#include <utility>

#include "checkpoint/safetensors.h"
#include "core/error.h"

namespace etr::parallel {
namespace {

constexpr const char* kFile = "outer.safetensors";
constexpr const char* kMomentum = "momentum";

}  // namespace

LocalSgd::LocalSgd(exchange::Group group, LocalSgdOptions options)
    : group_(std::move(group)), options_(options) {}

void LocalSgd::share(graph::ParameterStore& store) {
  broadcast_weights(group_, store);
  weights_ = download_flat(store, store.weights());
  if (momentum_.empty()) momentum_.resize(weights_.size());
  if (momentum_.size() != weights_.size())
    fail(Code::invalid_argument, "the checkpoint's outer momentum has ", momentum_.size(),
         " numbers, and the model ", weights_.size(), ": it is of another model");
}

bool LocalSgd::exchange_due(uint64_t steps) {
  steps_ = steps;
  return steps % static_cast<uint64_t>(options_.every) == 0;
}

void LocalSgd::exchange(graph::ParameterStore& store) {
  std::vector<float> distance = download_flat(store, store.weights());
  for (size_t i = 0; i < distance.size(); ++i) distance[i] = weights_[i] - distance[i];
  group_.all_reduce(std::span<float>(distance));
  const auto ranks = static_cast<float>(group_.size());
  const auto rate = static_cast<float>(options_.rate),
             momentum = static_cast<float>(options_.momentum);
  for (size_t i = 0; i < distance.size(); ++i) {
    const float outer = distance[i] / ranks;
    momentum_[i] = momentum * momentum_[i] + outer;
    weights_[i] -= rate * (outer + momentum * momentum_[i]);
  }
  upload_flat(store, weights_, store.weights());
  steps_then_ = steps_;
}

void LocalSgd::average_states(graph::ParameterStore& store) {
  if (steps_ != steps_then_) exchange(store);
  parallel::average_states(group_, store);
}

void LocalSgd::save(checkpoint::Files& files) const {
  Tensor momentum(DType::f32, {static_cast<int64_t>(momentum_.size())});
  std::copy(momentum_.begin(), momentum_.end(), momentum.mutable_view<float>().begin());
  files[kFile] = checkpoint::write_safetensors({{kMomentum, momentum}});
}

void LocalSgd::load(const checkpoint::Files& files, const std::string& origin) {
  const auto file = files.find(kFile);
  if (file == files.end())
    fail(Code::invalid_argument, origin, " has no '", kFile,
         "': it was not written by local SGD. Begin anew in another folder, or resume it with the "
         "algorithm that wrote it (parallel.algorithm)");
  const std::string name = cat(origin, ": '", kFile, "'");
  const auto tensors = checkpoint::read_safetensors(file->second, name);
  const auto found = tensors.find(kMomentum);
  if (found == tensors.end() || found->second.dtype() != DType::f32)
    fail(Code::corrupt_data, name, " has no f32 '", kMomentum, "'");
  const auto values = found->second.view<float>();
  momentum_.assign(values.begin(), values.end());
}

}  // namespace etr::parallel
