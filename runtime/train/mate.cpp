#include "train/mate.h"

#include <utility>

#include "core/clock.h"
#include "core/start_thread.h"

namespace etr::train {

Mate::Mate(std::string name, Make make)
    : name_(std::move(name)),
      thread_(start_thread("a thread that trains on a device", "the number of parallel.devices",
                           [this, m = std::move(make)] { run(m); })) {}

// A trainer that failed is destroyed at once, so that its groups notify the other ranks.
void Mate::run(const Make& make) {
  try {
    const std::unique_ptr<Trainer> trainer = make();
    done(nullptr);
    for (Work work; next(work);) {
      work(*trainer);
      done(nullptr);
    }
  } catch (...) {
    done(std::current_exception());
  }
}

bool Mate::next(Work& work) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_ || ends_; });
  is_working_ = static_cast<bool>(work_);
  work = std::exchange(work_, nullptr);
  return is_working_;
}

void Mate::done(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (failure) failure_ = failure;
  is_working_ = false;
  changed_.notify_all();
}

void Mate::begin(Work work) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_idle(); });
  if (failure_) return;
  work_ = std::move(work);
  changed_.notify_all();
}

std::exception_ptr Mate::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_idle(); });
  return failure_;
}

bool Mate::finishes_within(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline_after(seconds), [&] { return is_idle(); });
}

void Mate::ask_to_end() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

std::exception_ptr Mate::end() {
  ask_to_end();
  if (thread_.joinable()) thread_.join();
  return failure_;
}

}  // namespace etr::train
