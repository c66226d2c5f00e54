// One update of a model's parameters: what is done to the gradients, the optimizer, and the mean of
// the weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optim/loss_scale.h"
#include "optim/optimizer.h"

namespace etr::optim {

// What every optimizer takes beside its own options: accumulation, clipping, the proximal step, the
// mean of the weights.
Schema update_schema();

// {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 1}, validated.
class UpdateSpec {
 public:
  explicit UpdateSpec(const Json& json);  // Error(invalid_argument, not_found) names the key

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
  // `loss_scale` where the gradients come scaled; may be nullptr, outlives the update. With a `share` it changes that part of
  // the weights alone, and has state for no others; the mean of the weights is kept of all.
  Update(const UpdateSpec& spec, const graph::ParameterStore& store,
         const LossScale* loss_scale = nullptr, const std::optional<Share>& share = {});

  // Appends the commands of one step: where gradients are accumulated they change the parameters
  // only in steps whose values say so (StepValues::update). A step whose loss (f32 [1]) or gradients are not finite
  // changes nothing, and neither does any step after it until resume(): they may be in flight before the host knows.
  void emit(ops::Emitter& emit, const gpu::Buffer& loss, const gpu::Buffer& step_values);

  // What several ranks have found about a step, f32 [1] each.
  struct Shared {
    gpu::Buffer verdict;  // not finite where a rank's gradients are not
    gpu::Buffer divisor =
        {};  // of this rank's gradients, so that those of all ranks weigh the same; empty: none
  };

  // The same in two halves. After the first the gradients are those of the whole update, where the step ends one; the second
  // changes the weights. Ranks that share an update exchange between the two what each has.
  void emit_gradients(ops::Emitter& emit, const gpu::Buffer& loss, const gpu::Buffer& step_values,
                      const Shared* shared = nullptr);
  void emit_change(ops::Emitter& emit, const gpu::Buffer& loss, const gpu::Buffer& step_values,
                   const Peers& peers = {});

  // Appends what makes of `weights` those that lie `there`, which another rank has updated, in a step that ends an update.
  static void emit_receive(ops::Emitter& emit, const gpu::Buffer& weights, const gpu::Buffer& there,
                           const gpu::Buffer& step_values);

  // Appends what makes `verdict` NaN where a gradient is not finite, and 0 otherwise.
  void emit_verdict(ops::Emitter& emit, const gpu::Buffer& verdict) const;

  // The same of gradients that are not the store's, where `verdict` is 0 or NaN already.
  static void emit_verdict(ops::Emitter& emit, const gpu::Buffer& gradients, uint32_t count,
                           const gpu::Buffer& verdict);

  int64_t accumulate() const { return options_.integer("accumulate"); }

  // Updates go on. Nothing may be in flight.
  void resume() const;

  // The gradients of a share that has no others.
  const gpu::Buffer& own_gradients() const { return own_gradients_.buffer; }

  uint64_t reserved_bytes() const;  // of device memory
  // What it would take besides if it had no share: of state, and of gradients.
  uint64_t spared_bytes() const;
  // The state of which it has its share alone, by name: as many scalars as that has, in the order of the weights.
  std::vector<std::string> shared_out() const;

  // The mean of the weights, as long as the store's; empty where none is kept.
  const gpu::Buffer& averages() const { return averages_.buffer; }

  // For checkpoints, by name. upload() throws Error(invalid_argument) where something is missing or
  // does not fit.
  std::map<std::string, Tensor> download() const;
  void upload(const std::map<std::string, Tensor>& state);
  void check(
      const std::map<std::string, Tensor>& given) const;  // what upload() throws, and no more

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
  gpu::Arena arena_, gradients_arena_;  // the latter of own_gradients_: an arena's blocks grow
  ops::DeviceTensor own_gradients_;
  const Portion own_, known_;  // what it changes, and that whose gradients it sees
  std::unique_ptr<Optimizer> optimizer_;
  ops::DeviceTensor sum_, norm_, anchor_, averages_, failed_;
};

}  // namespace etr::optim
