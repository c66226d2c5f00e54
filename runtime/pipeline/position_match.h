// Whether a saved position belongs to a pipeline: the same stages over the same data, wherever the data lies now.
#pragma once

#include "core/json_fwd.h"

namespace etr::pipeline {

// `saved` and `now`: {"pipeline": {"seed", "stages": [{NAME: options}, ...]}, "data": what Source::data() gave}. Options that
// a saved stage lacks, of a version that did not have them, have their defaults. Positions of versions that noted no data
// belong to the very paths that they name. Throws Error(invalid_argument) that says what differs.
void check_position(const Json& saved, const Json& now);

}  // namespace etr::pipeline
