#include "parallel/downpour.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/clock.h"

namespace etr::parallel {

Downpour::Downpour(std::unique_ptr<server::Client> client, const gpu::DevicePtr& device,
                   DownpourOptions options)
    : Worker(std::move(client), options.waits),
      options_(options),
      memory_(device, gpu::MemoryUse::readback) {}

gpu::CommandList Downpour::with_update(const gpu::CommandList& commands, optim::Update& update,
                                       const graph::ParameterStore& store, const Step& step,
                                       gpu::Kernels& kernels, gpu::Allocator& memory) {
  gpu::CommandList out = Worker::with_update(commands, update, store, step, kernels, memory);
  const gpu::Buffer all = memory_.allocate(store.gradients().size_bytes),
                    of_step = memory_.allocate(sizeof(ops::StepValues));
  const uint64_t count = store.count();
  const auto work = std::make_shared<const std::function<void()>>([this, all, of_step, count] {
    ops::StepValues values;
    std::memcpy(&values, of_step.host, sizeof values);
    take({reinterpret_cast<const float*>(all.host), count}, values);
  });
  out.push_back(gpu::Copy{store.gradients(), all});
  out.push_back(gpu::Copy{step.values, of_step});
  out.push_back(gpu::HostTurn{gpu::HostTurn::Mark::begin, work});
  out.push_back(gpu::HostTurn{gpu::HostTurn::Mark::end, work});
  return out;
}

// By a thread of the device's. A step that is not finite, and those after it, make no update.
void Downpour::take(std::span<const float> gradient, const ops::StepValues& values) {
  const std::lock_guard lock(mutex_);
  ++taken_;
  changed_.notify_all();
  if (values.update == 0 || values.not_finite != 0) return;
  accrued_.resize(gradient.size());
  for (size_t i = 0; i < gradient.size(); ++i) accrued_[i] += gradient[i];
  rate_ = values.learning_rate;
  ++pushable_;
  ++since_fetch_;
  if (client().idle()) start_round(pushable_ >= options_.n_push, since_fetch_ >= options_.n_fetch);
}

// With the lock, while the client is idle.
void Downpour::start_round(bool pushes, bool fetches) {
  if (!pushes && !fetches) return;
  const size_t count = accrued_.size();
  if (pushes) {
    std::swap(accrued_, outgoing_);
    accrued_.assign(count, 0);
    pushable_ = 0;
  }
  if (fetches) {
    incoming_.resize(count);
    fresh_ = false;
    since_fetch_ = 0;
  }
  client().start(
      [this, pushes, fetches, count, rate = rate_](server::Pair& pair) {
        const server::Slice slice = pair.slice(count);
        if (pushes) pair.push(std::span(outgoing_).subspan(slice.begin, slice.count), rate);
        if (fetches)
          pair.fetch(std::span(incoming_).subspan(slice.begin, slice.count));
        else if (waits())
          pair.gate();
      },
      [this, fetches] {
        if (fetches) fetched();
      });
}

void Downpour::fetched() {
  const std::lock_guard lock(mutex_);
  fresh_ = true;
}

bool Downpour::exchange_due() {
  if (waits()) return started_here() > 0;
  client().idle();  // throws where a shard is lost
  const std::lock_guard lock(mutex_);
  return fresh_;
}

void Downpour::exchange(graph::ParameterStore& store) {
  if (waits()) client().wait();
  const std::lock_guard lock(mutex_);
  if (std::exchange(fresh_, false)) upload_flat(store, incoming_, store.weights());
}

bool Downpour::ready_within(double seconds) {
  if (!waits()) return true;
  const auto deadline = deadline_after(seconds);
  {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return taken_ == started_here(); }))
      return false;
  }
  const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
  return client().wait(std::max(left.count(), 0.0));
}

// Pushes what is left first.
void Downpour::take_servers_weights(graph::ParameterStore& store) {
  client().wait();
  {
    const std::lock_guard lock(mutex_);
    start_round(pushable_ > 0, false);
  }
  client().wait();
  upload_flat(store, current(store.count()), store.weights());
  const std::lock_guard lock(mutex_);
  fresh_ = false;
}

}  // namespace etr::parallel
