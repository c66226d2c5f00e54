// A model on a device with its optimizer: takes batches, gives losses.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/store.h"
#include "nn/model.h"
#include "optim/update.h"
#include "parallel/sharing.h"
#include "pipeline/pipeline.h"
#include "train/evaluation_input.h"
#include "train/inference.h"
#include "train/plans.h"
#include "train/steps.h"

namespace etr::train {

struct LearnerSpec {
  Json model, optimizer, schedule;  // as in a job
  uint64_t seed = 0;
  int64_t total_steps = 0;  // planned; what decaying schedules end at,
  int64_t total_fresh = 0;  // or this, where their clock counts fresh examples
};

// Steps are started and reported by train/steps, on what train/plans keeps for batches of each shape; train/inference evaluates
// and predicts.
//
// The parameters' shapes come from the first batch. Batches have any number of rows, and samples any shape that the
// parameters do not depend on. Used by one thread.
class Learner {
 public:
  // Validates the specs; plans at the first batch. Throws Error(invalid_argument).
  // Where there are `ranks`, of which each has a learner of the same spec, all of them train together: they begin with the first
  // one's weights, submit the same steps, each with its part of a batch, and metrics are those of all parts. Every step's batch has
  // the same shape on all ranks, and at most as many rows as the largest of the first.
  // Where there is a `stage`, this one has that part of the model: all ranks make the same calls with the same batches, and save() too
  // is a call of all. It cannot predict, and knows the weights of its stage alone.
  Learner(std::shared_ptr<gpu::Kernels> kernels, const LearnerSpec& spec,
          std::unique_ptr<parallel::Sharing> ranks = nullptr,
          std::unique_ptr<parallel::ModelStage> stage = nullptr);
  ~Learner();

  // Plans training on batches of this shape now (otherwise the first step does).
  void prepare(const pipeline::Item& batch);

  // Makes the parameters for such batches and plans nothing: enough to export, to summarize, and to read and set weights.
  void shape(const pipeline::Item& batch);

  // How many samples a batch of views may come from; sizes the reservoir of device echo. Before the
  // first batch.
  void expect_views(uint64_t samples) { view_samples_ = samples; }

  // Starts one training step. Returns while the device works: up to three steps are in flight (for each shape), and
  // what they gave comes from take_metrics(), in order. Throws Error(invalid_argument) naming the
  // field whose shape or type does not fit. A batch with fewer rows than the most that a step had is computed with
  // rows repeated up to these, so that batch statistics stay sane; save() writes down how many they are.
  // With ranks: `counts` are those of all their batches, `plan_changes` is whether changes_plan() of any: where shapes differ between
  // them all agree on rows at the same steps.
  void step(const pipeline::Item& batch, const std::optional<SampleCounts>& counts = {},
            bool plan_changes = false);
  bool changes_plan(const pipeline::Item& batch) const {
    return ranks_ && plans_ && plans_->changes(batch);
  }

  // Whether step() needs not wait for the device, or for others, after at most `seconds`, for a batch like the last one.
  bool ready_within(double seconds);

  // Metrics of finished steps; `wait_all` waits for those in flight. Throws Error(not_finite) that names the step
  // and the op where a loss or gradient was NaN or infinite, when the results before it have been taken. Such a step has
  // not changed the weights, and neither have those that were in flight after it, which give no results.
  std::vector<StepMetrics> take_metrics(bool wait_all);

  // Of all ranks, before they evaluate or save: see Sharing::average_states(). Waits for the steps in flight first.
  void average_states();
  // This rank cannot go on: see Sharing::abort(), ModelStage::abort().
  void abort(const std::string& reason) {
    if (ranks_) ranks_->abort(reason);
    if (stage_) stage_->abort(reason);
  }

  // Of all ranks, when they save: see Sharing::forget_residuals(). Waits for the steps in flight first.
  void forget_residuals();

  // After the last step: see Sharing::settle(), and then finish(), or leave() without a first batch. Wait for the steps in flight first.
  void settle();
  void finish(bool all_end);
  uint64_t exchanged_bytes() const { return ranks_ ? ranks_->bytes() : 0; }
  bool told_to_end() const { return ranks_ && ranks_->told_to_end(); }

  // One whole epoch of `pipeline` in evaluation mode: the rest of one that has begun is read past, for which `progress` is
  // told (0, -1). Error(invalid_argument) where there is no further epoch. Waits for the steps in flight first. `progress`
  // is told after each batch; where it returns false, or `stop` is set, also while no data comes: Error(cancelled). Other
  // errors begin with "evaluation: ". Error(invalid_argument) where the epoch is empty, unless it `is_part` of one.
  EvalMetrics evaluate(pipeline::Pipeline& pipeline, const EvalProgress& progress = {},
                       const std::atomic<bool>* stop = nullptr, bool is_part = false);

  // Runs `steps` training steps on `batch` (which train), each kernel by itself, and says where their
  // time went: see profile_commands(). Waits for the steps in flight first.
  Json profile(const pipeline::Item& batch, int steps);

  // Measures the gradient's noise at the weights as they are, which stay so: by the gradients of `parts` equal parts of the
  // batch (fewer where it has fewer rows), each computed as a whole step. None where the batch has one row, or a gradient is not
  // finite. Waits for the steps in flight first. Error(unsupported) where others share in the step.
  static constexpr int64_t kNoiseParts = 4;
  std::optional<GradientSquares> measure_noise(const pipeline::Item& batch,
                                               int64_t parts = kNoiseParts);

  // The same by several batches with as many rows each: their mean is that of a batch with all these rows.
  std::optional<GradientSquares> measure_noise(const std::vector<pipeline::Item>& batches);

  // The model's last layer for a batch's images, in evaluation mode: f32 [N, outputs] (for a
  // classifier before the softmax). Waits for the steps in flight first.
  Tensor predict(const pipeline::Item& batch);

  // The same into a buffer of the host program's, which must have the output's type and shape.
  void predict(const pipeline::Item& batch, const pipeline::OpaqueField& to);

  // The model with its weights (their mean where one is kept) as an ONNX file; see nn/onnx.h. Throws
  // Error(state) before prepare(), Error(unsupported) naming the layer that ONNX cannot express.
  std::string onnx() const;

  // Parameters and running statistics by name, in the model's order; `name` "" takes all. Waits for the steps in flight.
  // Error(state) before the first batch; Error(not_found) names the nearest.
  std::vector<pipeline::Field> weights(const std::string& name);

  // Replaces those that are given, and their mean where one is kept. All are checked before any is changed: f32 and of the
  // model's shape, or Error(invalid_argument).
  void set_weights(const std::vector<pipeline::Field>& given);

  // Of the optimizer or the loss, from step `step` on (0-based): see optim::Hyperparameters::set(). Checkpoints keep it. All
  // ranks make the same call.
  void set_hyperparameter(const std::string& name, double value, uint64_t step) {
    steps_.hyperparameters().set(name, value, step);
  }

  // See train/summary.h. Error(state) before the first batch.
  Json summary() const;

  // Whether save() is a call of all ranks, where there are others: each has a part of what is saved.
  bool saves_together() const { return weights_ && weights_->saves_together(); }

  // Weights, optimizer state and step count. save() waits for the steps in flight. What is saved, read, set and loaded is the whole
  // model; where ranks share its tensors (TensorParallel) all of them call save(), weights(), onnx(), evaluate() and
  // predict(), with the same batches. Where ranks have its stages, all call save(), which gives the first of them the files, and
  // none predicts or exports.
  void save(checkpoint::Files& files);
  // Before or after prepare(); shapes are checked when both are there: Error(invalid_argument) that names the first tensor
  // which does not fit, and both shapes, and calls the files `origin`. Nothing is changed where it throws. `unsaid`: the examples
  // that were trained on, where the files do not say it because an earlier version wrote them.
  void load(const checkpoint::Files& files, const std::string& origin = "the checkpoint",
            const optim::Passed& unsaid = {});

  // Weights of PyTorch, a safetensors file of a state_dict, to begin with; see nn/weights.h for `names`. Before
  // the first batch: Error(state) later. Names and shapes are checked when the shapes are known.
  void load_pytorch(const std::string& path, const std::map<std::string, std::string>& names);

  const nn::Model& model() const { return model_; }
  uint64_t steps() const { return steps_.count(); }
  const optim::Passed& passed() const { return steps_.passed(); }  // with ranks: of all of them
  uint64_t latest_fresh() const { return steps_.latest_fresh(); }  // of the latest step
  int64_t trainable() const;                                       // parameters; 0 before prepare()
  uint64_t device_bytes() const;                                   // of all that is planned now
  int in_flight() const;
  ReservoirStats reservoir() const;
  const gpu::DevicePtr& device() const { return kernels_->device(); }

 private:
  Plans& plans_for(const pipeline::Item& batch, bool with_target);
  void begin(const pipeline::Item& batch, bool with_target);
  void replace_weights(const std::function<void()>& set);
  Weights& begun(const char* otherwise) const;

  std::shared_ptr<gpu::Kernels> kernels_;
  std::unique_ptr<parallel::Sharing> ranks_;     // none: it trains alone
  std::unique_ptr<parallel::ModelStage> stage_;  // none: it has the whole model
  nn::Model model_;
  optim::UpdateSpec update_;
  const uint64_t seed_;
  uint64_t view_samples_ = 0;
  std::unique_ptr<Imported> imported_;  // waits for the first batch
  std::unique_ptr<Loaded> loaded_;      // waits for the first batch
  // In this order: plans refer to weights, and wait for the device, which may read what steps hold.
  Steps steps_;
  std::unique_ptr<Weights> weights_;  // from the first batch on
  std::unique_ptr<Plans> plans_;      // likewise
};

}  // namespace etr::train
