// A model in evaluation mode: its loss on batches, and what it predicts.
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
  double loss = 0, accuracy = 0;
};

// The metrics of many batches.
class Scoring {
 public:
  // `values`: the hyperparameters of the loss among them count.
  Scoring(const nn::Model& model, const ops::StepValues& values);
  ~Scoring();
  Scoring(const Scoring&) = delete;
  Scoring& operator=(const Scoring&) = delete;

  // Returns while the device works. The plans outlive the scoring.
  void add(Plans& plans, const pipeline::Item& batch);

  // Means over all samples, when the device is done with them.
  EvalMetrics finish();

 private:
  void choose(Plans& plans, const pipeline::Item& batch, const Seen& seen);
  void keep(const pipeline::Item& batch);
  void take(bool wait_all);

  const ops::StepValues values_;
  const std::vector<std::string> fields_;  // that a batch is fed with
  Planned* planned_ = nullptr;
  FedRunner* scorer_ = nullptr;
  int64_t most_ = 0;                    // rows of a batch that `planned_` is for
  std::deque<pipeline::Item> batches_;  // whose memory the device may still read
  EvalMetrics total_;                   // sums
};

// As Learner::predict().
Tensor predict(Plans& plans, const pipeline::Item& batch);
void predict(Plans& plans, const pipeline::Item& batch, const pipeline::OpaqueField& to);

}  // namespace etr::train
