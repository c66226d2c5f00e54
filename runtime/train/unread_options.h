// Options of the job's section 'parallel' that its algorithm and mode do not read.
#pragma once

#include "core/json_fwd.h"
#include "core/options.h"
#include "parallel/mesh.h"

namespace etr::train {

// Error(invalid_argument) that names them, their values and what would read them, where any has another value than its default: a run
// that ignored them would not be the one that was asked for. Also where a batch of `pipeline` has fewer samples than micro-batches.
void check_unread_options(Schema schema, const Options& parallel, const parallel::MeshShape& mesh,
                          const Json& pipeline);

}  // namespace etr::train
