// What a worker of a parameter server does, whichever the algorithm.
#pragma once

#include <memory>
#include <vector>

#include "parallel/sharing.h"
#include "server/client.h"

namespace etr::parallel {

// The parameters are the servers'; statistics of batch normalisation are each worker's own.
class Worker : public Sharing {
 public:
  // `waits`: the servers may hold a worker back (another consistency than `eventual`), so each exchange is over before the next step.
  // `begins`: it may say what all begin with; otherwise another one has a checkpoint.
  Worker(std::unique_ptr<server::Client> client, bool waits, bool begins)
      : client_(std::move(client)), waits_(waits), begins_(begins) {}

  int rank() const override { return client_->number(); }
  uint64_t bytes() const override { return client_->bytes(); }

  // The servers' parameters, if they have any; otherwise these become theirs.
  void share(graph::ParameterStore& store) override;
  void replace_weights(graph::ParameterStore& store, const std::function<void()>& set) override;

  // The weights become those of the servers. A learner that has finished keeps them; it trains no more.
  void average_states(graph::ParameterStore& store) final;
  void finish(graph::ParameterStore& store, bool all_end) override;
  bool told_to_end() const override { return client_->told_to_end(); }

  // The weights are those of the servers; what their updates keep (sums of squares, momentum) lies beside them. The worker that
  // writes the checkpoint writes both.
  void save(checkpoint::Files& files) const override;
  void load(const checkpoint::Files& files, const std::string& origin) override;

 protected:
  // Rows to begin with, of each table that was declared; empty: those that the seed gives.
  virtual std::vector<server::Rows> first_rows() { return {}; }
  virtual void take_servers_weights(graph::ParameterStore& store) = 0;
  server::Client& client() const { return *client_; }
  bool waits() const { return waits_; }

  // For destructors: the client's threads use what the derived class has. Without finish() the servers see a lost worker.
  void end_client() { client_.reset(); }

  // The servers' weights, without waiting for other workers; keeps their state for save().
  std::vector<float> current(uint64_t count);

 private:
  std::unique_ptr<server::Client> client_;
  const bool waits_, begins_;
  std::vector<float> state_;
  bool finished_ = false;
};

}  // namespace etr::parallel
