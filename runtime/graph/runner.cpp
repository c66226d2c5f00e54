#include "graph/runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "gpu/comparison.h"

namespace etr::graph {

struct Runner::Slot {
  std::vector<std::vector<gpu::Buffer>> inputs;  // each in parts
  std::vector<gpu::Copy> uploads;  // copies of the inputs on the separate queue, if used
  std::unique_ptr<gpu::Upload> upload;
  std::vector<gpu::Buffer> outputs;
  gpu::Buffer step, step_after;  // the step's values before and after it
  gpu::CommandList commands;
  size_t input_commands = 0;  // number of leading commands that copy the inputs into place
  std::unique_ptr<gpu::Recording> recording;
  uint32_t kernels_replaced = 0;      // the device's count when it was recorded
  std::vector<gpu::Buffer> sources;   // of the inputs that are `on_device`
  std::vector<gpu::Buffer> recorded;  // the sources that `device_copies` was recorded for
  std::unique_ptr<gpu::Recording> device_copies;
  uint64_t tag = 0;
  // Its first step was timed, and it was recorded again if that was too long.
  bool measured = false;
};

Runner::Runner(gpu::Kernels& kernels, const Plan& plan, const std::vector<Feed>& feeds,
               std::vector<ValueId> outputs, const Work& work, int slots)
    : device_(kernels.device()),
      upload_(device_, gpu::MemoryUse::upload),
      landing_(device_, gpu::MemoryUse::landing),
      readback_(device_, gpu::MemoryUse::readback) {
  const auto part_bytes = [&](const Feed& feed) {
    return feed.upload_bytes.empty() ? std::vector{plan.tensor(feed.value).buffer.size_bytes}
                                     : feed.upload_bytes;
  };
  uint64_t bytes = 0;  // bytes that a step uploads
  for (const Feed& feed : feeds)
    for (const uint64_t part : part_bytes(feed))
      bytes += feed.on_device || feed.in_place ? 0 : part;
  const bool uploads_apart = gpu::uploads_apart(*device_, bytes);
  for (int s = 0; s < slots; ++s) {
    auto slot = std::make_unique<Slot>();
    gpu::CommandList commands;
    slot->step = upload_.allocate(sizeof(ops::StepValues));
    commands.push_back(gpu::Copy{slot->step, plan.step_values()});
    for (const Feed& feed : feeds) {
      const ops::DeviceTensor& tensor = plan.tensor(feed.value);
      std::vector<gpu::Buffer> parts, arrived;
      const bool apart = uploads_apart && !feed.in_place;
      if (s == 0) tensors_.push_back(tensor.buffer);
      if (feed.on_device) {
        slot->inputs.emplace_back();
        continue;
      }
      for (const uint64_t part : part_bytes(feed)) {
        parts.push_back(upload_.allocate(part));
        arrived.push_back(apart ? landing_.allocate(part) : parts.back());
        if (apart) slot->uploads.push_back({parts.back(), arrived.back()});
      }
      if (feed.commands)
        feed.commands(commands, arrived, tensor);
      else
        commands.push_back(gpu::Copy{arrived[0], tensor.buffer});
      slot->inputs.push_back(std::move(parts));
    }
    slot->sources.resize(feeds.size());
    slot->input_commands = commands.size();
    commands.insert(commands.end(), work.commands.begin(), work.commands.end());
    std::vector<gpu::Buffer> read;
    for (const ValueId id : outputs) read.push_back(plan.tensor(id).buffer);
    read.insert(read.end(), work.also_read.begin(), work.also_read.end());
    for (const gpu::Buffer& source : read) {
      slot->outputs.push_back(readback_.allocate(source.size_bytes));
      commands.push_back(gpu::Copy{source, slot->outputs.back()});
    }
    if (work.updates) {
      slot->step_after = readback_.allocate(sizeof(ops::StepValues));
      commands.push_back(gpu::Copy{plan.step_values(), slot->step_after});
    }
    slot->commands = std::move(commands);
    if (!slot->uploads.empty())
      slot->upload = std::make_unique<gpu::Upload>(device_, slot->uploads);
    record(*slot, 0);
    slots_.push_back(std::move(slot));
  }
}

Runner::~Runner() = default;

// Records the slot in submissions of tolerable length, by the step's time if it is known.
void Runner::record(Slot& slot, double seconds) {
  const int parts = gpu::parts_for(*device_, slot.commands, seconds);
  if (slot.recording && parts == slot.recording->parts()) return;
  record_in(slot, parts);
}

// If it throws, the slot keeps its recording.
void Runner::record_in(Slot& slot, int parts) {
  const auto replaced = gpu::kernels_replaced(*device_);
  slot.recording = std::make_unique<gpu::Recording>(device_, slot.commands, /*timed=*/false, parts);
  slot.kernels_replaced = replaced;
}

void Runner::harvest(Slot& slot) {
  if (!slot.recording->in_flight()) return;
  // The recording last: while a wait that failed can be repeated, the step is still in flight.
  if (slot.upload) slot.upload->wait();
  if (slot.device_copies) slot.device_copies->wait();
  slot.recording->wait();
  ops::StepValues after;
  if (slot.step_after) std::memcpy(&after, slot.step_after.host, sizeof after);
  // Do not count the overlap with the step before, which may still have been running.
  const gpu::Recording& done = *slot.recording;
  if (done.begin_seconds() < busy_from_) busy_until_ = 0;  // the device's clock has wrapped
  busy_from_ = done.begin_seconds();
  // For host turns.
  const double waited = done.end_seconds() - done.begin_seconds() - done.busy_seconds();
  const double busy = done.end_seconds() - std::max(busy_from_, busy_until_) - waited;
  busy_until_ = std::max(busy_until_, done.end_seconds());
  StepResult result{slot.tag, {}, after.not_finite, std::max(busy, 0.0)};
  for (const gpu::Buffer& output : slot.outputs) {
    result.outputs.emplace_back(output.size_bytes / sizeof(float));
    std::memcpy(result.outputs.back().data(), output.host, output.size_bytes);
  }
  results_.push_back(std::move(result));
  if (done.has_run() && std::exchange(slot.measured, true) == false)
    record(slot, done.busy_seconds());
}

Runner::Slot& Runner::free_slot() {
  Slot& slot = *slots_[next_];
  harvest(slot);
  return slot;
}

bool Runner::ready_within(double seconds) { return slots_[next_]->recording->done_within(seconds); }

std::vector<std::byte*> Runner::parts(size_t i) {
  std::vector<std::byte*> out;
  for (const gpu::Buffer& part : free_slot().inputs[i]) out.push_back(part.host);
  return out;
}

void Runner::set_input(size_t i, const gpu::Buffer& from) { free_slot().sources[i] = from; }

size_t Runner::parts_of(size_t i) const { return slots_.front()->inputs[i].size(); }

// Returns the copies of the step's `on_device` inputs.
gpu::CommandList Runner::device_copies(const Slot& slot) const {
  gpu::CommandList out;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const gpu::Buffer &from = slot.sources[i], &to = tensors_[i];
    for (uint64_t at = 0; from && at < to.size_bytes; at += from.size_bytes) {
      const uint64_t bytes = std::min(from.size_bytes, to.size_bytes - at);
      out.push_back(gpu::Copy{from.slice(0, bytes), to.slice(at, bytes)});
    }
  }
  return out;
}

// Submits these copies separately before the slot's recording, which stays as it is.
void Runner::submit_device_copies(Slot& slot) {
  // Still in flight only if the following step could not be submitted.
  if (slot.device_copies) slot.device_copies->wait();
  if (!slot.device_copies || slot.recorded != slot.sources) {
    const gpu::CommandList commands = device_copies(slot);
    if (commands.empty()) return;
    slot.device_copies = std::make_unique<gpu::Recording>(device_, commands);
    slot.recorded = slot.sources;
  }
  // The step before may have host turns and read its inputs after them.
  slot.device_copies->submit(nullptr, slot.recording->has_host_turns());
}

void Runner::start(Slot& slot) {
  if (!std::exchange(compared_, true) && gpu::wants_comparison(*device_, slot.commands)) {
    if (slot.device_copies) slot.device_copies->wait();
    gpu::CommandList commands(slot.uploads.begin(), slot.uploads.end());
    commands.insert(commands.end(), slot.commands.begin(), slot.commands.end());
    gpu::run_compared(device_, commands);
    slot.recording->submit_nothing();
    return;
  }
  if (slot.kernels_replaced != gpu::kernels_replaced(*device_))
    record_in(slot, slot.recording->parts());
  if (slot.upload) slot.upload->submit();
  slot.recording->submit(slot.upload.get());
}

void Runner::submit(const ops::StepValues& values, uint64_t tag) {
  Slot& slot = free_slot();
  std::memcpy(slot.step.host, &values, sizeof values);
  slot.tag = tag;
  submit_device_copies(slot);
  start(slot);
  next_ = (next_ + 1) % slots_.size();
}

gpu::CommandList Runner::input_commands(const ops::StepValues& values) {
  Slot& slot = free_slot();
  std::memcpy(slot.step.host, &values, sizeof values);
  gpu::CommandList out = device_copies(slot);
  out.insert(out.end(), slot.uploads.begin(), slot.uploads.end());
  out.insert(out.end(), slot.commands.begin(),
             slot.commands.begin() + static_cast<ptrdiff_t>(slot.input_commands));
  return out;
}

void Runner::wait() {
  for (size_t i = 0; i < slots_.size(); ++i) harvest(*slots_[(next_ + i) % slots_.size()]);
}

void Runner::wait_oldest() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = *slots_[(next_ + i) % slots_.size()];
    if (slot.recording->in_flight()) return harvest(slot);
  }
}

std::vector<StepResult> Runner::take_results(bool wait_all) {
  for (size_t i = 0; i < slots_.size(); ++i) {  // oldest first: next_ is the longest in flight
    Slot& slot = *slots_[(next_ + i) % slots_.size()];
    if (!slot.recording->in_flight()) continue;
    if (!wait_all && !slot.recording->done()) break;
    harvest(slot);
  }
  return std::exchange(results_, {});
}

int Runner::in_flight() const {
  int count = 0;
  for (const auto& slot : slots_) count += slot->recording->in_flight();
  return count;
}

}  // namespace etr::graph
