// Synthetic studies: records as a runner would leave them, from formulas with a little seeded
// noise.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "study/outline.h"
#include "study/records.h"

namespace etr::test {

// Fresh examples against echo factor: three variants at factors 2 to 16 and a baseline, two batch
// sizes, three searches of 12 trials.
std::vector<study::Record> echo_study_records();
study::Outline echo_study();

// Steps against batch size 16 to 8192 for two optimizers: perfect scaling up to 2^7 and 2^9, then
// none.
std::vector<study::Record> batch_study_records();
study::Outline batch_study();

// Returns a study of one workload with a loss target, whose conditions search no keys.
study::Outline outline(const std::string& workload, std::optional<double> target = {});

// Returns a trial of the workload "w" with these labels: the target was reached after `fresh`
// (none: missed), and the best loss was `loss`.
study::Record simple_record(const Json& labels, uint64_t search, uint64_t trial,
                            std::optional<double> fresh, double loss);

}  // namespace etr::test
