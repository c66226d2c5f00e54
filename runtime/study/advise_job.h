// Changes a job as advised, or does all of it in one call.
#pragma once

#include "study/advise_measure.h"

namespace etr::study {

// Returns the job with the recommended echo node instead of its own nodes (with none if none
// helps), and with as many threads as help. If the advice keeps the job's own nodes, they stay.
// Other advice takes memory or files, and is not applied. An output.dir gets the suffix "-advised",
// so that both jobs can run. `changes` receives a line for each change.
//
// Variables remain variables, since the document is changed as it was read. Only if a text such as
// "${stages}" stands for a whole section that changes, its value replaces the text.
Json advised_job(const train::Job& job, const Json& advice, std::vector<std::string>& changes);

// Measures and advises. Returns advise() with "job" (the changed one), "changes", "changed" (its
// predict()) and "text"; with `checks` also "checked", the result of compare().
Json advise_job(std::shared_ptr<gpu::Kernels> kernels, const train::Job& job,
                const AdviseOptions& options, bool checks);

}  // namespace etr::study
