#pragma once

#include <nlohmann/json_fwd.hpp>

namespace etr {

using Json = nlohmann::ordered_json;  // keeps the order in which a person wrote the keys

}  // namespace etr
