#include "parallel/model_stage.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "parallel/buckets.h"
#include "parallel/part_times.h"
#include "parallel/partition.h"
#include "parallel/sharing.h"
#include "parallel/staging.h"

namespace etr::parallel {
namespace {

using Direction = graph::Pass::Direction;

size_t index(Direction direction) { return static_cast<size_t>(direction); }

// Neighbours number micro-batches alike, and the n-th message with a tag matches the n-th receive.
uint32_t tag_of(const graph::Pass& pass) {
  return static_cast<uint32_t>(2 * pass.micro_batch) + static_cast<uint32_t>(index(pass.direction));
}

std::vector<gpu::Buffer> buffers_of(const std::vector<ops::DeviceTensor>& tensors) {
  std::vector<gpu::Buffer> out;
  for (const ops::DeviceTensor& tensor : tensors) out.push_back(tensor.buffer);
  return out;
}

}  // namespace

// Messages of one plan, in host-visible memory. Once made, only the device's host-turn thread uses
// it.
struct ModelStage::Traffic {
  Traffic(const gpu::DevicePtr& device, size_t count)
      : memory(device, gpu::MemoryUse::readback), sent(count) {}

  struct Incoming {
    // Alternate micro-batches share memory: when the next one is waited for, the device has copied
    // this one.
    std::array<gpu::Buffer, 2> places;
    std::vector<uint32_t> tags;     // of a step's messages, in order
    std::vector<uint64_t> numbers;  // courier numbers of the receives begun so far
  };
  gpu::Arena memory;
  std::array<Incoming, 2> incoming;
  std::vector<std::array<gpu::Buffer, 2>> sent;  // by micro-batch
};

ModelStage::ModelStage(const Mesh& mesh, exchange::Group& world, gpu::DevicePtr device,
                       ModelStageOptions options)
    : mesh_(mesh),
      device_(std::move(device)),
      options_(options),
      all_(world.duplicate()),
      memory_(device_, gpu::MemoryUse::readback) {
  if (mesh.length(Axis::tensor) > 1)
    tensor_ = std::make_unique<TensorParallel>(mesh.line(world, Axis::tensor), device_);
  line_ = mesh.line(world, Axis::pipeline);
  exchange::Group data = mesh.line(world, Axis::data);
  if (data.size() > 1) data_ = std::move(data);
  // Both ends of a message are in one group, and no rank uses a group in two threads: links with
  // even numbers use one group, those with odd numbers another. They contain all ranks of the
  // world, so that errors give their numbers there.
  for (const Direction direction : {Direction::forward, Direction::backward})
    for (const int odd : {0, 1}) {
      exchange::Group link = world.duplicate();
      const bool above = stage() % 2 == odd;  // the link to the next stage has this parity
      const bool forward = direction == Direction::forward;
      auto& courier = links_[index(direction)][odd];
      courier = std::make_unique<Courier>(std::move(link),
                                          [this](const std::string& reason) { abort(reason); });
      (above == forward ? out_ : in_)[index(direction)] = courier.get();
    }
}

ModelStage::~ModelStage() {
  std::scoped_lock lock(aborting_);
  closed_ = true;
}

// Notifies all other ranks at once, also those that wait for something else.
void ModelStage::abort(const std::string& reason) {
  std::scoped_lock lock(aborting_);
  if (std::exchange(closed_, true)) return;
  const std::string text = cat("stage ", stage(), " (rank ", mesh_.rank(), "): ", reason);
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    in_[index(direction)]->abort(text);
    out_[index(direction)]->abort(text);
  }
  all_.abort(text);
  if (data_) data_->abort(text);
  if (tensor_) tensor_->abort(text);
  line_->abort(text);
}

// Each rank measures on its own device. Ranks of a stage use their mean, so slow devices get less
// work.
std::vector<std::vector<double>> ModelStage::measured(gpu::Kernels& kernels,
                                                      const graph::Graph& graph,
                                                      graph::PlanOptions options) {
  const std::vector<size_t> parts = parts_of(graph, options.loss);
  std::unique_ptr<ops::SlicePeers> peers = tensor_ ? tensor_->peers() : nullptr;
  options.peers.slices = peers.get();
  const std::vector<double> own = seconds_of_parts(kernels, graph, parts, options);
  const auto count = static_cast<size_t>(stages());
  std::vector<double> all(count * parts.size(), 0.0);
  const double alike = static_cast<double>(all_.size()) / stages();
  for (size_t i = 0; i < parts.size(); ++i)
    all[static_cast<size_t>(stage()) * parts.size() + i] = own[i] / alike;
  all_.all_reduce(std::span(all));
  std::vector<std::vector<double>> out;
  for (size_t s = 0; s < count; ++s) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(s * parts.size());
    out.emplace_back(begin, begin + static_cast<ptrdiff_t>(parts.size()));
  }
  return out;
}

void ModelStage::cut(gpu::Kernels& kernels, const graph::Graph& graph,
                     const graph::PlanOptions& plan, uint64_t memory_bytes) {
  const bool measures = options_.measures && options_.layers.empty();
  PartitionOptions options{stages(), options_.layers, {}, memory_bytes};
  for (int s = 0; s < stages(); ++s)
    options.in_flight.push_back(
        forward_ahead(options_.schedule, s, stages(), options_.micro_batches));
  if (measures) options.seconds = measured(kernels, graph, plan);
  const Partition found = partition(graph, plan.loss, options);
  begins_ = found.begins;
  all_.broadcast(std::as_writable_bytes(std::span(begins_)), 0);
  if (mesh_.rank() == 0)
    log_line(LogLevel::info,
             cat("the model's stages, ",
                 !options_.layers.empty() ? "as parallel.stages says"
                 : measures               ? "cut where the slowest takes the least time"
                                          : "cut where the largest has the least to do",
                 tensor_ ? cat("; parameters and memory are those of one of a stage's ",
                               counted(tensor_->size(), "rank"))
                         : "",
                 ":\n", found.reasons),
             LogSubject::partition);
}

graph::Part ModelStage::nodes_of(int stage) const {
  if (begins_.size() != static_cast<size_t>(stages()))
    fail(Code::internal, "the model has not been cut into stages");
  const auto at = static_cast<size_t>(stage);
  graph::Part part;
  part.begin = begins_[at];
  part.end = at + 1 < begins_.size() ? begins_[at + 1] : SIZE_MAX;
  return part;
}

std::vector<bool> ModelStage::values_of(const graph::Graph& graph, int stage) const {
  return graph::values_of(graph, nodes_of(stage));
}

graph::Part ModelStage::part(bool training) {
  const auto traffic =
      std::make_shared<Traffic>(device_, static_cast<size_t>(options_.micro_batches));
  graph::Part part = nodes_of(stage());
  part.micro_batches = options_.micro_batches;
  part.order = training ? training_order(options_.schedule, stage(), stages(), part.micro_batches)
                        : forward_order(part.micro_batches);
  part.receive = [this, traffic](const auto& pass, const auto& tensors, ops::Emitter& emit) {
    receive(traffic, pass, tensors, emit);
  };
  part.send = [this, traffic](const auto& pass, const auto& tensors, ops::Emitter& emit) {
    send(traffic, pass, tensors, emit);
  };
  return part;
}

// Begins to receive a message when its predecessor is waited for. So the message arrives while the
// device computes, and its time-out does not include earlier work of other stages.
void ModelStage::receive(const std::shared_ptr<Traffic>& traffic, const graph::Pass& pass,
                         const std::vector<ops::DeviceTensor>& tensors, ops::Emitter& emit) {
  const size_t direction = index(pass.direction);
  Traffic::Incoming& incoming = traffic->incoming[direction];
  const std::vector<gpu::Buffer> parts = buffers_of(tensors);
  const size_t i = incoming.tags.size();
  gpu::Buffer& place = incoming.places[i % 2];
  if (!place) place = traffic->memory.allocate(bytes_of(parts));
  incoming.tags.push_back(tag_of(pass));
  const int from = mesh_.neighbour(Axis::pipeline, pass.direction == Direction::forward ? -1 : 1);
  const Work wait = work_of([this, traffic, direction, i, from] {
    Traffic::Incoming& messages = traffic->incoming[direction];
    Courier& courier = *in_[direction];
    if (i == 0) messages.numbers.clear();
    const size_t last = std::min(i + 2, messages.tags.size());
    for (size_t next = messages.numbers.size(); next < last; ++next)
      messages.numbers.push_back(
          courier.receive(bytes_at(messages.places[next % 2]), from, messages.tags[next]));
    courier.wait(messages.numbers[i]);
  });
  emit.add(begin_of(wait));
  emit.add(end_of(wait));
  copy_back(emit.commands(), parts, place);
}

void ModelStage::send(const std::shared_ptr<Traffic>& traffic, const graph::Pass& pass,
                      const std::vector<ops::DeviceTensor>& tensors, ops::Emitter& emit) {
  const size_t direction = index(pass.direction);
  const std::vector<gpu::Buffer> parts = buffers_of(tensors);
  gpu::Buffer& place = traffic->sent[static_cast<size_t>(pass.micro_batch)][direction];
  place = traffic->memory.allocate(bytes_of(parts));
  copy_out(emit.commands(), parts, place);
  const int to = mesh_.neighbour(Axis::pipeline, pass.direction == Direction::forward ? 1 : -1);
  emit.add(begin_of(work_of([this, traffic, direction, place, to, tag = tag_of(pass)] {
    out_[direction]->send(bytes_at(place), to, tag);
  })));
}

// Waits until this step's messages have been sent, since the next step reuses their memory.
void ModelStage::emit_end(ops::Emitter& emit) {
  const Work wait = work_of([this] {
    for (Courier* const courier : out_) courier->wait(courier->begun());
  });
  emit.add(begin_of(wait));
  emit.add(end_of(wait));
}

void ModelStage::emit_exchange(ops::Emitter& emit, const std::vector<gpu::Buffer>& parts,
                               Exchange exchange) {
  const auto arena = std::make_shared<gpu::Arena>(device_, gpu::MemoryUse::readback);
  emit_round_trip(
      emit.commands(), *arena, parts,
      [arena, exchange = std::move(exchange)](std::span<float> values) { exchange(values); });
}

// Sums the gradients in buckets, while other backward passes go on.
gpu::CommandList ModelStage::with_sums(const gpu::CommandList& commands,
                                       const graph::ParameterStore& store) {
  gpu::CommandList out, after;
  const auto arena = std::make_shared<gpu::Arena>(device_, gpu::MemoryUse::readback);
  const auto bytes = static_cast<uint64_t>(options_.bucket_mb * 1e6);
  weave(out, commands, 0, make_buckets(commands, store, bytes), [&](const Bucket& bucket) {
    const std::vector<gpu::Buffer> parts = parts_of(bucket, store);
    const gpu::Buffer memory = arena->allocate(bytes_of(parts));
    const Work work = work_of([this, arena, memory] { data_->all_reduce(floats_at(memory)); });
    copy_out(out, parts, memory);
    out.push_back(begin_of(work));
    after.push_back(end_of(work));
    copy_back(after, parts, memory);
  });
  append(out, after);
  return out;
}

gpu::CommandList ModelStage::with_update(const graph::Plan& plan, graph::ValueId loss,
                                         optim::Update& update, const graph::ParameterStore& store,
                                         const graph::Slices& slices, gpu::Kernels& kernels,
                                         gpu::Allocator& memory) {
  gpu::CommandList out = data_ ? with_sums(plan.commands(), store) : plan.commands();
  ops::Emitter emit(kernels, memory, out);
  emit_end(emit);
  if (tensor_) tensor_->emit_replicas(out, memory_, store, slices);
  const gpu::Buffer verdict = memory.allocate(sizeof(float));
  update.emit_verdict(emit, verdict);
  emit_exchange(emit, {plan.sums(), verdict}, [this](std::span<float> values) {
    all_.all_reduce(values);
    // Ranks that share tensors have the same rows, which must count once.
    const float share = 1 / static_cast<float>(mesh_.length(Axis::tensor));
    for (float& value : values) value *= share;
  });
  plan.emit_means(emit);
  const gpu::Buffer &of_loss = plan.tensor(loss).buffer, &values = plan.step_values();
  const optim::Update::Shared shared{verdict, plan.weight()};
  update.emit_gradients(emit, of_loss, values, &shared);
  optim::Peers peers = tensor_ ? tensor_->update_peers(emit, memory_, slices) : optim::Peers{};
  // The norm covers the gradients of all stages, which every pipeline line has.
  peers.join_norm = [&](const gpu::Buffer& norm) {
    emit_exchange(emit, {norm}, [this](std::span<float> own) {
      join_norm(all_, own[0], mesh_.length(Axis::data));
    });
  };
  update.emit_change(emit, of_loss, values, peers);
  return out;
}

gpu::CommandList ModelStage::with_means(const graph::Plan& plan, gpu::Kernels& kernels,
                                        gpu::Allocator& memory) {
  gpu::CommandList out = plan.commands();
  ops::Emitter emit(kernels, memory, out);
  emit_end(emit);
  plan.emit_means(emit);
  return out;
}

int64_t ModelStage::most(int64_t number) {
  all_.all_reduce(std::span(&number, 1), exchange::Reduction::max);
  return number;
}

void ModelStage::average_states(graph::ParameterStore& store) {
  if (data_) parallel::average_states(*data_, store);
}

void ModelStage::share(graph::ParameterStore& store) {
  if (data_) broadcast_weights(*data_, store);
}

std::vector<std::string> ModelStage::gather(const std::string& mine) {
  std::vector<uint64_t> sizes(static_cast<size_t>(stages()));
  const uint64_t own = mine.size();
  line_->all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(sizes)));
  if (stage() > 0) {
    line_->send(std::as_bytes(std::span(mine)), 0, 0);
    return {};
  }
  std::vector<std::string> out{mine};
  for (int from = 1; from < stages(); ++from) {
    out.emplace_back(sizes[static_cast<size_t>(from)], '\0');
    line_->receive(std::as_writable_bytes(std::span(out.back().data(), out.back().size())), from,
                   0);
  }
  return out;
}

}  // namespace etr::parallel
