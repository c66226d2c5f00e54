// The trainers of one process, one for each device that a job names, used as one. The first runs on
// the caller's thread, the others on threads of their own. Each is a rank.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace etr::train {

class Mate;

// Used by one thread, except stop(). Its calls are those of a Trainer, made on all devices if ranks
// must make them together. An error on one device ends the run on all; the caller's call throws it,
// with the device's name.
class Team {
 public:
  // Opens a device (DeviceOptions::selector) as the program opened its own.
  using Open = std::function<std::shared_ptr<gpu::Kernels>(const std::string& selector)>;

  // `kernels`, the program's device, is used as the first if the job names it, too. `open` opens
  // the others, on their trainers' threads. Start::evaluate and Start::trial use only the program's
  // device.
  Team(std::shared_ptr<gpu::Kernels> kernels, const Job& job, Start start,
       std::unique_ptr<Ranks> ranks, const Open& open);
  // Ends the run on all devices. If the ranks use the program's transport, the other ranks are
  // told.
  ~Team();

  // Ends the run, if it is not over, but keeps the learner for the calls below that take it, if it
  // trained alone. Otherwise they throw Error(state).
  void close() noexcept;

  Event next_event(double seconds);
  void stop() { lead_->stop(); }
  void on_evaluation(EvalProgress progress) { lead_->on_evaluation(std::move(progress)); }
  EvalMetrics evaluate();
  // Evaluates a pipeline of the program's, on the first device.
  EvalMetrics evaluate(pipeline::Pipeline& pipeline, const EvalProgress& progress);
  Json profile(int steps) { return lead_->profile(steps); }
  Json pipeline_stats() const { return lead_->pipeline_stats(); }  // of the first device's pipeline

  // The first device's learner, for calls that change nothing. Its parameters are those of all
  // devices; shaped_learner() always has them. What the program does with learners is no training
  // time: the clocks of all devices stand still until next_event().
  Learner& learner();
  Learner& shaped_learner();

  const nn::Model& model() const { return lead_->learner().model(); }
  uint64_t device_bytes() const { return lead_->learner().device_bytes(); }  // of the first device
  std::optional<double> noise_scale() const { return lead_->noise_scale(); }

  void set_hyperparameter(const std::string& name, double value);

  // Calls `work` for each learner, at the same time, to change them.
  void on_learners(const std::function<void(Learner&)>& work);

 private:
  Event next_of_lead(double seconds);
  Event next_of_all(double seconds);
  Trainer& lead() const;
  void end();
  std::shared_ptr<gpu::Kernels> device_of(const std::string& selector) const;
  void gather(const Job& job, Start start);
  void on_all(const std::function<void(Trainer&)>& work);
  void pause();
  [[noreturn]] void give_up(std::exception_ptr why);

  const std::shared_ptr<gpu::Kernels> kernels_;
  const Open open_;
  std::vector<std::unique_ptr<Mate>> mates_;  // empty: one device
  std::unique_ptr<Trainer> lead_;
  double timeout_s_ = 0;  // of the ranks' exchanges
  // Whether ranks meet over the program's transport, and the run is not over.
  bool is_lent_ = false;
  bool runs_ = false;     // whether the others are in next_event()
  bool is_over_ = false;  // whether the run has reached its end
};

// Returns an error's message without the device that a Team has named in it: if several ranks have
// the same error, any of them may be the one it names.
std::string without_device(const std::string& message);

}  // namespace etr::train
