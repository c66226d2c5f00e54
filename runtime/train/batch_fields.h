// What a trainer finds in a batch: fields in host memory, in a buffer of the host program's, or, for device echo, views.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "nn/model.h"
#include "pipeline/item.h"

namespace etr::train {

inline constexpr const char* kImage = "image";  // the field that Item::views stand for

bool is_viewed(const pipeline::Item& batch, const std::string& name);

// What the model sees of the fields `names`; u8 that is normalised on the way in is f32. Throws Error(invalid_argument).
nn::Fields fields_of(const pipeline::Item& batch, const std::vector<std::string>& names);

// The shape of a batch of such samples, whatever their number: "[N, 28, 28, 1]".
std::string batch_text(const Shape& sample);

// The fields as errors and checkpoints name them: "image f32 [32, 32, 3], length i32 []".
std::string fields_text(const nn::Fields& fields);

// Samples in the batch, by the field `name`, which is there.
int64_t rows_of(const pipeline::Item& batch, const std::string& name);

gpu::Buffer buffer_of(const pipeline::DeviceField& field);

// `count` of the batch's samples from `begin` on, which shares its memory: of the fields `names` these rows, all others whole.
pipeline::Item part_of(const pipeline::Item& batch, const std::vector<std::string>& names,
                       int64_t begin, int64_t count);

// Throws Error(invalid_argument) that names the field where it does not fit `value`, an input of the plan or the target
// of its loss, in a batch of `rows` samples: f32 and i32 as they are; u8 with what makes floats of it (stage `normalize`
// with 'deferred'), from host memory.
void check_field(const pipeline::Item& batch, const graph::Value& value, const nn::ModelGraph& net,
                 bool classifies, int64_t rows);

}  // namespace etr::train
