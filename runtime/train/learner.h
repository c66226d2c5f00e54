// A model on a device with its optimizer: takes batches, returns losses.
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
#include "train/passes.h"
#include "train/plans.h"
#include "train/steps.h"

namespace etr::train {

struct LearnerSpec {
  Json model, optimizer, schedule;  // as in a job
  uint64_t seed = 0;
  // Planned steps and fresh examples; decaying schedules end at the one that their clock counts.
  int64_t total_steps = 0;
  int64_t total_fresh = 0;
  // Weights to begin with, by name; null: as the model says.
  std::shared_ptr<const checkpoint::NamedTensors> weights = nullptr;
};

// train/steps starts steps and reports their results, on the plans that train/plans keeps for
// batches of each shape. train/inference evaluates and predicts.
//
// The parameters' shapes follow from the first batch. Batches may have any number of rows, and
// samples any shape on which the parameters do not depend. Used by one thread.
class Learner {
 public:
  // Validates the specs; plans at the first batch. Throws Error(invalid_argument).
  //
  // With `ranks`, each of which has a learner of the same spec, all learners train together: they
  // start with the first one's weights and submit the same steps, each with its part of a batch.
  // Metrics cover all parts. In every step the batches of all ranks have the same shape, and at
  // most as many rows as the largest of the first step.
  //
  // With a `stage`, this learner has that part of the model. All ranks make the same calls with the
  // same batches, including save(). The learner cannot predict, and knows only its stage's weights.
  Learner(std::shared_ptr<gpu::Kernels> kernels, const LearnerSpec& spec,
          std::unique_ptr<parallel::Sharing> ranks = nullptr,
          std::unique_ptr<parallel::ModelStage> stage = nullptr);
  ~Learner();

  // Plans training on batches of this shape now (otherwise the first step does).
  void prepare(const pipeline::Item& batch);

  // Makes the parameters for such batches without planning: enough to export, to summarize, and to
  // read and set weights.
  void shape(const pipeline::Item& batch);

  // The number of samples that a batch of views may come from; it sizes the reservoir of device
  // echo. Call it before the first batch.
  void expect_views(uint64_t samples) { view_samples_ = samples; }

  // Starts a training step. Returns while the device works: up to three steps (for each shape) are
  // in flight, and take_metrics() returns their results in order. Error(invalid_argument) names the
  // field whose shape or type does not fit. A batch with fewer rows than the largest so far repeats
  // rows up to that number, so that batch statistics stay sensible; save() stores the number.
  //
  // With ranks: `counts` are those of all their batches, and `plan_changes` is whether
  // changes_plan() holds on any of them. If their shapes differ, all ranks agree on rows at the
  // same steps.
  void step(const pipeline::Item& batch, const std::optional<SampleCounts>& counts = {},
            bool plan_changes = false);
  bool changes_plan(const pipeline::Item& batch) const {
    return ranks_ && plans_ && plans_->changes(batch);
  }

  // Waits for at most `seconds`, and returns whether step() with a batch like the last one need not
  // wait for the device or for others.
  bool ready_within(double seconds);

  // Returns the metrics of finished steps; `wait_all` waits for those in flight. If a loss or
  // gradient was NaN or infinite, throws Error(not_finite), which names the step and the op, once
  // the earlier results have been taken. Neither that step nor those in flight after it, which give
  // no results, changed the weights.
  std::vector<StepMetrics> take_metrics(bool wait_all);
  void wait() const;  // for the steps in flight; take_metrics() returns their results
  // Waits until the oldest step whose result has not been taken has ended, and not for later ones.
  void wait_oldest() { steps_.wait_oldest(); }
  // After other ranks were lost: waits for the steps in flight, for at most `seconds`, because some
  // may be waiting for those ranks. Steps that fail give no results.
  void wait_for_steps(double seconds);

  // Collective before ranks evaluate or save: see Sharing::average_states(). First waits for the
  // steps in flight.
  void average_states();
  // Called if this rank cannot continue: see Sharing::abort() and ModelStage::abort().
  void abort(const std::string& reason) {
    if (ranks_) ranks_->abort(reason);
    if (stage_) stage_->abort(reason);
  }

  // Collective when ranks save: see Sharing::forget_residuals(). First waits for the steps in
  // flight.
  void forget_residuals();

  // After the last step: see Sharing::settle(), and then finish(), or leave() if there was no
  // batch. Both first wait for the steps in flight.
  void settle();
  void finish(bool all_end);
  uint64_t exchanged_bytes() const { return ranks_ ? ranks_->bytes() : 0; }
  bool told_to_end() const { return ranks_ && ranks_->told_to_end(); }

  // For a loop of the program's own (train/passes.h), instead of step(). A step is any number of
  // forward() and backward(), and one update(), which counts as the step in schedules, checkpoints
  // and random numbers. Error(unsupported) with ranks, in precision fp16, or if the optimizer
  // accumulates by itself.
  //
  // forward() returns the output of the last layer, in training mode, on exactly the batch's rows.
  // backward() takes the gradient of the latest output, once for each output. The program decides
  // whether this gradient is of a mean or a sum. Without `accumulate`, backward() replaces the
  // gradients since the last update. If forward() was called with `input_gradients`, backward()
  // returns the gradients of the inputs that are f32. update() throws Error(not_finite) if a
  // gradient is NaN or infinite; the weights are then unchanged, and the gradients discarded.
  // Error(state) if something is called too early.
  Tensor forward(const pipeline::Item& batch, bool input_gradients = false);
  std::vector<pipeline::Field> backward(const Tensor& output_gradient, bool accumulate = false);
  bool has_output() const { return passes_ && passes_->has_output(); }
  bool gives_input_gradients() const { return passes_ && passes_->gives_input_gradients(); }
  StepMetrics update();
  // Return the gradients of parameters since the last update, by name (all for ""), and replace
  // those that are given.
  std::vector<pipeline::Field> gradients(const std::string& name);
  void set_gradients(const std::vector<pipeline::Field>& given);

  // Evaluates one whole epoch of `pipeline`. If an epoch has begun, skips the rest of it, which
  // calls `progress` with (0, -1). First waits for the steps in flight. `progress` is called after
  // each batch. If it returns false, or `stop` is set, also while no data comes, throws
  // Error(cancelled). Other errors begin with "evaluation: ". Error(invalid_argument) if there is
  // no further epoch, or if the epoch is empty, unless it `is_part` of one.
  EvalMetrics evaluate(pipeline::Pipeline& pipeline, const EvalProgress& progress = {},
                       const std::atomic<bool>* stop = nullptr);
  EvalMetrics evaluate(EvaluationInput& input, bool is_part = false);

  // Runs `steps` training steps on `batch`, which do train, with each kernel on its own, and
  // returns where their time went: see profile_commands(). First waits for the steps in flight.
  Json profile(const pipeline::Item& batch, int steps);

  // Measures the gradient's noise at the current weights, which do not change: from the gradients
  // of `parts` equal parts of the batch (fewer if it has fewer rows), each computed as a whole
  // step. None if the batch has one row or a gradient is not finite. First waits for the steps in
  // flight. Error(unsupported) if others share the step.
  static constexpr int64_t kNoiseParts = 4;
  std::optional<GradientSquares> measure_noise(const pipeline::Item& batch,
                                               int64_t parts = kNoiseParts);

  // The same from several batches with equal numbers of rows: their mean is the gradient of all
  // these rows.
  std::optional<GradientSquares> measure_noise(const std::vector<pipeline::Item>& batches);

  // Returns the output of the model's last layer for a batch, in evaluation mode: f32 [N, outputs]
  // (for a classifier before the softmax). First waits for the steps in flight.
  Tensor predict(const pipeline::Item& batch);

  // The same into a buffer of the host program, which must have the output's type and shape.
  void predict(const pipeline::Item& batch, const pipeline::OpaqueField& to);

  // Returns the model with its weights (their mean if one is kept) as an ONNX file; see nn/onnx.h.
  // First waits for the steps in flight. Error(state) before prepare(); Error(unsupported) names
  // the layer that ONNX cannot express.
  std::string onnx() const;

  // Returns parameters and running statistics by name, in the model's order; "" returns all. Waits
  // for the steps in flight. Error(state) before the first batch; Error(not_found) names the
  // nearest.
  std::vector<pipeline::Field> weights(const std::string& name);

  // Replaces the given weights, and their mean if one is kept. First waits for the steps in flight.
  // Checks all before it changes any: they must be f32 and have the model's shapes, or it throws
  // Error(invalid_argument).
  void set_weights(const std::vector<pipeline::Field>& given);

  // Sets a hyperparameter of the optimizer or the loss from step `step` on (0-based): see
  // optim::Hyperparameters::set(). Checkpoints keep it. Collective.
  void set_hyperparameter(const std::string& name, double value, uint64_t step) {
    steps_.hyperparameters().set(name, value, step);
  }

  // See train/summary.h. Error(state) before the first batch.
  Json summary() const;

  // Returns whether save() is collective because each rank has a part of what is saved.
  bool saves_together() const { return weights_ && weights_->saves_together(); }

  // Saves weights, optimizer state and step count. Waits for the steps in flight. What is saved,
  // read, set and loaded is the whole model. If ranks share its tensors (TensorParallel), save(),
  // weights(), onnx(), evaluate() and predict() are collective, with the same batches. If ranks
  // have its stages, save() is collective and the first rank gets the files; no rank can predict or
  // export.
  void save(checkpoint::Files& files);
  // Call it before or after prepare(). First waits for the steps in flight. Shapes are checked once
  // both are known:
  // Error(invalid_argument) names the first tensor that does not fit and both shapes, and calls the
  // files `origin`. If it throws, nothing has changed. `unsaid`: the examples trained on, for files
  // of earlier versions, which do not store them.
  void load(const checkpoint::Files& files, const std::string& origin = "the checkpoint",
            const optim::Passed& unsaid = {});

  // Starts from PyTorch weights, the safetensors file of a state_dict; see nn/weights.h for
  // `names`. Call it before the first batch: Error(state) later. Names and shapes are checked when
  // the shapes are known.
  void load_pytorch(const std::string& path, const std::map<std::string, std::string>& names);

  const nn::Model& model() const { return model_; }
  uint64_t steps() const { return steps_.count(); }
  const optim::Passed& passed() const { return steps_.passed(); }  // with ranks: of all ranks
  uint64_t latest_fresh() const { return steps_.latest_fresh(); }  // in the latest step
  int64_t trainable() const;                                       // parameters; 0 before prepare()
  // Device memory: of all current plans; and with the weights and the optimizer's state.
  uint64_t plan_bytes() const;
  uint64_t device_bytes() const;
  int in_flight() const;
  bool has_untaken() const { return steps_.has_untaken(); }  // metrics of steps, or a failed step
  ReservoirStats reservoir() const;
  const gpu::DevicePtr& device() const { return kernels_->device(); }

 private:
  Plans& plans_for(const pipeline::Item& batch, bool with_target);
  void begin(const pipeline::Item& batch, bool with_target);
  void replace_weights(const std::function<void()>& set);
  Weights& begun(const char* otherwise) const;
  Passes& passes_for(const pipeline::Item& batch);
  Weights& with_gradients() const;
  void forget_passes();

  std::shared_ptr<gpu::Kernels> kernels_;
  std::unique_ptr<parallel::Sharing> ranks_;     // null: trains on its own
  std::unique_ptr<parallel::ModelStage> stage_;  // null: has the whole model
  nn::Model model_;
  std::shared_ptr<const checkpoint::NamedTensors> initial_;  // null: the usual initial values
  optim::UpdateSpec update_;
  const uint64_t seed_;
  uint64_t view_samples_ = 0;
  std::unique_ptr<Imported> imported_;  // waits for the first batch
  std::unique_ptr<Loaded> loaded_;      // waits for the first batch
  // The order matters: plans refer to weights, and their destructor waits for the device, which may
  // read what steps hold.
  Steps steps_;
  std::unique_ptr<Weights> weights_;  // from the first batch on
  std::unique_ptr<Plans> plans_;      // likewise
  std::unique_ptr<Passes> passes_;    // from the first forward() on
  // The samples and the number of forward passes since the last update, and whether the store has
  // their gradients.
  SampleCounts passed_samples_;
  uint32_t forward_passes_ = 0;
  bool has_gradients_ = false;
};

}  // namespace etr::train
