// One update of a model's parameters: processing of the gradients, the optimizer, and the running
// mean of the weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optim/loss_scale.h"
#include "optim/optimizer.h"

namespace etr::optim {

// Returns the options that every optimizer takes besides its own: accumulation, clipping, the
// proximal step, the mean of the weights.
Schema update_schema();

// A validated spec: {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 1}.
class UpdateSpec {
 public:
  // Throws Error(invalid_argument or not_found), naming the key.
  explicit UpdateSpec(const Json& json);

  const OptimizerSpec& optimizer() const { return *optimizer_; }
  const Options& options() const { return options_; }  // of the optimizer
  const Options& common() const { return common_; }    // update_schema()
  int64_t accumulate() const { return common_.integer("accumulate"); }

 private:
  const OptimizerSpec* optimizer_;
  Options options_, common_;
};

class Update {
 public:
  // `loss_scale`: the scale of the gradients; may be nullptr, must outlive the update. With a
  // `share` the update changes only that part of the weights and keeps state only for it. The mean
  // of the weights always covers all.
  Update(const UpdateSpec& spec, const graph::ParameterStore& store,
         const LossScale* loss_scale = nullptr, const std::optional<Share>& share = {});

  // Appends the commands of one step. If gradients are accumulated, parameters change only in steps
  // whose values say so (StepValues::update). A step whose loss (f32 [1]) or gradients are not
  // finite changes nothing, and if it is one of several that make an update, the others do not
  // either. Neither does any later step until resume(), since such steps may be in flight before
  // the host knows.
  void emit(ops::Emitter& emit, const gpu::Buffer& loss, const gpu::Buffer& step_values);

  // The values on which all ranks have agreed for a step, f32 [1] each.
  struct Shared {
    gpu::Buffer verdict;  // not finite if any rank's gradients are not
    // Divisor of this rank's gradients, so that all ranks' gradients get equal weight; empty: none.
    gpu::Buffer divisor = {};
  };

  // The two halves of emit(). After the first, in a step that ends an update, the gradients are
  // those of the whole update. The second half changes the weights. Ranks that share an update
  // exchange data between the two.
  void emit_gradients(ops::Emitter& emit, const gpu::Buffer& loss, const gpu::Buffer& step_values,
                      const Shared* shared = nullptr);
  void emit_change(ops::Emitter& emit, const gpu::Buffer& loss, const gpu::Buffer& step_values,
                   const Peers& peers = {});

  // Appends commands that copy the weights at `there`, which another rank has updated, to `weights`
  // in a step that ends an update.
  static void emit_receive(ops::Emitter& emit, const gpu::Buffer& weights, const gpu::Buffer& there,
                           const gpu::Buffer& step_values);

  // Appends commands that set `verdict` to NaN if a gradient is not finite, else to 0.
  void emit_verdict(ops::Emitter& emit, const gpu::Buffer& verdict) const;

  // Same for gradients that are not the store's; `verdict` must already be 0 or NaN.
  static void emit_verdict(ops::Emitter& emit, const gpu::Buffer& gradients, uint32_t count,
                           const gpu::Buffer& verdict);

  int64_t accumulate() const { return options_.integer("accumulate"); }

  // Resumes updates after a failed step. Nothing may be in flight.
  void resume() const;

  // The gradients of a share with `only_gradients`.
  const gpu::Buffer& own_gradients() const { return own_gradients_.buffer; }

  uint64_t reserved_bytes() const;  // of device memory
  // Returns the additional bytes that state and gradients would take without a share.
  uint64_t spared_bytes() const;
  // Names of the state kept only for the share: as many scalars as the share has, in the order of
  // the weights.
  std::vector<std::string> shared_out() const;

  // The running mean of the weights, as long as the store's weights; empty if none is kept.
  const gpu::Buffer& averages() const { return averages_.buffer; }
  // Makes the averages the weights as they are now, for weights that others have given.
  void begin_averages() const;

  // For checkpoints, by name. upload() throws Error(invalid_argument) if something is missing, does
  // not fit, or would be lost.
  std::map<std::string, Tensor> download() const;
  void upload(const std::map<std::string, Tensor>& state);
  // Makes only the checks of upload(), and throws what it throws.
  void check(const std::map<std::string, Tensor>& given) const;

 private:
  std::map<std::string, ops::DeviceTensor> state() const;
  ops::DeviceTensor make(int64_t count);
  void emit_finite(ops::Emitter& emit, const gpu::Buffer& gradients, uint32_t count,
                   const gpu::Buffer& loss, const gpu::Buffer& step_values) const;
  Portion owned(const std::optional<Share>& share) const;
  std::vector<graph::ParameterStore::Range> counted(const Peers& peers) const;
  void emit_norm(ops::Emitter& emit, const Peers& peers);
  void emit_adjustments(ops::Emitter& emit, const gpu::Buffer& step_values, const Peers& peers);

  const graph::ParameterStore& store_;
  const LossScale* loss_scale_;
  const Options options_;
  // `gradients_arena_` holds nothing but own_gradients_, because an arena's blocks grow.
  gpu::Arena arena_, gradients_arena_;
  ops::DeviceTensor own_gradients_;
  const Portion own_;    // the weights that this update changes
  const Portion known_;  // those whose gradients it has
  std::unique_ptr<Optimizer> optimizer_;
  ops::DeviceTensor sum_, norm_, anchor_, averages_, failed_;
};

}  // namespace etr::optim
