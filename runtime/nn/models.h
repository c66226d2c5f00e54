// Ready-made models: {"model": NAME, option: value, ...} expands to layers.
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
  Json (*expand)(const Options&);  // {"layers": [...]}, and "inputs" and "loss" unless default
};

std::span<const ModelSpec* const> model_table();

// Throws Error(not_found), naming the nearest model, or Error(invalid_argument) for wrong options.
Json expand_model(const std::string& name, const Json& options);

}  // namespace etr::nn
