// The fields of a batch, and whether they fit the model.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "nn/model.h"
#include "pipeline/item.h"

namespace etr::train {

inline constexpr const char* kImage = "image";  // the field that Item::views stand for

// Where a batch has a field. It decides how the field reaches the device; see train/feeds.h.
enum class Place {
  host,    // in host memory, in the model's type
  bytes,   // in host memory, u8, with scale and shift (`normalize` with 'deferred')
  views,   // in images that the device may already have: device echo
  buffer,  // in a buffer of the program
};
Place place_of(const pipeline::Item& batch, const std::string& name);

// A batch's inputs as the model sees them; u8 that is normalized on upload counts as f32.
struct Seen {
  nn::Fields fields;
  int64_t rows;
};
// Throws Error(invalid_argument) if no model could take the batch.
Seen look_at(const pipeline::Item& batch, const nn::Model& model);

// Returns the shape of a batch of such samples, with any number of them: "[N, 28, 28, 1]".
std::string batch_text(const Shape& sample);

// Returns the fields as errors and checkpoints name them: "image f32 [32, 32, 3], length i32 []".
std::string fields_text(const nn::Fields& fields);

// Returns the number of samples in the batch, counted by the field `name`, which must exist.
int64_t rows_of(const pipeline::Item& batch, const std::string& name);

// The samples of one batch, or of the batches of all ranks.
struct SampleCounts {
  int64_t samples = 0;
  int64_t fresh = 0, echoed = 0;  // of the samples
};
SampleCounts counts_of(const pipeline::Item& batch, const std::string& name);  // as rows_of()

// Returns a number that differs between batches: a hash of the row count and the beginnings of the
// fields in host memory.
int64_t fingerprint_of(const pipeline::Item& batch);

// Returns `count` samples of the batch from `begin` on: these rows of the fields `names`, and all
// other fields whole. Shares the batch's memory.
pipeline::Item part_of(const pipeline::Item& batch, const std::vector<std::string>& names,
                       int64_t begin, int64_t count);

// Checks the fields for `values`, inputs of `net` and the target of its loss: f32 and i32 as they
// are, or Place::bytes for f32. Error(invalid_argument) names the first field that does not fit.
// Error(state) for buffers of a program that does not share the device.
void check_fields(const pipeline::Item& batch, const nn::ModelGraph& net,
                  const std::vector<graph::ValueId>& values, const nn::Model& model,
                  const gpu::Device& device);

}  // namespace etr::train
