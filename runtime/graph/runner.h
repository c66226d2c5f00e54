// Replays a plan step after step, several steps in flight.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gpu/recording.h"
#include "graph/plan.h"

namespace etr::graph {

struct StepResult {
  uint64_t tag = 0;                         // as given to submit()
  std::vector<std::vector<float>> outputs;  // all elements of each output, in the runner's order
  uint32_t not_finite = 0;                  // what the device left of StepValues::not_finite
  // Device time of this step, without what overlaps the one before; 0 where the device has no timestamps.
  double busy_seconds = 0;
};

// How a step's input gets into its tensor: the host fills upload memory, which is copied; or, where
// `commands` is set, which those commands make a tensor of.
struct Feed {
  Feed(ValueId of) : value(of) {}  // NOLINT: a value is a feed that is copied
  ValueId value;
  bool on_device = false;              // neither: Runner::bring() says where it lies
  std::vector<uint64_t> upload_bytes;  // of each part; empty: one, as long as the tensor
  bool in_place = false;  // the commands read little of the parts, where the host has put it
  std::function<void(gpu::CommandList&, const std::vector<gpu::Buffer>& parts,
                     const ops::DeviceTensor& tensor)>
      commands;
};

// Owns a ring of slots. A slot has its own upload memory, read-back memory and recorded commands,
// so the host fills one while the device works on others and nothing is recorded again. Large inputs are copied by a queue of
// their own, where the device has one, while the step before computes.
// Used by one thread at a time. Every submitted step yields exactly one result, in order.
class Runner {
 public:
  static constexpr int kSlots = 3;

  // What a step does between its feeds and the reading of its outputs: a plan's commands, or these and an update, with what
  // is woven into them.
  struct Work {
    gpu::CommandList commands;
    bool updates = false;  // looks at the gradients, and leaves in the step's values what it found
  };

  // `feeds` are inputs of the plan's graph, `outputs` values of it.
  Runner(gpu::Kernels& kernels, const Plan& plan, const std::vector<Feed>& feeds,
         std::vector<ValueId> outputs, const Work& work, int slots = kSlots);
  ~Runner();

  // Upload memory of the next step's input `i`, or of its parts. Waits while every slot is in flight; what that step
  // computed is then in the results.
  std::byte* input(size_t i) { return parts(i).front(); }
  std::vector<std::byte*> parts(size_t i);

  // Has the next step's input `i`, one that is `on_device`, copied from `from`, several times where that is shorter.
  // Its contents must stay until the step is over.
  void bring(size_t i, const gpu::Buffer& from);

  // Whether the next step's input() needs no waiting, after at most `seconds`.
  bool ready_within(double seconds);

  // Starts the step whose inputs were filled.
  void submit(const ops::StepValues& values, uint64_t tag);

  // The commands that bring in the inputs which were filled for the next step, to be run in its stead.
  gpu::CommandList feeding(const ops::StepValues& values);

  // Finished steps so far, oldest first; `wait_all` first waits for everything in flight.
  std::vector<StepResult> take_results(bool wait_all);

  // Blocks until nothing is in flight; the results stay to be taken.
  void wait();

  int in_flight() const;

 private:
  struct Slot;

  Slot& free_slot();
  size_t parts_of(size_t i) const;
  void record(Slot& slot, double seconds);
  void record_in(Slot& slot, int parts);
  void start(Slot& slot);
  void harvest(Slot& slot);
  gpu::CommandList bringing(const Slot& slot) const;
  void bring_in(Slot& slot);

  gpu::DevicePtr device_;
  gpu::Arena upload_, landing_, readback_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<gpu::Buffer> tensors_;       // the inputs
  size_t next_ = 0;                        // slot of the next step
  bool compared_ = false;                  // the first step, and with it the kernels
  double busy_from_ = 0, busy_until_ = 0;  // by its clock: the last step's begin, all steps' end
  std::vector<StepResult> results_;
};

}  // namespace etr::graph
