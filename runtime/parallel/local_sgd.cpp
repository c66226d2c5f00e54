#include "parallel/local_sgd.h"

#include <span>
#include <utility>

#include "core/error.h"

namespace etr::parallel {
namespace {

constexpr const char* kFile = "outer.safetensors";

}  // namespace

LocalSgd::LocalSgd(exchange::Group group, LocalSgdOptions options)
    : group_(std::move(group)), options_(options) {}

void LocalSgd::share(graph::ParameterStore& store) {
  broadcast_weights(group_, store);
  weights_ = download_flat(store, store.weights());
  if (momentum_.empty()) momentum_.resize(weights_.size());
  check_size(momentum_);
}

void LocalSgd::check_size(const std::vector<float>& momentum) const {
  if (momentum.size() != weights_.size())
    fail(Code::invalid_argument, "the checkpoint's outer momentum has ", momentum.size(),
         " numbers, and the model ", weights_.size(), ": it is of another model");
}

// The outer gradient contains only changes made by steps, not those made by the program.
void LocalSgd::replace_weights(graph::ParameterStore& store, const std::function<void()>& set) {
  set();
  weights_ = download_flat(store, store.weights());
}

bool LocalSgd::exchange_due() {
  return steps() != steps_then_ && steps() % static_cast<uint64_t>(options_.every) == 0;
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
  steps_then_ = steps();
}

void LocalSgd::average_states(graph::ParameterStore& store) {
  finish(store, false);
  parallel::average_states(group_, store);
}

void LocalSgd::finish(graph::ParameterStore& store, bool /*all_end*/) {
  if (steps() != steps_then_) exchange(store);
}

void LocalSgd::save(checkpoint::Files& files) const { put_vector(files, kFile, momentum_); }

void LocalSgd::load(const checkpoint::Files& files, const std::string& origin) {
  std::vector<float> momentum = take_vector(files, kFile, origin);
  if (!weights_.empty()) check_size(momentum);  // otherwise share() does
  momentum_ = std::move(momentum);
}

}  // namespace etr::parallel
