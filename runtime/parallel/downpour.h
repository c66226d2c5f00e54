// Downpour SGD: a worker trains on weights that it fetches from the servers now and then, and
// pushes the sums of its gradients.
//
// In each step:
//
//   if step mod n_fetch = 0: fetch w;  a += g;  w -= the worker's own update;
//   if step mod n_push = 0: push a, a = 0
//
// (Dean et al., "Large Scale Distributed Deep Networks", 2012.) Push and fetch run during the steps
// that follow. If one is still under way when the next falls due, the next one follows it, with all
// gradients that were summed meanwhile. The gradients are those that the worker's own update uses,
// clipped in the same way. The servers use the rate of the worker's schedule.
//
// With sparse tables, each step fetches the rows of its batch before it begins, whatever n_fetch
// is. Row gradients are summed by row and pushed with the others.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ops/op.h"
#include "parallel/served_rows.h"
#include "parallel/worker.h"

namespace etr::parallel {

struct DownpourOptions {
  int64_t n_push = 1, n_fetch = 1;  // in updates of the worker
  Worker::Manner manner = {};
};

class Downpour : public Worker, private ServedRows {
 public:
  Downpour(std::unique_ptr<server::Client> client, const gpu::DevicePtr& device,
           DownpourOptions options);
  ~Downpour() override { end_client(); }

  gpu::CommandList with_update(const gpu::CommandList& commands, optim::Update& update,
                               const graph::ParameterStore& store, const Step& step,
                               gpu::Kernels& kernels, gpu::Allocator& memory) override;

  ServedRows* rows() override { return this; }
  void save(checkpoint::Files& files) const override;
  void load(const checkpoint::Files& files, const std::string& origin) override;

  bool exchange_due() override;
  void exchange(graph::ParameterStore& store) override;
  bool ready_within(double seconds) override;

 private:
  void take_servers_weights(graph::ParameterStore& store) override;
  std::vector<server::TableSpec> table_specs() const override;
  void take_specs(std::span<const server::TableSpec> specs) override;
  std::vector<server::Rows> first_rows() override { return std::exchange(first_rows_, {}); }

  void declare(std::vector<ServedTable> tables) override;
  void fetch(std::span<server::Rows> tables) override;
  void expect(uint32_t step, std::vector<std::vector<uint32_t>> ids) override;

  void emit_update(ops::Emitter& emit, optim::Update& update, const Step& step) const;
  void take(std::span<const float> gradient, std::span<const float* const> rows,
            const ops::StepValues& values);
  bool start_fetch(std::span<server::Rows> tables);
  void start_round(bool pushes, bool fetches, std::span<server::Rows> rows = {});
  void fetched();

  const DownpourOptions options_;
  gpu::Arena memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t taken_ = 0;       // number of steps
  int64_t pushable_ = 0;     // updates summed in `accrued_`
  int64_t since_fetch_ = 0;  // in updates
  float rate_ = 0;           // learning rate of the latest update
  std::vector<float> accrued_, outgoing_;
  std::vector<float> incoming_;  // a fetch writes it
  std::vector<float> fetched_;   // by the latest fetch that is complete
  bool fresh_ = false;           // whether `fetched_` has yet to be used
  std::vector<ServedTable> tables_;
  SavedRows saved_rows_;
  RowGradients row_gradients_;
  std::vector<server::Rows> first_rows_, outgoing_rows_;
};

}  // namespace etr::parallel
