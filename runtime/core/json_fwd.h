// Declares the JSON type of the runtime without its definition (core/json.h).
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace etr {

using Json = nlohmann::ordered_json;  // keeps the order of keys in the text

}  // namespace etr
