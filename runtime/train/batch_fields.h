// What a trainer finds in a batch, and whether it fits the model.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "nn/model.h"
#include "pipeline/item.h"

namespace etr::train {

inline constexpr const char* kImage = "image";  // the field that Item::views stand for

// Where a batch has a field, which decides how it reaches the device: see train/feeds.h.
enum class Place {
  host,    // in host memory, as the model takes it
  bytes,   // in host memory, u8, with what makes floats of it (stage `normalize` with 'deferred')
  views,   // in images which the device may have already: device echo
  buffer,  // in a buffer of the program's
};
Place place_of(const pipeline::Item& batch, const std::string& name);

// What the model sees of a batch's inputs; u8 that is normalised on the way in is f32.
struct Seen {
  nn::Fields fields;
  int64_t rows;
};
// Throws Error(invalid_argument) where no model could take the batch.
Seen look_at(const pipeline::Item& batch, const nn::Model& model);

// The shape of a batch of such samples, whatever their number: "[N, 28, 28, 1]".
std::string batch_text(const Shape& sample);

// The fields as errors and checkpoints name them: "image f32 [32, 32, 3], length i32 []".
std::string fields_text(const nn::Fields& fields);

// Samples in the batch, by the field `name`, which is there.
int64_t rows_of(const pipeline::Item& batch, const std::string& name);

// Of one batch, or of the batches of all ranks.
struct SampleCounts {
  int64_t samples = 0;
  int64_t fresh = 0, echoed = 0;  // of them
};
SampleCounts counts_of(const pipeline::Item& batch, const std::string& name);  // as rows_of()

// What tells batches apart: of the rows' number and the beginnings of the fields in host memory.
int64_t fingerprint_of(const pipeline::Item& batch);

// `count` of the batch's samples from `begin` on, which shares its memory: of the fields `names` these rows, all others whole.
pipeline::Item part_of(const pipeline::Item& batch, const std::vector<std::string>& names,
                       int64_t begin, int64_t count);

// Throws Error(invalid_argument) that names the first field which does not fit its value, one of `values`, inputs of `net` and
// the target of its loss: f32 and i32 as they are; Place::bytes for f32. Error(state) for buffers of a program that does not
// share the device.
void check_fields(const pipeline::Item& batch, const nn::ModelGraph& net,
                  const std::vector<graph::ValueId>& values, const nn::Model& model,
                  const gpu::Device& device);

}  // namespace etr::train
