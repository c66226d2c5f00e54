#include "parallel/downpour.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "parallel/staging.h"

namespace etr::parallel {

Downpour::Downpour(std::unique_ptr<server::Client> client, const gpu::DevicePtr& device,
                   DownpourOptions options)
    : Worker(std::move(client), options.manner),
      options_(options),
      memory_(device, gpu::MemoryUse::readback) {}

gpu::CommandList Downpour::with_update(const gpu::CommandList& commands, optim::Update& update,
                                       const graph::ParameterStore& store, const Step& step,
                                       gpu::Kernels& kernels, gpu::Allocator& memory) {
  gpu::CommandList out = commands;
  ops::Emitter emit(kernels, memory, out);
  emit_update(emit, update, step);
  const auto to_host = [&](const gpu::Buffer& from) {
    const gpu::Buffer to = memory_.allocate(from.size_bytes);
    out.push_back(gpu::Copy{from, to});
    return to;
  };
  std::span<const float> all;
  if (store.count() > 0) all = floats_at(to_host(store.gradients())).first(store.count());
  std::vector<const float*> rows;
  for (const ops::DeviceTensor& gradient : step.row_gradients)
    rows.push_back(floats_at(to_host(gradient.buffer)).data());
  const gpu::Buffer values = to_host(step.values);
  const Work work = work_of([=, this] { take(all, rows, step_at(values)); });
  out.push_back(begin_of(work));
  out.push_back(end_of(work));
  return out;
}

// A non-finite row gradient makes the whole update non-finite.
void Downpour::emit_update(ops::Emitter& emit, optim::Update& update, const Step& step) const {
  if (step.row_gradients.empty()) return update.emit(emit, step.results.front(), step.values);
  if (step.loss_scale)
    fail(Code::unsupported,
         "precision 'fp16' is not supported with sparse tables, because it scales "
         "gradients: use bf16 or fp32");
  const gpu::Buffer verdict = emit.scratch({1}).buffer;
  emit.add(gpu::Fill{verdict, 0});
  for (const ops::DeviceTensor& gradient : step.row_gradients)
    optim::Update::emit_verdict(emit, gradient.buffer, gradient.count(), verdict);
  const optim::Update::Shared shared{verdict};
  update.emit_gradients(emit, step.results.front(), step.values, &shared);
  update.emit_change(emit, step.results.front(), step.values);
}

// Runs on a thread of the device. A non-finite step and those after it make no update.
void Downpour::take(std::span<const float> gradient, std::span<const float* const> rows,
                    const ops::StepValues& values) {
  const std::lock_guard lock(mutex_);
  ++taken_;
  changed_.notify_all();
  const bool updates = values.update != 0 && values.not_finite == 0;
  if (!rows.empty()) row_gradients_.add(values.step, rows, updates);
  if (!updates) return;
  accrued_.resize(gradient.size());
  for (size_t i = 0; i < gradient.size(); ++i) accrued_[i] += gradient[i];
  rate_ = values.learning_rate;
  ++pushable_;
  ++since_fetch_;
  if (client().idle()) start_round(pushable_ >= options_.n_push, since_fetch_ >= options_.n_fetch);
}

// Call with the lock held and the client idle.
void Downpour::start_round(bool pushes, bool fetches, std::span<server::Rows> rows) {
  if (!pushes && !fetches && rows.empty()) return;
  const size_t count = accrued_.size();
  if (pushes) {
    std::swap(accrued_, outgoing_);
    accrued_.assign(count, 0);
    outgoing_rows_ = row_gradients_.take();
    pushable_ = 0;
  }
  if (fetches) {
    incoming_.resize(count);
    since_fetch_ = 0;
  }
  const auto give = [this, pushes, count, rows, rate = rate_](server::Pair& pair) {
    const server::Slice slice = pair.slice(count);
    if (pushes)
      pair.push(std::span(outgoing_).subspan(slice.begin, slice.count), rate, outgoing_rows_);
    if (!rows.empty()) pair.fetch_rows(rows);  // waits for no other worker
  };
  const auto take = [this, fetches, count](server::Pair& pair) {
    const server::Slice slice = pair.slice(count);
    if (fetches)
      pair.fetch(std::span(incoming_).subspan(slice.begin, slice.count));
    else if (pair.leads())
      pair.gate();
  };
  client().exchange(
      give, fetches || (pushes && waits()) ? server::Client::Work(take) : server::Client::Work(),
      [this, fetches] {
        if (fetches) fetched();
      });
}

void Downpour::fetched() {
  const std::lock_guard lock(mutex_);
  std::swap(incoming_, fetched_);  // the next fetch may begin before these weights are used
  fresh_ = true;
}

void Downpour::declare(std::vector<ServedTable> tables) {
  tables_ = std::move(tables);
  first_rows_ = saved_rows_.match(tables_);
  saved_rows_ = {};
  row_gradients_.declare(tables_);
}

std::vector<server::TableSpec> Downpour::table_specs() const {
  std::vector<server::TableSpec> specs;
  for (const ServedTable& table : tables_) specs.push_back(table.spec);
  return specs;
}

// A checkpoint stores the seeds.
void Downpour::take_specs(std::span<const server::TableSpec> specs) {
  for (size_t i = 0; i < tables_.size(); ++i) tables_[i].spec = specs[i];
}

void Downpour::expect(uint32_t step, std::vector<std::vector<uint32_t>> ids) {
  const std::lock_guard lock(mutex_);
  row_gradients_.expect(step, std::move(ids));
}

// Also starts the push and the fetch of weights that are due. Otherwise a sequence of row fetches
// could delay them forever.
bool Downpour::start_fetch(std::span<server::Rows> tables) {
  const std::lock_guard lock(mutex_);
  if (!client().idle()) return false;
  start_round(pushable_ >= options_.n_push, since_fetch_ >= options_.n_fetch, tables);
  return true;
}

void Downpour::fetch(std::span<server::Rows> tables) {
  do client().wait();
  while (!start_fetch(tables));
  client().wait();
}

// Runs after take_servers_weights().
void Downpour::save(checkpoint::Files& files) const {
  Worker::save(files);
  if (tables_.empty()) return;
  std::vector<server::Rows> rows;
  for (size_t i = 0; i < tables_.size(); ++i)
    rows.push_back(client().take_rows(i, tables_[i].spec.width));
  SavedRows::save(files, tables_, rows);
}

void Downpour::load(const checkpoint::Files& files, const std::string& origin) {
  Worker::load(files, origin);
  saved_rows_.load(files, origin);
}

bool Downpour::exchange_due() {
  if (waits()) return started_here() > 0;
  client().idle();  // throws if a shard is lost
  const std::lock_guard lock(mutex_);
  return fresh_;
}

void Downpour::exchange(graph::ParameterStore& store) {
  if (waits()) client().wait();
  const std::lock_guard lock(mutex_);
  if (std::exchange(fresh_, false)) upload_flat(store, fetched_, store.weights());
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

// Pushes the remaining gradients first.
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
