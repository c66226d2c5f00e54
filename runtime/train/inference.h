// Evaluation and prediction with a model in evaluation mode.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "pipeline/item.h"
#include "train/plans.h"

namespace etr::train {

struct EvalMetrics {
  int64_t samples = 0;
  double loss = 0, accuracy = 0;  // means over what the loss counts; 0 if it counts nothing
  double weight = 0;              // what it counts: positions, or the sum of the labels' weights
};

// Sums up the metrics of many batches.
class Scoring {
 public:
  // Uses the hyperparameters of the loss in `values`.
  Scoring(const nn::Model& model, const ops::StepValues& values);
  ~Scoring();
  Scoring(const Scoring&) = delete;
  Scoring& operator=(const Scoring&) = delete;

  // Returns while the device works. The plans must outlive the scoring.
  void add(Plans& plans, const pipeline::Item& batch);

  // Waits for the device and returns the means over all batches.
  EvalMetrics finish();

 private:
  void choose(Plans& plans, const pipeline::Item& batch, const Seen& seen);
  void keep(const pipeline::Item& batch);
  void take(bool wait_all);

  const ops::StepValues values_;
  const std::vector<std::string> fields_;  // of a batch that are uploaded
  Planned* planned_ = nullptr;
  FedRunner* scorer_ = nullptr;
  int64_t most_ = 0;                    // rows that `planned_` can take
  std::deque<pipeline::Item> batches_;  // the device may still read their memory
  EvalMetrics total_;                   // sums
  double row_weight_ = 0;               // of the first batch that counts: the unit of total_.weight
};

// Like Learner::predict().
Tensor predict(Plans& plans, const pipeline::Item& batch);
void predict(Plans& plans, const pipeline::Item& batch, const pipeline::OpaqueField& to);

}  // namespace etr::train
