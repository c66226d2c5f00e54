// Elastic averaging: workers train on their own, tied to a centre on the servers as if by springs.
//
// Every `period` steps a worker with the weights x and the servers with the centre c do
//
//   d = rate (x - c),  x -= d,  c += d
//
// (Zhang, Choromanska and LeCun, "Deep Learning with Elastic Averaging SGD", 2015; asynchronous.)
// The exchange runs during the worker's next steps; d is computed from the weights at its
// beginning. The centre is evaluated and saved, not x. After its last step a worker makes one more
// exchange, however few steps it has made since the previous one.
#pragma once

#include <atomic>
#include <vector>

#include "parallel/worker.h"

namespace etr::parallel {

struct ElasticAveragingOptions {
  int64_t period = 1;  // steps
  double rate = 0.1;
  Worker::Manner manner = {};
};

class ElasticAveraging : public Worker {
 public:
  ElasticAveraging(std::unique_ptr<server::Client> client, ElasticAveragingOptions options);
  ~ElasticAveraging() override { end_client(); }

  bool exchange_due() override;
  void exchange(graph::ParameterStore& store) override;
  void settle(graph::ParameterStore& store) override;

 private:
  void take_servers_weights(graph::ParameterStore& store) override;
  bool period_over() const;
  void send(const graph::ParameterStore& store, bool waits);
  void put_back(graph::ParameterStore& store);
  void move(graph::ParameterStore& store);

  const ElasticAveragingOptions options_;
  uint64_t sent_after_ = 0;  // in steps
  std::vector<float> sent_, centre_;
  std::atomic<bool> answered_{false};  // whether `centre_` holds the centre before the exchange
  std::vector<float> own_;             // the worker's weights while the centre is in the store
};

}  // namespace etr::parallel
