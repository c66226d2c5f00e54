// A worker of a parameter server: the part that all algorithms share.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "parallel/sharing.h"
#include "server/client.h"

namespace etr::parallel {

// The servers own the parameters; each worker keeps its own batch normalization statistics.
class Worker : public Sharing {
 public:
  // `waits`: the servers may hold a worker back (any consistency except `eventual`), so each
  // exchange ends before the next step. `begins`: this worker may provide the initial weights;
  // otherwise another worker has a checkpoint. `stop`: see Client::heed(); may be nullptr.
  struct Manner {
    bool waits = false, begins = true;
    const std::atomic<bool>* stop = nullptr;
  };
  Worker(std::unique_ptr<server::Client> client, const Manner& manner);

  int rank() const override { return client_->number(); }
  uint64_t bytes() const override { return client_->bytes(); }

  // Takes the servers' parameters, if they have any; otherwise gives them these. Error(cancelled)
  // if the run ended first.
  void share(graph::ParameterStore& store) override;
  void replace_weights(graph::ParameterStore& store, const std::function<void()>& set) override;

  // Sets the weights to the servers'. A learner that has finished keeps its weights, since it
  // trains no more.
  void average_states(graph::ParameterStore& store) final;
  void finish(graph::ParameterStore& store, bool all_end) override;
  void leave(bool all_end) override;
  bool told_to_end() const override { return client_->told_to_end(); }

  // The weights are the servers'. What their updates keep (sums of squares, momentum) is stored
  // beside them. The worker that writes the checkpoint writes both.
  void save(checkpoint::Files& files) const override;
  void load(const checkpoint::Files& files, const std::string& origin) override;

 protected:
  // table_specs() returns the sparse tables, take_specs() receives them with the servers' seeds,
  // and first_rows() returns initial rows of each. Missing rows are drawn from the seed.
  virtual std::vector<server::TableSpec> table_specs() const { return {}; }
  virtual void take_specs(std::span<const server::TableSpec> /*specs*/) {}
  virtual std::vector<server::Rows> first_rows() { return {}; }
  virtual void take_servers_weights(graph::ParameterStore& store) = 0;
  server::Client& client() const { return *client_; }
  bool waits() const { return manner_.waits; }

  // For the destructors of derived classes, because the client's threads use their members. Without
  // finish() the servers see a lost worker.
  void end_client() { client_.reset(); }

  // Returns the servers' weights without waiting for other workers. Keeps their state for save().
  std::vector<float> current(uint64_t count);

 private:
  std::unique_ptr<server::Client> client_;
  const Manner manner_;
  std::vector<float> state_;
  bool left_ = false;
};

}  // namespace etr::parallel
