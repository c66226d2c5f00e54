// Checks for options of the job's section 'parallel' that have no effect with its algorithm and
// mode.
#pragma once

#include "core/json_fwd.h"
#include "core/options.h"
#include "parallel/mesh.h"

namespace etr::train {

// Error(invalid_argument) if any of them is not at its default, since the run would not be the one
// asked for. The message names the options, their values and what would read them. Also if a batch
// of `pipeline` has fewer samples than there are micro-batches.
void check_unread_options(Schema schema, const Options& parallel, const parallel::MeshShape& mesh,
                          const Json& pipeline);

}  // namespace etr::train
