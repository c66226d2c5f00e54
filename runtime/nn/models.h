// Ready-made models: {"model": NAME, option: value, ...} stands for the layers they expand to.
#pragma once

#include <span>
#include <string>

#include "core/json_fwd.h"
#include "core/options.h"

namespace etr::nn {

struct ModelSpec {
  const char* name;
  const char* doc;
  Schema options;
  Json (*expand)(const Options&);  // {"layers": [...]} and, where they differ, "inputs" and "loss"
};

std::span<const ModelSpec* const> model_table();

// Throws Error(not_found) that names the nearest model, Error(invalid_argument) for its options.
Json expand_model(const std::string& name, const Json& options);

}  // namespace etr::nn
