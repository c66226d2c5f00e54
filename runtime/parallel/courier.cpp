#include "parallel/courier.h"

#include <utility>

#include "core/start_thread.h"

namespace etr::parallel {

Courier::Courier(exchange::Group group, std::function<void(const std::string&)> on_failure)
    : group_(std::move(group)),
      on_failure_(std::move(on_failure)),
      thread_(start_thread("a thread for messages between stages", "parallel.mesh.pipeline",
                           [this] { run(); })) {}

Courier::~Courier() {
  bool is_busy = false;
  {
    std::scoped_lock lock(mutex_);
    over_ = true;
    is_busy = done_ < begun_ && !failed_;
    jobs_.clear();
  }
  changed_.notify_all();
  if (is_busy) group_.abort("a stage of the model has ended within a step");
  thread_.join();
}

uint64_t Courier::post(std::function<void()> job) {
  std::scoped_lock lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return ++begun_;
}

uint64_t Courier::send(std::span<const std::byte> data, int to, uint32_t tag) {
  return post([this, data, to, tag] { group_.send(data, to, tag); });
}

uint64_t Courier::receive(std::span<std::byte> data, int from, uint32_t tag) {
  return post([this, data, from, tag] { group_.receive(data, from, tag); });
}

uint64_t Courier::begun() const {
  std::scoped_lock lock(mutex_);
  return begun_;
}

void Courier::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed_ || done_ >= number; });
  if (done_ < number) std::rethrow_exception(failed_);
}

// What the job threw, or null. The other ranks have been told, unless there is no memory for that.
std::exception_ptr Courier::failure_of(const std::function<void()>& job) {
  std::exception_ptr failed;
  try {
    try {
      job();
    } catch (const std::exception& error) {
      failed = std::current_exception();
      on_failure_(error.what());
    }
  } catch (...) {
    if (!failed) failed = std::current_exception();
  }
  return failed;
}

void Courier::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return over_ || (!failed_ && !jobs_.empty()); });
    if (over_) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const std::exception_ptr failed = failure_of(job);
    lock.lock();
    failed_ = failed;
    if (!failed_) ++done_;
    changed_.notify_all();
  }
}

}  // namespace etr::parallel
