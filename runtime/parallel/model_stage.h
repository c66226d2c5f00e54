// Pipeline parallelism: a model's graph is cut into stages, each on a rank of its own, and a batch goes through them in micro-batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/group.h"
#include "graph/plan.h"
#include "optim/update.h"
#include "parallel/courier.h"
#include "parallel/mesh.h"
#include "parallel/schedule.h"
#include "parallel/tensor_parallel.h"

namespace etr::parallel {

struct ModelStageOptions {
  int micro_batches = 4;  // of a batch
  Schedule schedule = Schedule::one_forward_one_backward;
  std::vector<std::string> layers;  // see PartitionOptions
  double bucket_mb = 4;             // as DataParallelOptions
  bool measures = false;  // what layers take, where cuts are chosen; otherwise it is estimated
};

// One rank's end. All ranks of a line along Axis::pipeline have the same batch, of which the first computes the graph's first nodes; those
// along Axis::data have the same nodes, and parts of a larger batch; those along Axis::tensor have the same nodes and the same batch,
// and slices of the stage's tensors: the graph is then what graph::split() makes for each of them, and a rank's neighbours have the same
// place along that axis. All submit the same steps in the same order. Outlives the recordings of what it wove; a device serves one
// rank only.
class ModelStage {
 public:
  // A call of all ranks of `world`, as most(), average_states() and share() are, while no step is in flight.
  ModelStage(const Mesh& mesh, exchange::Group& world, gpu::DevicePtr device,
             ModelStageOptions options);
  ~ModelStage();

  const Mesh& mesh() const { return mesh_; }
  int stage() const { return mesh_.place(Axis::pipeline); }
  int stages() const { return mesh_.length(Axis::pipeline); }
  bool is_last() const { return stage() + 1 == stages(); }
  int micro_batches() const { return options_.micro_batches; }
  // Those with whom this one shares its stage's tensors; nullptr: they are whole here.
  TensorParallel* tensor() const { return tensor_.get(); }

  // Decides where the graph, which has a micro-batch's rows, is cut: all ranks do as the first one. `options`: as its plans' in training.
  // A call of all, before part().
  void cut(gpu::Kernels& kernels, const graph::Graph& graph, const graph::PlanOptions& options,
           uint64_t memory_bytes);

  // The values of the graph that a stage has, in ParameterStore's terms.
  std::vector<bool> values_of(const graph::Graph& graph, int stage) const;

  // This rank's part of the graph, with what carries values to and from its neighbours. Each plan has one of its own.
  graph::Part part(bool training);

  // What a step of the plan, made with part(true), does: its commands, then what its outputs and gradients are on the whole batch of all
  // ranks, then the update. What is not finite on one rank is so on all. `slices`: of the parameters that tensor() shares.
  gpu::CommandList with_update(const graph::Plan& plan, graph::ValueId loss, optim::Update& update,
                               const graph::ParameterStore& store, const graph::Slices& slices,
                               gpu::Kernels& kernels, gpu::Allocator& memory);
  // The same of one made with part(false). The last stage has the outputs, over the rows of this line's batch; those of others are 0.
  gpu::CommandList with_means(const graph::Plan& plan, gpu::Kernels& kernels,
                              gpu::Allocator& memory);

  // This stage cannot go on: exchanges that wait for it, here and on other ranks, end with this reason. Any thread.
  void abort(const std::string& reason);

  int64_t most(int64_t number);
  // As DataParallel, among the ranks that have the same stage.
  void average_states(graph::ParameterStore& store);
  void share(graph::ParameterStore& store);

  // What each stage of this line has to say, on its first one; empty on others. A call of all stages of the line.
  std::vector<std::string> gather(const std::string& mine);

 private:
  struct Traffic;
  using Exchange = std::function<void(std::span<float> values)>;

  void receive(const std::shared_ptr<Traffic>& traffic, const graph::Pass& pass,
               const std::vector<ops::DeviceTensor>& tensors, ops::Emitter& emit);
  void send(const std::shared_ptr<Traffic>& traffic, const graph::Pass& pass,
            const std::vector<ops::DeviceTensor>& tensors, ops::Emitter& emit);
  void emit_end(ops::Emitter& emit);
  void emit_exchange(ops::Emitter& emit, const std::vector<gpu::Buffer>& parts, Exchange exchange);
  gpu::CommandList with_sums(const gpu::CommandList& commands, const graph::ParameterStore& store);
  graph::Part nodes_of(int stage) const;
  std::vector<std::vector<double>> measured(gpu::Kernels& kernels, const graph::Graph& graph,
                                            graph::PlanOptions options);

  const Mesh mesh_;
  gpu::DevicePtr device_;
  const ModelStageOptions options_;
  std::vector<size_t> begins_;
  exchange::Group all_;                  // in host turns, and between steps
  std::optional<exchange::Group> data_;  // likewise; none where the rank is alone there
  std::optional<exchange::Group> line_;  // between steps
  std::unique_ptr<TensorParallel> tensor_;
  gpu::Arena memory_;  // of what tensor_ exchanges
  std::mutex aborting_;
  bool closed_ = false;
  // By direction, those of the links with even numbers and those with odd ones. All ranks leave their groups in the same order.
  std::unique_ptr<Courier> links_[2][2];
  // Of them, by direction: from the neighbour that it comes from, and to the one that it goes to.
  Courier *in_[2], *out_[2];
};

}  // namespace etr::parallel
