#include "train/team.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "exchange/local.h"
#include "train/launch_checks.h"
#include "train/mate.h"

namespace etr::train {
namespace {

bool is_lost(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.code() == Code::rank_lost;
  } catch (...) {
    return false;
  }
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is not of std::exception";
  }
}

// The texts around a device's number and name in a message; see on_device() and without_device().
constexpr const char *kBeforeDevice = "device ", *kBehindDevice = "'): ";

// Returns the error with the device in its message, otherwise unchanged.
std::exception_ptr on_device(const std::exception_ptr& failure, size_t number,
                             const std::string& name) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return std::make_exception_ptr(Error(error.code(), cat(kBeforeDevice, number, " of the job ('",
                                                           name, kBehindDevice, error.what())));
  } catch (...) {
    return failure;
  }
}

// Runs to the next event that all ranks reach together.
void advance(Trainer& trainer) {
  constexpr double kLong = 1e6;  // seconds
  while (trainer.next_event(kLong).kind == EventKind::progress && !trainer.yielded()) {
  }
}

}  // namespace

Team::Team(std::shared_ptr<gpu::Kernels> kernels, const Job& job, Start start,
           std::unique_ptr<Ranks> ranks, const Open& open)
    : kernels_(std::move(kernels)), open_(open) {
  const bool trains = start != Start::evaluate && start != Start::trial;
  const auto names =
      trains && job.parallel() ? job.parallel()->strings("devices") : std::vector<std::string>();
  if (ranks && names.size() > 1)
    fail(Code::invalid_argument, "parallel.devices names ", names.size(),
         " devices, each of which is a rank, but a transport of your own is a single "
         "rank: name one device");
  if (trains && !ranks && start != Start::study) check_processes(job);
  is_lent_ = trains && ranks;
  if (names.size() > 1)
    gather(job, start);
  else
    lead_ = std::make_unique<Trainer>(names.empty() ? kernels_ : device_of(names[0]), job, start,
                                      std::move(ranks));
}

std::shared_ptr<gpu::Kernels> Team::device_of(const std::string& selector) const {
  if (gpu::matches(kernels_->device()->info(), selector)) return kernels_;
  return open_(selector);
}

// All trainers are made at the same time, because making them is collective.
void Team::gather(const Job& job, Start start) {
  const auto names = job.parallel()->strings("devices");
  const int size = static_cast<int>(names.size());
  timeout_s_ = job.parallel()->number("timeout");
  const bool is_local = start == Start::study || !has_processes(job);
  auto groups = std::make_shared<std::vector<exchange::Group>>();
  if (is_local) *groups = exchange::local_groups(size, timeout_s_);
  const auto ranks_of = [groups, job, size](int device) {
    if (groups->empty()) return join_ranks(job, device, size);
    return std::make_unique<Ranks>(std::move((*groups)[static_cast<size_t>(device)]));
  };
  const auto begin_mate = [&](int device) {
    const std::string& name = names[static_cast<size_t>(device)];
    mates_.push_back(std::make_unique<Mate>(
        name, [ranks_of, device, job, start, name, open = open_, patient = is_local] {
          auto ranks = ranks_of(device);
          auto made = std::make_unique<Trainer>(open(name), job, start, std::move(ranks));
          if (patient) made->be_patient();
          return made;
        }));
  };
  try {
    for (int device = 1; device < size; ++device) begin_mate(device);
  } catch (const std::exception& error) {  // those that have begun must not wait for this one
    if (!groups->empty()) groups->front().abort(error.what());
    give_up(std::current_exception());
  }
  try {
    auto ranks = ranks_of(0);
    lead_ = std::make_unique<Trainer>(device_of(names[0]), job, start, std::move(ranks));
  } catch (...) {
    give_up(std::current_exception());
  }
}

Team::~Team() { end(); }

void Team::end() {
  if (!lead_) return;
  if (runs_ || is_lent_) lead_->abort("its trainer was closed before the run was over");
  // At the same time, because each leaves its groups only when the others do.
  for (const auto& mate : mates_) mate->ask_to_end();
  lead_.reset();
  mates_.clear();
}

void Team::close() noexcept {
  on_evaluation({});
  if (!is_over_ && (!mates_.empty() || !lead_->let_go())) end();
}

Trainer& Team::lead() const {
  if (!lead_)
    fail(Code::state,
         "this trainer was one of several that trained together in a run that was "
         "destroyed before it was over");
  return *lead_;
}

// The first failure is the one of a rank that did not lose another one.
void Team::give_up(std::exception_ptr why) {
  if (lead_) lead_->abort(text_of(why));
  runs_ = false;
  for (size_t i = 0; i < mates_.size(); ++i) {
    const std::exception_ptr failure = mates_[i]->end();
    if (failure && is_lost(why) && !is_lost(failure))
      why = on_device(failure, i + 1, mates_[i]->name());
  }
  mates_.clear();
  std::rethrow_exception(why);
}

Event Team::next_of_lead(double seconds) {
  try {
    const Event event = lead_->next_event(seconds);
    if (event.kind == EventKind::end) is_lent_ = false;
    return event;
  } catch (const std::exception& error) {
    if (std::exchange(is_lent_, false)) lead_->abort(error.what());
    throw;
  }
}

Event Team::next_event(double seconds) {
  const Event event = mates_.empty() ? next_of_lead(seconds) : next_of_all(seconds);
  is_over_ = event.kind == EventKind::end;
  return event;
}

Event Team::next_of_all(double seconds) {
  if (!std::exchange(runs_, true))
    for (const auto& mate : mates_) mate->begin(advance);
  try {
    const Event event = lead_->next_event(seconds);
    // The others reach the same event and return from it, except a progress event: then they go on.
    runs_ = event.kind == EventKind::progress && !lead_->yielded();
    return event;
  } catch (...) {
    give_up(std::current_exception());
  }
}

// Makes the others return from next_event().
void Team::pause() {
  if (!std::exchange(runs_, false)) return;
  try {
    lead_->yield();
  } catch (...) {
    give_up(std::current_exception());
  }
}

void Team::on_all(const std::function<void(Trainer&)>& work) {
  Trainer& own = lead();
  pause();
  // A failure that all of them share does not end the run.
  const auto failures = std::make_shared<std::vector<std::exception_ptr>>(mates_.size() + 1);
  const auto part = [failures, &work](size_t number, Trainer& trainer) {
    try {
      work(trainer);
    } catch (...) {
      (*failures)[number] = std::current_exception();
    }
  };
  for (size_t i = 0; i < mates_.size(); ++i)
    mates_[i]->begin([part, i](Trainer& trainer) { part(i + 1, trainer); });
  part(0, own);
  // The others wait for this one however long, and it may have failed before they could know.
  const std::exception_ptr first = (*failures)[0];
  if (first)
    for (const auto& mate : mates_)
      if (!mate->finishes_within(timeout_s_)) own.abort(text_of(first));
  size_t failed = first ? 1 : 0;
  for (size_t i = 0; i < mates_.size(); ++i) {
    const std::exception_ptr broken = mates_[i]->finish();
    std::exception_ptr& failure = (*failures)[i + 1];
    if (broken) failure = broken;
    if (failure) ++failed;
  }
  if (failed == 0) return;
  const bool is_shared =  // whoever lost another has a dead group
      failed == failures->size() && std::none_of(failures->begin(), failures->end(), is_lost);
  if (is_shared) std::rethrow_exception(first);
  for (size_t i = 0; i < mates_.size(); ++i)
    if (const auto failure = (*failures)[i + 1]; failure && (!first || is_lost(first)))
      give_up(on_device(failure, i + 1, mates_[i]->name()));
  give_up(first);
}

EvalMetrics Team::evaluate() {
  EvalMetrics of_all;
  on_all([&](Trainer& trainer) {
    const EvalMetrics metrics = trainer.evaluate();
    if (&trainer == lead_.get()) of_all = metrics;
  });
  return of_all;
}

EvalMetrics Team::evaluate(pipeline::Pipeline& pipeline, const EvalProgress& progress) {
  return learner().evaluate(pipeline, progress);
}

Learner& Team::shaped_learner() {
  if (lead().learner().trainable() == 0) on_all([](Trainer& trainer) { trainer.shaped_learner(); });
  on_all([](Trainer& trainer) { trainer.pause(); });
  return lead_->learner();
}

Learner& Team::learner() {
  if (!mates_.empty()) return shaped_learner();
  lead().pause();
  return lead_->learner();
}

void Team::set_hyperparameter(const std::string& name, double value) {
  on_all([&](Trainer& trainer) { trainer.set_hyperparameter(name, value); });
}

void Team::on_learners(const std::function<void(Learner&)>& work) {
  on_all([&](Trainer& trainer) {
    trainer.pause();
    work(trainer.learner());
  });
}

std::string without_device(const std::string& message) {
  const size_t end = message.find(kBehindDevice);
  if (!message.starts_with(kBeforeDevice) || end == std::string::npos) return message;
  return message.substr(end + std::string_view(kBehindDevice).size());
}

}  // namespace etr::train
