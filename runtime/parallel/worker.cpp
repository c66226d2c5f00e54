#include "parallel/worker.h"

#include <span>
#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace etr::parallel {
namespace {

constexpr const char* kFile = "servers.safetensors";

}  // namespace

Worker::Worker(std::unique_ptr<server::Client> client, const Manner& manner)
    : client_(std::move(client)), manner_(manner) {
  if (manner.stop) client_->heed(*manner.stop);
}

void Worker::share(graph::ParameterStore& store) {
  std::vector<float> weights = download_flat(store, store.weights());
  if (!state_.empty() && state_.size() != weights.size())
    fail(Code::invalid_argument, "the checkpoint's state of the servers has ", state_.size(),
         " numbers, and the model ", weights.size(), " parameters: it is of another model");
  std::vector<server::TableSpec> specs = table_specs();
  const std::vector<server::Rows> rows = first_rows();
  if (!client_->begin({weights, state_, store.decayed(), specs, rows, !manner_.begins}))
    fail(Code::cancelled, "the run has ended before this worker had begun");
  take_specs(specs);
  upload_flat(store, weights, store.weights());
}

void Worker::replace_weights(graph::ParameterStore& /*store*/,
                             const std::function<void()>& /*set*/) {
  fail(Code::state,
       "the parameter servers hold the weights: other weights can be set only before "
       "the first step, or by --resume");
}

std::vector<float> Worker::current(uint64_t count) {
  std::vector<float> weights(count);
  state_.resize(count);
  client_->start([&](server::Pair& pair) {
    const server::Slice slice = pair.slice(count);
    pair.state(std::span(weights).subspan(slice.begin, slice.count),
               std::span(state_).subspan(slice.begin, slice.count));
  });
  client_->wait();
  return weights;
}

void Worker::average_states(graph::ParameterStore& store) {
  if (!left_) take_servers_weights(store);
}

void Worker::finish(graph::ParameterStore& store, bool all_end) {
  average_states(store);
  leave(all_end);
}

void Worker::leave(bool all_end) {
  if (std::exchange(left_, true)) return;
  log_line(LogLevel::info, cat("parameter server: worker ", rank(), " has exchanged ",
                               client_->bytes(), " bytes in ", started_here(), " steps"));
  client_->leave(all_end);
}

void Worker::save(checkpoint::Files& files) const { put_vector(files, kFile, state_); }

void Worker::load(const checkpoint::Files& files, const std::string& origin) {
  state_ = take_vector(files, kFile, origin);
}

}  // namespace etr::parallel
