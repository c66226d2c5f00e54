// Replays a plan step after step, with several steps in flight.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gpu/recording.h"
#include "graph/plan.h"

namespace etr::graph {

struct StepResult {
  uint64_t tag = 0;                         // the tag passed to submit()
  std::vector<std::vector<float>> outputs;  // all elements of each output, in the runner's order
  uint32_t not_finite = 0;                  // StepValues::not_finite after the step
  // Device time of this step, not counting overlap with the step before; 0 if the device has no
  // timestamps.
  double busy_seconds = 0;
};

// How a step's input gets into its tensor. The host fills upload memory, which is copied into the
// tensor, or from which `commands`, if set, compute it.
struct Feed {
  Feed(ValueId of) : value(of) {}  // NOLINT: a value is a feed that is copied
  ValueId value;
  bool on_device = false;              // no upload: Runner::set_input() gives it
  std::vector<uint64_t> upload_bytes;  // size of each part; empty: one part of the tensor's size
  bool in_place = false;  // the commands read little of the parts, directly in upload memory
  std::function<void(gpu::CommandList&, const std::vector<gpu::Buffer>& parts,
                     const ops::DeviceTensor& tensor)>
      commands;
};

// Owns a ring of slots. A slot has its own upload memory, read-back memory and recorded commands,
// so the host fills one while the device works on others and nothing is recorded again. Large
// inputs are copied on a separate queue, if the device has one, while the step before computes.
// Used by one thread at a time. Every submitted step yields exactly one result, in order.
class Runner {
 public:
  static constexpr int kSlots = 3;

  // The work of a step between its feeds and the reading of its outputs: a plan's commands, with or
  // without an update and the commands woven into them.
  struct Work {
    gpu::CommandList commands;
    bool updates = false;  // checks the gradients and writes the result into the step's values
    std::vector<gpu::Buffer> also_read = {};  // read after the outputs, which StepResult has first
  };

  // `feeds` are inputs and `outputs` values of the plan's graph.
  Runner(gpu::Kernels& kernels, const Plan& plan, const std::vector<Feed>& feeds,
         std::vector<ValueId> outputs, const Work& work, int slots = kSlots);
  ~Runner();

  // Returns the upload memory of the next step's input `i`, or of its parts. Waits while every slot
  // is in flight and then takes in that slot's result.
  std::byte* input(size_t i) { return parts(i).front(); }
  std::vector<std::byte*> parts(size_t i);

  // Copies the next step's input `i`, which must be `on_device`, from `from`, repeating it if it is
  // shorter. Its contents must not change until the step is over.
  void set_input(size_t i, const gpu::Buffer& from);

  // Waits for at most `seconds` and returns whether the next step's input() will not block.
  bool ready_within(double seconds);

  // Starts the step whose inputs have been filled.
  void submit(const ops::StepValues& values, uint64_t tag);

  // Returns the commands that copy the inputs filled for the next step into their tensors. The
  // caller runs them instead of submitting the step.
  gpu::CommandList input_commands(const ops::StepValues& values);

  // Returns the finished steps, oldest first; with `wait_all` waits for everything in flight first.
  std::vector<StepResult> take_results(bool wait_all);

  // Blocks until nothing is in flight. The results remain for take_results().
  void wait();

  // Blocks until the oldest step in flight has ended, if there is one.
  void wait_oldest();

  int in_flight() const;

 private:
  struct Slot;

  Slot& free_slot();
  size_t parts_of(size_t i) const;
  void record(Slot& slot, double seconds);
  void record_in(Slot& slot, int parts);
  void start(Slot& slot);
  void harvest(Slot& slot);
  gpu::CommandList device_copies(const Slot& slot) const;
  void submit_device_copies(Slot& slot);

  gpu::DevicePtr device_;
  gpu::Arena upload_, landing_, readback_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<gpu::Buffer> tensors_;  // the inputs
  size_t next_ = 0;                   // slot of the next step
  bool compared_ = false;             // the first step has started and compared kernels, if wanted
  // On the device's clock: begin of the last step, end of all steps.
  double busy_from_ = 0, busy_until_ = 0;
  std::vector<StepResult> results_;
};

}  // namespace etr::graph
