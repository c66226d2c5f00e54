// Synthetic studies: records as from a runner, computed by formulas with a little seeded noise.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "study/outline.h"
#include "study/records.h"

namespace etr::test {

// Fresh examples against echo factor at two batch sizes: a baseline, two variants at factors 2 to
// 16 and one at 2 and 4. Three searches of 12 trials each.
std::vector<study::Record> echo_study_records();
study::Outline echo_study();

// Steps against batch sizes 16 to 8192 for two optimizers: perfect scaling for small batches, none
// for large ones. Steps are proportional to 1 / batch + 0.25 / knee, with a knee of 2^7 or 2^10.
std::vector<study::Record> batch_study_records();
study::Outline batch_study();

// Returns a study of one workload with a loss target, whose conditions search no keys.
study::Outline outline(const std::string& workload, std::optional<double> target = {});

// Returns a trial of the workload "w" with these labels: the target was reached after `fresh`
// (none: missed), and the best loss was `loss`.
study::Record simple_record(const Json& labels, uint64_t search, uint64_t trial,
                            std::optional<double> fresh, double loss);

}  // namespace etr::test
