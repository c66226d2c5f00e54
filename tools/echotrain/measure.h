// What a data set's images are like: 'init' looks at them before it writes a job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli.h"
#include "data_set.h"

namespace cli {

struct Measured {
  int64_t samples = 0, looked_at = 0;    // looked_at: those that were decoded, good and bad
  std::vector<int64_t> of_class;         // samples, by label
  int64_t held_out = 0;                  // images of the validation set
  std::vector<int64_t> heights, widths;  // of the first images
  std::vector<LeftOut> damaged;          // of both sets
  bool color = false;

  bool all_looked_at() const { return looked_at == samples; }
  bool uniform() const;
  int64_t side() const;  // the median of the shorter sides
};

// Throws Failure where there is no image to train on.
Measured measure(const DataSet& set, const std::string& data);

}  // namespace cli
