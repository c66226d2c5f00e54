// Options of the job's section 'parallel' that have no effect with its algorithm and mode.
#pragma once

#include "core/json_fwd.h"
#include "core/options.h"
#include "parallel/mesh.h"

namespace etr::train {

// Error(invalid_argument) that names them, their values and what would read them, if any is not at its default: a run that ignored them
// would not be the one that was asked for. Also if a batch of `pipeline` has fewer samples than there are micro-batches.
void check_unread_options(Schema schema, const Options& parallel, const parallel::MeshShape& mesh,
                          const Json& pipeline);

}  // namespace etr::train
