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

// Samples in the batch, by the field `name`, which is there.
int64_t rows_of(const pipeline::Item& batch, const std::string& name);

// Throws Error(invalid_argument) that names the field where it does not fit `value`, an input of the plan or the target
// of its loss: f32 and i32 as they are; u8 with what makes floats of it (stage `normalize` with 'deferred'), from host memory.
void check_field(const pipeline::Item& batch, const graph::Value& value, const nn::ModelGraph& net,
                 bool classifies);

}  // namespace etr::train
