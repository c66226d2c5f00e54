// How the fields of batches reach the device, and what brings them there.
//
//   Place    uploaded                           on the device
//   host     the values                         -
//   bytes    u8, and a scale and a shift        a kernel makes floats of them (train/byte_feed)
//   views    records, and images that are new   kernels make the batch of the images that are there (train/reservoir)
//   buffer   nothing                            a copy (train/program_buffer)
//
// A runner's commands are made for the places in which its first batch has the fields. Where that is Place::host, later batches
// may have u8, of which the host makes floats.
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
  // Of `values`, inputs of `net`, in batches like `first`. `view_samples`: how many samples views may come from;
  // Error(unsupported) for views where it is not given. `memory` is for what the feeds' commands need; it, `kernels` and `net`
  // outlive the runner.
  Feeds(gpu::Kernels& kernels, gpu::Arena& memory, const nn::ModelGraph& net,
        std::vector<graph::ValueId> values, const pipeline::Item& first,
        std::optional<uint64_t> view_samples);

  // What a runner is made with; once.
  std::vector<graph::Feed> for_runner();

  // Whether such a runner can take the batch.
  bool accepts(const pipeline::Item& batch) const;

  // Fills what the runner's next step is fed. Rows beyond a smaller batch repeat it. Throws Error(state) that names the field
  // for a batch that is not accepted.
  void fill(graph::Runner& runner, const pipeline::Item& batch);

  // nullptr where the batches are no views.
  const Reservoir* reservoir() const { return reservoir_.get(); }

 private:
  graph::Feed feed_of(size_t i);
  void fill_host(std::byte* to, const pipeline::Item& batch, const graph::Value& value) const;

  gpu::Kernels& kernels_;
  gpu::Arena& memory_;
  const nn::ModelGraph& net_;
  const std::vector<graph::ValueId> values_;
  std::vector<Place> places_;  // of each value, in the first batch
  std::unique_ptr<Reservoir> reservoir_;
};

}  // namespace etr::train
