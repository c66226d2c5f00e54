// How the fields of batches reach the device.
//
//   Place    uploaded                           on the device
//   host     the values                         -
//   bytes    u8, and a scale and a shift        a kernel converts them (train/byte_feed)
//   views    records, and new images            kernels make the batch there (train/reservoir)
//   buffer   nothing                            a copy (train/program_buffer)
//
// A runner's commands are made for the places that the fields have in its first batch. If a field
// was in Place::host, later batches may have u8, which the host converts to floats.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graph/runner.h"
#include "nn/model.h"
#include "pipeline/item.h"
#include "train/batch_fields.h"
#include "train/reservoir.h"

namespace etr::train {

class Feeds {
 public:
  // Feeds `values`, inputs of `net`, from batches like `first`. `view_samples`: how many samples
  // views may come from; Error(unsupported) if the batch has views and this is not given. `memory`
  // holds what the feeds' commands need; it, `kernels` and `net` must outlive the runner.
  Feeds(gpu::Kernels& kernels, gpu::Arena& memory, const nn::ModelGraph& net,
        std::vector<graph::ValueId> values, const pipeline::Item& first,
        std::optional<uint64_t> view_samples);

  // Returns the feeds to make a runner with. Call it once.
  std::vector<graph::Feed> for_runner();

  // Returns whether such a runner can take the batch.
  bool accepts(const pipeline::Item& batch) const;

  // Fills the inputs of the runner's next step. If the batch has fewer rows, they are repeated.
  // Error(state) names the field if the batch is not accepted.
  void fill(graph::Runner& runner, const pipeline::Item& batch);

  // nullptr if the batches have no views
  const Reservoir* reservoir() const { return reservoir_.get(); }

 private:
  graph::Feed feed_of(size_t i);
  void fill_host(std::byte* to, const pipeline::Item& batch, const graph::Value& value) const;

  gpu::Kernels& kernels_;
  gpu::Arena& memory_;
  const nn::ModelGraph& net_;
  const std::vector<graph::ValueId> values_;
  std::vector<Place> places_;  // of each value in the first batch
  std::unique_ptr<Reservoir> reservoir_;
};

}  // namespace etr::train
