// Measures a data set's images before 'init' writes a job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli.h"
#include "data_set.h"

namespace cli {

// Counts of the images of one set that were decoded, or could not be.
struct Looked {
  int64_t good = 0, bad = 0;

  int64_t all() const { return good + bad; }
  double bad_share() const;
};

struct Measured {
  int64_t samples = 0, held_out = 0;     // images of the training set and the validation set
  Looked looked, looked_held_out;        // those of them that were decoded
  std::vector<int64_t> of_class;         // samples, by label
  std::vector<int64_t> heights, widths;  // of the first images
  std::vector<LeftOut> damaged;          // in both sets
  bool color = false;

  // if so, `samples` excludes bad ones
  bool all_looked_at() const { return looked.all() >= samples; }
  bool uniform() const;
  int64_t side() const;  // median of the shorter sides
};

// Throws Failure if there is no image to train on.
Measured measure(const DataSet& set, const std::string& data);

}  // namespace cli
