// A job changed as advised, and all of it in one call.
#pragma once

#include "study/advise_measure.h"

namespace etr::study {

// The job with the recommended echo node in place of its own, or without any where none helps, and with as many threads as
// help. Where the advice keeps the job's own nodes, they stay. Its other advice takes memory or files, and is not applied. An
// output.dir gets "-advised" after its name, so that both jobs can run. `changes` receives a line for each change.
//
// Variables stay variables: what is changed is the document as it was read. Only where a text like "${stages}" stands for all of a
// section that changes, its value takes the place of the text.
Json advised_job(const train::Job& job, const Json& advice, std::vector<std::string>& changes);

// Measures and advises: advise() with "job", the changed one, "changes", "changed" (what predict() says of it), with `checks`
// also "checked", what compare() gives, and "text", all of it for people.
Json advise_job(std::shared_ptr<gpu::Kernels> kernels, const train::Job& job,
                const AdviseOptions& options, bool checks);

}  // namespace etr::study
