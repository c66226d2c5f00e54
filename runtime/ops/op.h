// What an operation is: a constant spec with options, a shape rule, and the dispatches of its
// forward and backward pass.
//
// A new op is ops/NAME.cpp with `extern const OpSpec NAME_op`, shaders/NAME*.comp,
// tests/ops/NAME_test.cpp, and one line in ops/op_list.inc.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/options.h"
#include "gpu/kernel.h"
#include "ops/peers.h"
#include "tensor/tensor.h"

namespace etr::ops {

// A tensor in device memory; 4-byte elements (f32, or i32 for labels).
struct DeviceTensor {
  gpu::Buffer buffer;
  Shape shape;

  explicit operator bool() const { return static_cast<bool>(buffer); }
  uint32_t count() const { return static_cast<uint32_t>(element_count(shape)); }
};

// What changes from step to step; lives in a small device buffer (StepValues in
// shaders/common.glsl).
struct StepValues {
  uint32_t step = 0;
  uint32_t valid_rows = 0;
  uint32_t seed_lo = 0, seed_hi = 0;
  float learning_rate = 0;
  uint32_t update = 1;  // number of the update that this step ends, from 1; 0: it only accumulates
  uint32_t flags = kFirstOfUpdate | kFreshBatch;
  uint32_t not_finite = 0;  // set by the device where a gradient had no finite value; kHopeless
  // Where the batch is a part of one that several ranks share: the row of that at which it begins, and how many rows the plan
  // has. What is random of an element depends on its place in the shared batch.
  uint32_t first_row = 0, rows = 1;
  // Hyperparameters (optim/hyperparameters.h): the shares of the first and the second running mean that an update keeps, and of
  // each 1 - share and log(share), which are made in double because floats near 1 would lose them.
  float kept_a = 0, kept_b = 0, rest_a = 1, rest_b = 1, log_a = -1e30f, log_b = -1e30f;
  float weight_decay = 0;
  float label_smoothing = 0;

  static constexpr uint32_t kFirstOfUpdate = 1, kFreshBatch = 2;
  static constexpr uint32_t kHopeless = 2;  // at the least loss scale, too
};
static_assert(sizeof(StepValues) == 72);

// What matrix products and convolutions take: operands rounded to bfloat16 or float16, summed in fp32. All else,
// weights and results among it, is fp32 (Micikevicius et al. 2018). Values are those of shaders/round_to.comp.
enum class Precision : uint32_t { fp32, bf16, fp16 };

constexpr uint32_t kMostGroups = 65535;  // what every device takes along an axis

// Invocations of a workgroup over channels.
uint32_t channel_lanes(const gpu::Device& device);

// Slices into which a kernel over [rows, channels] splits its rows: an invocation walks down one slice of one channel.
uint32_t row_slices(const gpu::Device& device, uint32_t rows, uint32_t channels);

// Of a kernel whose slices each leave a sum, which emit_sum_slices() has yet to add.
uint32_t sum_slices(const gpu::Device& device, uint32_t rows, uint32_t channels);

// Where an op's dispatches go while a plan is made.
class Emitter {
 public:
  Emitter(gpu::Kernels& kernels, gpu::Allocator& memory, gpu::CommandList& commands)
      : kernels_(kernels), memory_(memory), commands_(commands) {}

  // `label` (the op's place in the model) names the commands from here on.
  void set_label(std::string label) { label_ = std::move(label); }

  // Of the products from here on.
  void set_precision(Precision precision) { precision_ = precision; }
  Precision precision() const { return precision_; }

  // Whom the ops from here on compute with.
  void set_peers(const Peers& peers) { peers_ = peers; }
  const Peers& peers() const { return peers_; }

  template <typename Push>
  void dispatch(const std::string& shader, std::vector<gpu::Binding> bindings, const Push& push,
                std::array<uint32_t, 3> groups, const std::vector<uint32_t>& constants = {}) {
    const gpu::Kernel& kernel = kernels_.get(shader, constants, bindings.size(), sizeof(Push));
    add(gpu::Dispatch{label_, &kernel, std::move(bindings), gpu::push_bytes(push), groups});
  }

  // A grid-stride kernel over `count` elements (FOR_EACH in shaders/common.glsl).
  template <typename Push>
  void for_each(const std::string& shader, std::vector<gpu::Binding> bindings, const Push& push,
                uint64_t count, const std::vector<uint32_t>& constants = {}) {
    dispatch(shader, std::move(bindings), push, {groups_over(count), 1, 1}, constants);
  }

  // The same with a kernel that is compiled here; it has no push constants.
  void for_each_from_source(const std::string& source, std::vector<gpu::Binding> bindings,
                            uint64_t count) {
    const gpu::Kernel& kernel =
        kernels_.from_source(source, cat("the source of '", label_, "'"), bindings.size());
    add(gpu::Dispatch{label_, &kernel, std::move(bindings), {}, {groups_over(count), 1, 1}});
  }

  // A kernel with a workgroup for each of `rows` rows of `length` elements (shaders/row.glsl).
  template <typename Push>
  void for_rows(const std::string& shader, std::vector<gpu::Binding> bindings, const Push& push,
                uint32_t rows, uint32_t length, std::vector<uint32_t> constants = {}) {
    constants.insert(constants.begin(), row_lanes(length));
    dispatch(shader, std::move(bindings), push, {std::clamp(rows, 1u, kMostGroups), 1, 1},
             constants);
  }

  // A kernel whose neighbouring invocations own neighbouring channels (CHANNEL in common.glsl),
  // over y by z workgroups.
  template <typename Push>
  void for_channels(const std::string& shader, std::vector<gpu::Binding> bindings, const Push& push,
                    uint32_t channels, uint32_t y, uint32_t z = 1,
                    std::vector<uint32_t> constants = {}) {
    constants.insert(constants.begin(), lanes());
    dispatch(shader, std::move(bindings), push, {gpu::div_up(channels, lanes()), y, z}, constants);
  }

  // Of the dispatch that was emitted last: what it may become one with.
  void tell(std::shared_ptr<const gpu::Fusible> what) {
    std::get<gpu::Dispatch>(commands_.back()).fusible = std::move(what);
  }

  // Operations of the dispatch that was emitted last, for profiles.
  void count_flops(double flops) { std::get<gpu::Dispatch>(commands_.back()).flops = flops; }

  void add(gpu::Command command) { commands_.push_back(std::move(command)); }

  gpu::CommandList& commands() const { return commands_; }  // so far

  // Device memory that lives as long as the plan; contents undefined.
  DeviceTensor scratch(const Shape& shape);

  gpu::Kernels& kernels() const { return kernels_; }
  const gpu::DevicePtr& device() const { return kernels_.device(); }

 private:
  // Workgroups of a grid-stride kernel.
  static uint32_t groups_over(uint64_t count) {
    return std::clamp(gpu::div_up(count, 64), 1u, 4096u);
  }
  uint32_t lanes() const { return channel_lanes(*device()); }
  uint32_t row_lanes(uint32_t length) const;  // of a workgroup that shares a row

  gpu::Kernels& kernels_;
  gpu::Allocator& memory_;
  gpu::CommandList& commands_;
  std::string label_;
  Precision precision_ = Precision::fp32;
  Peers peers_;
};

// Everything one node of a graph hands to its op while the plan is made.
struct OpCall {
  const Options& options;
  uint32_t node =
      0;  // keys the op's random numbers; its position in the graph, unless that was split
  bool training = false;
  std::vector<DeviceTensor> inputs;  // in the spec's order; optional trailing ones may be missing
  DeviceTensor output;
  std::vector<DeviceTensor> saved;  // what the shape rule asked to keep for the backward pass
  gpu::Buffer step;                 // StepValues

  // Backward only. Gradients to write; empty where nobody needs one.
  DeviceTensor output_grad;
  std::vector<DeviceTensor> input_grads;

  // The output was thrown away and is wanted again: `saved` of ops with state is still there, and their
  // state must not change a second time.
  bool recomputed = false;
};

struct OpShapes {
  Shape output;
  std::vector<Shape> saved;
};

// Whether an op's input takes a gradient, is data without one, or is state the op updates in
// training.
enum class InputRole { differentiable, constant, state };

struct OpInput {
  const char* name;
  InputRole role = InputRole::differentiable;
  bool optional = false;  // only trailing inputs
  DType dtype = DType::f32;
};

struct OpSpec {
  const char* name;
  const char* doc;
  std::span<const OpInput> inputs;
  Schema options;
  // Throws Error(invalid_argument) that names the shapes which do not fit.
  OpShapes (*shapes)(const Options&, const std::vector<Shape>& inputs);
  void (*forward)(const OpCall&, Emitter&);
  void (*backward)(const OpCall&, Emitter&);  // nullptr: not differentiable
  bool view = false;  // the output is the first input under another shape: no copy, no dispatch
};

// All ops, in the order of op_list.inc.
std::span<const OpSpec* const> op_table();

// Throws Error(not_found) that names the nearest op.
const OpSpec& find_op(const std::string& name);

// "conv2d: input must be [N, H, W, C], not [3, 4]" where the rank differs.
void require_rank(const char* op, const char* input, const Shape& shape, size_t rank,
                  const char* expected);

// Throws unless in[0] is [..., classes] and in[1] (labels), with in[2] (weights) where given, [...].
void require_labels(const char* op, const std::vector<Shape>& in);

inline gpu::Binding reads(const DeviceTensor& t) { return {t.buffer, gpu::Access::read}; }
inline gpu::Binding writes(const DeviceTensor& t) { return {t.buffer, gpu::Access::write}; }
inline gpu::Binding updates(const DeviceTensor& t) { return {t.buffer, gpu::Access::read_write}; }

}  // namespace etr::ops
