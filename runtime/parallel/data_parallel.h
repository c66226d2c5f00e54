// Synchronous data parallelism: each rank computes the gradients of its part of a batch, and all update with their mean.
#pragma once

#include <memory>
#include <vector>

#include "exchange/group.h"
#include "gpu/kernel.h"
#include "graph/parameters.h"
#include "parallel/buckets.h"

namespace etr::parallel {

struct DataParallelOptions {
  double bucket_mb =
      4;  // at least so many megabytes (1e6 bytes) of gradients are exchanged at once
};

// One rank's end. Its weaves use the group one after another: all ranks submit the same steps in the same order. Outlives the
// recordings of what it wove.
class DataParallel {
 public:
  DataParallel(exchange::Group group, gpu::DevicePtr device, DataParallelOptions options = {});
  ~DataParallel();

  int rank() const;
  int size() const;

  // What a step has besides gradients.
  struct Step {
    gpu::Buffer values;                // ops::StepValues
    std::vector<gpu::Buffer> results;  // means over the batch's rows: loss, accuracy; one f32 each
  };

  // `commands`, which compute gradients and results of a batch of up to `rows` rows, with the exchange woven in: after them these
  // are means over the rows of all ranks, alike to the bit on all of them. A rank with fewer rows (StepValues::valid_rows) weighs
  // less; it must have one at least. Exchanges go on beside the commands that follow a bucket's last one.
  // The step ends with RankLost where a rank does not come: what follows the exchange, the update, is left out.
  gpu::CommandList weave(const gpu::CommandList& commands, const graph::ParameterStore& store,
                         const Step& step, int64_t rows);

  // The first rank's parameters and states become those of all.
  void share(graph::ParameterStore& store);

 private:
  struct Exchange;

  exchange::Group group_;
  gpu::DevicePtr device_;
  const DataParallelOptions options_;
  gpu::Arena memory_;
};

}  // namespace etr::parallel
