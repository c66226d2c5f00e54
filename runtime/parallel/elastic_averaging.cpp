#include "parallel/elastic_averaging.h"

#include <span>
#include <utility>

namespace etr::parallel {

ElasticAveraging::ElasticAveraging(std::unique_ptr<server::Client> client,
                                   ElasticAveragingOptions options)
    : Worker(std::move(client), options.manner), options_(options) {}

bool ElasticAveraging::period_over() const {
  return steps() != sent_after_ && steps() % static_cast<uint64_t>(options_.period) == 0;
}

bool ElasticAveraging::exchange_due() {
  const bool idle = client().idle();
  return !own_.empty() || answered_ || (period_over() && (idle || waits()));
}

void ElasticAveraging::send(const graph::ParameterStore& store, bool waits) {
  client().wait();  // the answer has come, but the client may not be idle yet
  sent_ = download_flat(store, store.weights());
  centre_.resize(sent_.size());
  sent_after_ = steps();
  const auto give = [this](server::Pair& pair) {
    const server::Slice slice = pair.slice(sent_.size());
    pair.average(std::span(sent_).subspan(slice.begin, slice.count),
                 static_cast<float>(options_.rate),
                 std::span(centre_).subspan(slice.begin, slice.count));
  };
  const auto take = [](server::Pair& pair) {
    if (pair.leads()) pair.gate();
  };
  client().exchange(give, waits ? server::Client::Work(take) : server::Client::Work(),
                    [this] { answered_ = true; });
}

void ElasticAveraging::move(graph::ParameterStore& store) {
  answered_ = false;
  std::vector<float> weights = download_flat(store, store.weights());
  const auto rate = static_cast<float>(options_.rate);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * (sent_[i] - centre_[i]);
  upload_flat(store, weights, store.weights());
}

void ElasticAveraging::exchange(graph::ParameterStore& store) {
  put_back(store);
  if (answered_) move(store);
  if (!period_over()) return;
  send(store, waits());
  if (!waits()) return;
  client().wait();
  move(store);
}

void ElasticAveraging::put_back(graph::ParameterStore& store) {
  if (own_.empty()) return;
  upload_flat(store, own_, store.weights());
  own_.clear();
}

// Does not wait for other workers.
void ElasticAveraging::settle(graph::ParameterStore& store) {
  if (started_here() == 0 || steps() == sent_after_) return;
  client().wait();
  put_back(store);
  if (answered_) move(store);
  send(store, /*waits=*/false);
  client().wait();
}

void ElasticAveraging::take_servers_weights(graph::ParameterStore& store) {
  client().wait();
  if (answered_) move(store);
  if (own_.empty()) own_ = download_flat(store, store.weights());
  upload_flat(store, current(store.count()), store.weights());
}

}  // namespace etr::parallel
