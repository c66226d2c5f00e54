// The trainers of one process, one for each device that a job names, as one. The first works on the caller's thread, the others on
// threads of their own; each is a rank.
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

// Used by one thread, but for stop(). Its calls are those of a Trainer, made on all devices where ranks have to. An error of one
// device ends the run on all; it comes out of the caller's call, with the device's name.
class Team {
 public:
  // Opens a device (DeviceOptions::selector) as the program opened its own.
  using Open = std::function<std::shared_ptr<gpu::Kernels>(const std::string& selector)>;

  // `kernels`, the program's device, is the first that the job names, where that names it too; `open` opens the others, on the
  // threads of their trainers. What does not train (Start::evaluate, Start::trial) works on the program's device alone.
  Team(std::shared_ptr<gpu::Kernels> kernels, const Job& job, Start start,
       std::unique_ptr<Ranks> ranks, const Open& open);
  // Ends the run on all devices. Over a transport of the program's the other ranks are told.
  ~Team();

  Event next_event(double seconds);
  void stop() { lead_->stop(); }
  void on_evaluation(EvalProgress progress) { lead_->on_evaluation(std::move(progress)); }
  EvalMetrics evaluate();
  Json profile(int steps) { return lead_->profile(steps); }
  Json pipeline_stats() const { return lead_->pipeline_stats(); }  // of the first device's pipeline

  // The first device's learner, for what changes nothing. Its parameters are those of all; shaped_learner() has them.
  Learner& learner();
  Learner& shaped_learner();

  uint64_t device_bytes() const { return lead_->learner().device_bytes(); }  // of the first device
  std::optional<double> noise_scale() const { return lead_->noise_scale(); }

  void set_hyperparameter(const std::string& name, double value);

  // What changes the learners: `work` for each of them, at the same time.
  void on_learners(const std::function<void(Learner&)>& work);

 private:
  Event next_of_lead(double seconds);
  std::shared_ptr<gpu::Kernels> device_of(const std::string& selector) const;
  void gather(const Job& job, Start start);
  void on_all(const std::function<void(Trainer&)>& work);
  void pause();
  [[noreturn]] void give_up(std::exception_ptr why);

  const std::shared_ptr<gpu::Kernels> kernels_;
  const Open open_;
  std::vector<std::unique_ptr<Mate>> mates_;  // none: one device
  std::unique_ptr<Trainer> lead_;
  bool is_lent_ = false;  // they meet over the program's transport, and the run is not over
  bool runs_ = false;     // the others are in next_event()
};

}  // namespace etr::train
