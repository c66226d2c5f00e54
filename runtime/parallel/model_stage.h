// Pipeline parallelism: a model's graph is cut into stages, each on its own rank, and a batch
// passes through them in micro-batches.
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
  int micro_batches = 4;  // per batch
  Schedule schedule = Schedule::one_forward_one_backward;
  std::vector<std::string> layers;  // see PartitionOptions
  double bucket_mb = 4;             // as in DataParallelOptions
  bool measures = false;  // measures layer times to choose the cuts, instead of estimating them
};

// One rank's end. All ranks of a line along Axis::pipeline have the same batch; the first one
// computes the graph's first nodes. Ranks along Axis::data have the same nodes and other parts of a
// larger batch. Ranks along Axis::tensor have the same nodes and batch, and slices of the stage's
// tensors: each has its own graph from graph::split(), and its pipeline neighbours have the same
// place along that axis. All ranks submit the same steps in the same order. The object must outlive
// the recordings of the commands that it made. A device may serve only one rank.
class ModelStage {
 public:
  // Collective over `world`, as are most(), average_states() and share(). No step may be in flight.
  ModelStage(const Mesh& mesh, exchange::Group& world, gpu::DevicePtr device,
             ModelStageOptions options);
  ~ModelStage();

  const Mesh& mesh() const { return mesh_; }
  int stage() const { return mesh_.place(Axis::pipeline); }
  int stages() const { return mesh_.length(Axis::pipeline); }
  bool is_last() const { return stage() + 1 == stages(); }
  int micro_batches() const { return options_.micro_batches; }
  // The ranks that share this stage's tensors; nullptr: the tensors are whole here.
  TensorParallel* tensor() const { return tensor_.get(); }

  // Decides where the graph, which has the rows of a micro-batch, is cut; all ranks use the first
  // one's decision. `options` are those of the training plans. Collective; call it before part().
  void cut(gpu::Kernels& kernels, const graph::Graph& graph, const graph::PlanOptions& options,
           uint64_t memory_bytes);

  // Returns which values of the graph a stage has, in ParameterStore's terms.
  std::vector<bool> values_of(const graph::Graph& graph, int stage) const;

  // Returns this rank's part of the graph, with the functions that exchange values with its
  // neighbours. Each plan needs its own.
  graph::Part part(bool training);

  // Returns the commands of a training step for a plan made with part(true): the plan's commands,
  // the reduction of outputs and gradients over the batch of all ranks, then the update. If a
  // number is not finite on one rank, all ranks skip the update. `slices`: those of the parameters
  // that tensor() shares.
  gpu::CommandList with_update(const graph::Plan& plan, graph::ValueId loss, optim::Update& update,
                               const graph::ParameterStore& store, const graph::Slices& slices,
                               gpu::Kernels& kernels, gpu::Allocator& memory);
  // The same for evaluation with a plan made with part(false). The last stage has the outputs, over
  // the rows of this line's batch; on other stages they are 0.
  gpu::CommandList with_means(const graph::Plan& plan, gpu::Kernels& kernels,
                              gpu::Allocator& memory);

  // Called if this stage cannot continue: exchanges that wait for it, here and on other ranks, fail
  // with this reason. May be called on any thread.
  void abort(const std::string& reason);

  int64_t most(int64_t number);
  // Like DataParallel's, among the ranks that have the same stage.
  void average_states(graph::ParameterStore& store);
  void share(graph::ParameterStore& store);

  // Gathers the texts of all stages of this line on the first one; others get an empty list. All
  // stages of the line call it.
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
  exchange::Group all_;                  // for host turns, and between steps
  std::optional<exchange::Group> data_;  // likewise; none if this rank has no peers along data
  std::optional<exchange::Group> line_;  // for use between steps
  std::unique_ptr<TensorParallel> tensor_;
  gpu::Arena memory_;  // for the exchanges of tensor_
  std::mutex aborting_;
  bool closed_ = false;
  // By direction, then by the parity of the link's number. All ranks leave their groups in the same
  // order.
  std::unique_ptr<Courier> links_[2][2];
  // By direction, pointers into links_: from the neighbour that sends, and to the one that
  // receives.
  Courier *in_[2], *out_[2];
};

}  // namespace etr::parallel
