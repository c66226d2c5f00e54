// The JSON type of the runtime (nlohmann-json). Headers should include core/json_fwd.h instead,
// because this one is slow to compile.
#pragma once

#include <nlohmann/json.hpp>

#include "core/json_fwd.h"
