#include "parallel/data_parallel.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "core/error.h"
#include "ops/op.h"
#include "parallel/row_peers.h"
#include "parallel/staging.h"

namespace etr::parallel {

// An exchange. Its host-visible memory holds the rank's weight, then the values.
struct DataParallel::Exchange {
  gpu::Buffer memory;
  gpu::Buffer weight;  // a copy of the step's; none: all ranks have equal weight
  // A copy of the step's values, if only steps that complete an update take part.
  gpu::Buffer values = {};
  // Receives the divisor of this rank's means that gives all ranks equal weight.
  gpu::Buffer divisor = {};

  void run(exchange::Group& group, float unit) const {
    if (values && step_at(values).update == 0) return;
    const std::span<float> all = floats_at(memory);
    const std::span<float> means = all.subspan(1);
    const float own = weight ? floats_at(weight)[0] / unit : 1;
    all[0] = own;
    if (own != 1)
      for (float& mean : means) mean *= own;
    group.all_reduce(all);
    const float share = share_of_sum(all[0]);
    for (float& mean : means) mean *= share;
    if (!divisor) return;
    // The gradients of a rank whose rows weigh nothing are 0.
    const float of_one = own > 0 ? all[0] / (own * static_cast<float>(group.size())) : 1;
    std::memcpy(divisor.host, &of_one, sizeof of_one);
  }
};

// Memory from the group: on CPU devices the engine sums in the very memory that the device copies
// to.
class DataParallel::Pages final : public gpu::HostPages {
 public:
  explicit Pages(exchange::Group& group) : group_(group) {}
  std::byte* take(uint64_t size_bytes) override {
    return buffers_.emplace_back(group_.allocate(size_bytes)).bytes().data();
  }

 private:
  exchange::Group& group_;
  std::vector<exchange::Buffer> buffers_;
};

DataParallel::DataParallel(exchange::Group group, gpu::DevicePtr device,
                           DataParallelOptions options, std::unique_ptr<TensorParallel> tensor)
    : group_(std::move(group)),
      tensor_(std::move(tensor)),
      device_(std::move(device)),
      options_(options),
      pages_(std::make_unique<Pages>(group_)),
      memory_(device_, gpu::MemoryUse::readback, *pages_) {
  if (options.zero_stage > 0 && size() > 1)
    sharded_ = std::make_unique<ShardedUpdate>(
        group_, memory_, options.zero_stage, static_cast<uint64_t>(options.bucket_mb * 1e6), unit_);
}

DataParallel::~DataParallel() = default;

int DataParallel::rank() const { return group_.rank(); }
int DataParallel::size() const { return group_.size(); }

std::unique_ptr<ops::RowPeers> DataParallel::row_peers(int64_t rows) {
  if (!options_.sync_batch_norm) return nullptr;
  return std::make_unique<SharedRows>(group_, device_, rows);
}

// Returns memory for the exchange of `parts`.
gpu::Buffer DataParallel::room_for(const std::vector<gpu::Buffer>& parts) {
  return memory_.allocate(sizeof(float) + bytes_of(parts));
}

// Sends `parts` to the host at the end of `before`, and receives them in `after`.
void DataParallel::emit(gpu::CommandList& before, gpu::CommandList& after, const Exchange& exchange,
                        const std::vector<gpu::Buffer>& parts) {
  const Work work = work_of([this, exchange] { exchange.run(group_, unit_); });
  const gpu::Buffer there = exchange.memory.slice(sizeof(float), bytes_of(parts));
  copy_out(before, parts, there);
  before.push_back(begin_of(work));
  after.push_back(end_of(work));
  copy_back(after, parts, there);
}

// Combines the verdicts of ranks that share tensors: a slice's gradient is on one rank only.
void DataParallel::emit_verdict(ops::Emitter& emit, const optim::Update& update,
                                const gpu::Buffer& verdict) {
  update.emit_verdict(emit, verdict);
  if (tensor_) tensor_->emit_means(emit.commands(), memory_, {verdict});
}

gpu::CommandList DataParallel::averaged(const gpu::CommandList& commands,
                                        const graph::ParameterStore& store, const Step& step,
                                        gpu::Kernels& kernels, gpu::Allocator& memory) {
  return options_.compression == Compression::none
             ? with_means(commands, store, step)
             : with_compressed(commands, store, step, kernels, memory);
}

gpu::CommandList DataParallel::with_update(const gpu::CommandList& commands, optim::Update& update,
                                           const graph::ParameterStore& store, const Step& step,
                                           gpu::Kernels& kernels, gpu::Allocator& memory) {
  if (sharded_ && sharded_->stage() == 2)
    return with_own_update(commands, update, store, step, kernels, memory);
  gpu::CommandList out = commands;
  ops::Emitter emit(kernels, memory, out);
  const gpu::Buffer& loss = step.results.front();
  if (tensor_) tensor_->emit_replicas(out, memory_, store, *step.slices);
  if (update.accumulate() == 1 || (size() == 1 && !tensor_)) {
    if (size() > 1) out = averaged(out, store, step, kernels, memory);
    if (!tensor_) {  // the verdict follows from the means
      update.emit_gradients(emit, loss, step.values);
      emit_change(emit, update, store, step);
      return out;
    }
    const gpu::Buffer verdict = memory.allocate(sizeof(float));
    emit_verdict(emit, update, verdict);
    const optim::Update::Shared shared{verdict};
    update.emit_gradients(emit, loss, step.values, &shared);
    emit_change(emit, update, store, step);
    return out;
  }
  Step with_verdict = step;
  const gpu::Buffer verdict = memory.allocate(sizeof(float));
  with_verdict.results.push_back(verdict);
  emit_verdict(emit, update, verdict);
  out = with_sums(out, store, with_verdict, kernels, memory, [&](const gpu::Buffer& divisor) {
    gpu::CommandList sum;
    ops::Emitter into(kernels, memory, sum);
    const optim::Update::Shared shared{verdict, divisor};
    update.emit_gradients(into, loss, step.values, &shared);
    return sum;
  });
  emit_change(emit, update, store, step);
  return out;
}

void DataParallel::emit_change(ops::Emitter& emit, optim::Update& update,
                               const graph::ParameterStore& store, const Step& step) {
  const gpu::Buffer& loss = step.results.front();
  if (sharded_)
    sharded_->emit_change(emit, update, store, loss, step.values);
  else if (tensor_)
    update.emit_change(emit, loss, step.values, tensor_->update_peers(emit, memory_, *step.slices));
  else
    update.emit_change(emit, loss, step.values);
}

// The commands already reduce the gradients: see ShardedUpdate::take_gradients().
gpu::CommandList DataParallel::with_own_update(const gpu::CommandList& commands,
                                               optim::Update& update,
                                               const graph::ParameterStore& store, const Step& step,
                                               gpu::Kernels& kernels, gpu::Allocator& memory) {
  const gpu::Buffer weight = memory_.allocate(sizeof(float));
  gpu::CommandList out = commands, after;
  out.push_back(gpu::Copy{step.weight, weight});
  this->emit(out, after, {room_for(step.results), weight}, step.results);
  append(out, after);
  ops::Emitter emit(kernels, memory, out);
  sharded_->emit_gradients(emit, update, step.results.front(), step.values, memory);
  emit_change(emit, update, store, step);
  return out;
}

std::vector<Bucket> DataParallel::buckets_of(const gpu::CommandList& commands,
                                             const graph::ParameterStore& store) const {
  auto out = make_buckets(commands, store, static_cast<uint64_t>(options_.bucket_mb * 1e6));
  if (out.empty()) fail(Code::invalid_argument, "the model has no parameters to train");
  return out;
}

Compressor& DataParallel::compressor(const graph::ParameterStore& store) {
  if (!compressor_)
    compressor_ =
        std::make_unique<Compressor>(store, options_.compression, size(), options_.feedback);
  return *compressor_;
}

void DataParallel::forget_residuals() {
  if (compressor_) compressor_->forget();
}

namespace {

void sum_compressed(exchange::Group& group, Compression format, const gpu::Buffer& wire) {
  const auto numbers = [&]<typename T>(T) {
    group.all_reduce(std::span(reinterpret_cast<T*>(wire.host), wire.size_bytes / sizeof(T)));
  };
  if (format == Compression::bf16) return numbers(exchange::BFloat16{});
  numbers(exchange::Float16{});
}

}  // namespace

// The device packs into host-visible memory and unpacks from there.
void DataParallel::emit_compressed(ops::Emitter& before, ops::Emitter& after, const Bucket& bucket,
                                   const gpu::Buffer& values, const Compressor::Step& step) {
  const gpu::Buffer wire = memory_.allocate(Compressor::bytes(bucket));
  const Work work = work_of([this, wire, values] {
    if (step_at(values).update != 0) sum_compressed(group_, options_.compression, wire);
  });
  compressor_->emit_pack(before, bucket, wire, step);
  before.add(begin_of(work));
  after.add(end_of(work));
  compressor_->emit_unpack(after, bucket, wire, step);
}

// Exchanges the results as soon as they are known, since from them each rank learns the weight of
// its gradients.
gpu::CommandList DataParallel::with_compressed(const gpu::CommandList& commands,
                                               const graph::ParameterStore& store, const Step& step,
                                               gpu::Kernels& kernels, gpu::Allocator& memory) {
  compressor(store);
  const gpu::Buffer values = memory_.allocate(sizeof(ops::StepValues)),
                    weight = memory_.allocate(sizeof(float)),
                    divisor = memory_.allocate(sizeof(float));
  size_t done = final_after(commands, step.weight);
  for (const gpu::Buffer& result : step.results)
    done = std::max(done, final_after(commands, result));
  gpu::CommandList out{gpu::Copy{step.values, values}}, results, after;
  append(out, commands, 0, done);
  out.push_back(gpu::Copy{step.weight, weight});
  emit(out, results, {room_for(step.results), weight, {}, divisor}, step.results);
  ops::Emitter emit_before(kernels, memory, out), emit_after(kernels, memory, after);
  weave(out, commands, done, buckets_of(commands, store), [&](const Bucket& bucket) {
    append(out, std::exchange(results, {}));
    emit_compressed(emit_before, emit_after, bucket, values,
                    {step.values, divisor, step.loss_scale});
  });
  append(out, after);
  return out;
}

// Exchanges the gradients in buckets, and the results with the last one.
gpu::CommandList DataParallel::with_means(const gpu::CommandList& commands,
                                          const graph::ParameterStore& store, const Step& step) {
  std::vector<Bucket> buckets = buckets_of(commands, store);
  Bucket& last = buckets.back();
  last.final_after = commands.size();
  const gpu::Buffer weight = memory_.allocate(sizeof(float));
  const size_t weighed = final_after(commands, step.weight);
  gpu::CommandList out, after;
  append(out, commands, 0, weighed);
  out.push_back(gpu::Copy{step.weight, weight});
  weave(out, commands, weighed, buckets, [&](const Bucket& bucket) {
    std::vector<gpu::Buffer> parts = parts_of(bucket, store);
    if (&bucket == &last) parts.insert(parts.end(), step.results.begin(), step.results.end());
    emit(out, after, {room_for(parts), weight}, parts);
  });
  append(out, after);
  return out;
}

// Exchanges the results, from which each rank learns its weight. The commands from `sum` divide the
// step's gradients by it and add them up. A step that completes an update exchanges these sums.
gpu::CommandList DataParallel::with_sums(
    const gpu::CommandList& commands, const graph::ParameterStore& store, const Step& step,
    gpu::Kernels& kernels, gpu::Allocator& memory,
    const std::function<gpu::CommandList(const gpu::Buffer& divisor)>& sum) {
  const gpu::Buffer weight = memory_.allocate(sizeof(float)),
                    divisor = memory_.allocate(sizeof(float));
  gpu::CommandList out = commands, after;
  out.push_back(gpu::Copy{step.weight, weight});
  emit(out, after, {room_for(step.results), weight, {}, divisor}, step.results);
  append(out, after);

  if (options_.compression != Compression::none) compressor(store);
  const gpu::CommandList sums = sum(divisor);
  append(out, sums);
  // Copies the values only now, because a step with non-finite numbers completes no update.
  const gpu::Buffer agreed = memory_.allocate(sizeof(ops::StepValues));
  out.push_back(gpu::Copy{step.values, agreed});
  after.clear();
  ops::Emitter emit_before(kernels, memory, out), emit_after(kernels, memory, after);
  for (const Bucket& bucket : buckets_of({}, store)) {
    if (options_.compression != Compression::none) {
      emit_compressed(emit_before, emit_after, bucket, agreed, {step.values, {}, {}});
      continue;
    }
    const std::vector<gpu::Buffer> parts = parts_of(bucket, store);
    emit(out, after, {room_for(parts), {}, agreed}, parts);
  }
  append(out, after);
  return out;
}

int64_t DataParallel::most(int64_t number) {
  group_.all_reduce(std::span(&number, 1), exchange::Reduction::max);
  return number;
}

void DataParallel::agree_on_unit(int64_t elements) { unit_ = static_cast<float>(most(elements)); }

void DataParallel::average_states(graph::ParameterStore& store) {
  parallel::average_states(group_, store);
}

void DataParallel::share(graph::ParameterStore& store) { broadcast_weights(group_, store); }

}  // namespace etr::parallel
