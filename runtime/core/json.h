// The JSON type of the runtime (nlohmann-json). Include core/json_fwd.h in headers: this one is
// slow to compile.
#pragma once

#include <nlohmann/json.hpp>

#include "core/json_fwd.h"
