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

// The values that change from step to step. They lie in a small device buffer (StepValues in
// shaders/common.glsl).
struct StepValues {
  uint32_t step = 0;
  uint32_t valid_rows = 0;
  uint32_t seed_lo = 0, seed_hi = 0;
  float learning_rate = 0;
  uint32_t update = 1;  // number, from 1, of the update that this step ends; 0: it only accumulates
  uint32_t flags = kFirstOfUpdate | kFreshBatch;
  uint32_t not_finite = 0;  // set by the device if a gradient is not finite; may be kHopeless
  // If several ranks share a batch: the row of the shared batch at which this rank's rows begin,
  // and the number of rows of the plan. An element's random numbers depend on its place in the
  // shared batch.
  uint32_t first_row = 0, rows = 1;
  // Hyperparameters (optim/hyperparameters.h): the shares of the first and the second running mean
  // that an update keeps, and of each 1 - share and log(share). These are computed in double
  // because floats near 1 would lose them.
  float kept_a = 0, kept_b = 0, rest_a = 1, rest_b = 1, log_a = -1e30f, log_b = -1e30f;
  float weight_decay = 0;
  float label_smoothing = 0;

  static constexpr uint32_t kFirstOfUpdate = 1, kFreshBatch = 2;
  static constexpr uint32_t kHopeless = 2;  // not finite even at the smallest loss scale
};
static_assert(sizeof(StepValues) == 72);

// The precision of matrix products and convolutions: operands are rounded to bfloat16 or float16
// and summed in fp32. Everything else, including weights and results, is fp32 (Micikevicius et al.
// 2018). The values are those of shaders/round_to.comp.
enum class Precision : uint32_t { fp32, bf16, fp16 };

constexpr uint32_t kMostGroups = 65535;  // guaranteed on every device, along each axis

// Returns the number of invocations of a workgroup over channels.
uint32_t channel_lanes(const gpu::Device& device);

// Returns `lanes`, doubled until a grid over `channels` has no more workgroups along x than the
// device allows, or until a workgroup would be too large.
uint32_t lanes_over(const gpu::Device& device, uint32_t channels, uint32_t lanes);

// Returns how many rows of `channels` a kernel of a CPU device has to treat as one, so that
// invocations with two neighbouring columns each have an even number of columns and fill all lanes.
uint32_t rows_side_by_side(const gpu::Device& device, uint32_t channels);

// Returns whether kernels may access the tensor in pairs (shaders/pair.glsl).
inline bool begins_with_a_pair(const gpu::Buffer& buffer) { return buffer.offset % 8 == 0; }

// Returns the number of slices into which a kernel over [rows, channels] splits its rows. An
// invocation walks down one slice of one channel.
uint32_t row_slices(const gpu::Device& device, uint32_t rows, uint32_t channels);

// Same for a kernel whose slices each leave a sum for emit_sum_slices() to add.
uint32_t sum_slices(const gpu::Device& device, uint32_t rows, uint32_t channels);

// The workgroup of a kernel that sums rows (shaders/tile_sum.glsl): channels by streams of rows.
struct SumTile {
  uint32_t channels, streams;
};
SumTile sum_tile(const gpu::Device& device, uint32_t channels);

// sum_slices() for such a kernel.
uint32_t tile_slices(const gpu::Device& device, uint32_t rows, uint32_t channels);

// Collects the dispatches of ops while a plan is made.
class Emitter {
 public:
  Emitter(gpu::Kernels& kernels, gpu::Allocator& memory, gpu::CommandList& commands)
      : kernels_(kernels), memory_(memory), commands_(commands) {}

  // Labels the commands from here on with the op's place in the model.
  void set_label(std::string label) { label_ = std::move(label); }
  const std::string& label() const { return label_; }

  // Sets the precision of the products from here on.
  void set_precision(Precision precision) { precision_ = precision; }
  Precision precision() const { return precision_; }

  // Sets the devices with which the ops from here on compute together.
  void set_peers(const Peers& peers) { peers_ = peers; }
  const Peers& peers() const { return peers_; }

  template <typename Push>
  void dispatch(const std::string& shader, std::vector<gpu::Binding> bindings, const Push& push,
                std::array<uint32_t, 3> groups, const std::vector<uint32_t>& constants = {}) {
    const gpu::Kernel& kernel = kernels_.get(shader, constants, bindings.size(), sizeof(Push));
    add(gpu::Dispatch{label_, &kernel, std::move(bindings), gpu::push_bytes(push), groups});
  }

  // Emits a grid-stride kernel over `count` elements (FOR_EACH in shaders/common.glsl).
  template <typename Push>
  void for_each(const std::string& shader, std::vector<gpu::Binding> bindings, const Push& push,
                uint64_t count, const std::vector<uint32_t>& constants = {}) {
    dispatch(shader, std::move(bindings), push, {groups_over(count), 1, 1}, constants);
  }

  // Same with a kernel that is compiled from source here and has no push constants.
  void for_each_from_source(const std::string& source, std::vector<gpu::Binding> bindings,
                            uint64_t count) {
    const gpu::Kernel& kernel =
        kernels_.from_source(source, cat("the source of '", label_, "'"), bindings.size());
    add(gpu::Dispatch{label_, &kernel, std::move(bindings), {}, {groups_over(count), 1, 1}});
  }

  // Returns how many elements an invocation of such a kernel takes, one after another.
  static uint64_t in_turn(uint64_t count) {
    return gpu::div_up(count, uint64_t{64} * groups_over(count));
  }

  // Emits a kernel with a workgroup for each of `rows` rows of `length` elements
  // (shaders/row.glsl). It goes over a row at most `passes` times.
  template <typename Push>
  void for_rows(const std::string& shader, std::vector<gpu::Binding> bindings, const Push& push,
                uint32_t rows, uint32_t length, std::vector<uint32_t> constants = {},
                uint32_t passes = 4) {
    require_iterations((1 + passes * (1 + uint64_t{gpu::div_up(length, row_lanes(length))})) *
                       gpu::div_up(rows, kMostGroups));
    constants.insert(constants.begin(), row_lanes(length));
    dispatch(shader, std::move(bindings), push, {std::clamp(rows, 1u, kMostGroups), 1, 1},
             constants);
  }

  // Emits a kernel whose neighbouring invocations own neighbouring channels (CHANNEL in
  // common.glsl), over y by z workgroups.
  template <typename Push>
  void for_channels(const std::string& shader, std::vector<gpu::Binding> bindings, const Push& push,
                    uint32_t channels, uint32_t y, uint32_t z = 1,
                    std::vector<uint32_t> constants = {}) {
    const uint32_t lanes = lanes_over(*device(), channels, channel_lanes(*device()));
    constants.insert(constants.begin(), lanes);
    dispatch(shader, std::move(bindings), push, {gpu::div_up(channels, lanes), y, z}, constants);
  }

  // Emits a kernel that sums the rows of channels in `slices` slices.
  template <typename Push>
  void for_tiles(const std::string& shader, std::vector<gpu::Binding> bindings, const Push& push,
                 uint32_t channels, uint32_t slices, SumTile tile) {
    dispatch(shader, std::move(bindings), push, {gpu::div_up(channels, tile.channels), slices, 1},
             {tile.channels, tile.streams});
  }

  // Throws Error(unsupported) if the driver ends the loops of an invocation before so many
  // iterations, which would give wrong numbers. Lavapipe counts those of all loops, and one more
  // each time that a loop within another ends. `instead` says what a user may do besides updating
  // the driver.
  void require_iterations(uint64_t iterations,
                          const std::string& instead = "make the layer smaller") const;

  // Divides `rows` into at least `slices` slices, and into more if a slice would otherwise take
  // more iterations than the driver allows. Returns their number. A row takes `each` iterations.
  uint32_t slices_within(uint32_t slices, uint32_t rows, uint64_t each) const;

  // Attaches to the last emitted dispatch what it computes, so that it can be fused with others.
  void set_fusible(std::shared_ptr<const gpu::Fusible> what) {
    std::get<gpu::Dispatch>(commands_.back()).fusible = std::move(what);
  }

  // Sets the number of operations of the last emitted dispatch, for profiles.
  void count_flops(double flops) { std::get<gpu::Dispatch>(commands_.back()).flops = flops; }

  void add(gpu::Command command) { commands_.push_back(std::move(command)); }

  gpu::CommandList& commands() const { return commands_; }  // so far

  // Allocates device memory that lives as long as the plan. Its contents are undefined.
  DeviceTensor scratch(const Shape& shape);

  gpu::Kernels& kernels() const { return kernels_; }
  const gpu::DevicePtr& device() const { return kernels_.device(); }

 private:
  // Workgroups of a grid-stride kernel.
  static uint32_t groups_over(uint64_t count) {
    return std::clamp(gpu::div_up(count, 64), 1u, 4096u);
  }
  uint32_t row_lanes(uint32_t length) const;  // invocations of a workgroup that shares a row

  gpu::Kernels& kernels_;
  gpu::Allocator& memory_;
  gpu::CommandList& commands_;
  std::string label_;
  Precision precision_ = Precision::fp32;
  Peers peers_;
};

// Everything that a graph's node passes to its op while the plan is made.
struct OpCall {
  const Options& options;
  // Keys the op's random numbers. The node's position in the graph, unless the graph was split.
  uint32_t node = 0;
  bool training = false;
  std::vector<DeviceTensor> inputs;  // in the spec's order; optional trailing ones may be missing
  DeviceTensor output;
  std::vector<DeviceTensor> saved;  // tensors that `shapes` asked to keep for the backward pass
  gpu::Buffer step;                 // StepValues

  // Backward only: the gradient of the output, and the gradients to write; one that nobody needs is
  // empty.
  DeviceTensor output_grad;
  std::vector<DeviceTensor> input_grads;

  // The output was discarded and is computed again. `saved` of ops with state is still valid, and
  // their state must not change a second time.
  bool recomputed = false;
};

struct OpShapes {
  Shape output;
  std::vector<Shape> saved;
};

// Whether an op's input takes a gradient, is data without one, or is state that the op updates in
// training.
enum class InputRole { differentiable, constant, state };

struct OpInput {
  const char* name;
  InputRole role = InputRole::differentiable;
  bool optional = false;  // only trailing inputs
  DType dtype = DType::f32;
};

class OnnxNode;  // ops/onnx_node.h

// How PyTorch lays out a weight: as here, [columns, rows] of a matrix here, or [F, C, KH, KW] of
// [KH, KW, C, F].
enum class WeightLayout { same, transposed, convolution };

// Which axes an op's output has, given those of its inputs. PyTorch keeps the channels of an image
// before its places; from this rule follows in which order PyTorch has the features of a flattened
// image (nn/pytorch_order.h).
enum class AxesRule {
  untold,    // if all inputs have the same axes in PyTorch, so has the output; else unknown
  elements,  // those of the inputs: an element depends on the same feature of each input
  parts,     // those of input 0, but an element may depend on other features of it
  rows,      // those of input 0, whose rows of features are treated as a whole
  new_rows,  // same, with new features; input 1, if its layout is transposed, maps old to new ones
  image,     // [N, H, W, C], as in input 0
  joined,    // those of the inputs, which are concatenated
  reshaped,  // the elements of input 0 in another shape
  permuted,  // those of input 0, in the order that the option `axes` says
  reduced,   // those of input 0 without some
};

// How ranks that share a model's weights compute slices of an op (graph/split.h).
enum class SliceRule {
  whole,     // they cannot
  product,   // input 1 is [features, units], input 2 a bias: each rank computes some units, or sums
             // over some features. Options: relu, and transposed if input 1 is another op's table
  elements,  // each rank computes some elements, if all inputs have the output's shape
  random_elements,  // same; the options width and begin say of what the input is a slice
  heads,            // each rank computes some heads. Options: heads, kv_heads
  entries,  // input 0 is a table [entries, width]: each rank has some entries. Options: all, begin
};

struct OpSpec {
  const char* name;
  const char* doc;
  std::span<const OpInput> inputs;
  Schema options = {};
  // Throws Error(invalid_argument), naming the shapes that do not fit.
  OpShapes (*shapes)(const Options&, const std::vector<Shape>& inputs);
  void (*forward)(const OpCall&, Emitter&);
  void (*backward)(const OpCall&, Emitter&) = nullptr;  // nullptr: not differentiable
  bool view = false;  // the output is the first input with another shape: no copy, no dispatch
  // Writes the op, as evaluation computes it, into an ONNX file and returns its output's name.
  // nullptr: it cannot be exported.
  std::string (*to_onnx)(OnnxNode&) = nullptr;
  WeightLayout (*layout)(const Options&, size_t input) = nullptr;  // nullptr: all as here
  // Whether an input may be a weight that is kept in fewer bits and made f32 in front of the op.
  // nullptr: none.
  bool (*quantizes)(const Options&, size_t input) = nullptr;
  // Whether the output is linear in the columns of input 1, so that a normalisation after it can be
  // folded into that weight for evaluation. nullptr: it is not.
  bool (*folds)(const Options&) = nullptr;
  // Whether the op is a normalisation that can be folded into such a product. Its inputs after x
  // are gamma, beta, mean and variance of each column, its options epsilon and relu.
  bool is_foldable = false;
  // Whether the output is a mean over the valid rows. saved[0] then holds its divisor and the
  // weight of the rows.
  bool is_mean_of_rows = false;
  AxesRule axes = AxesRule::untold;
  SliceRule slices = SliceRule::whole;
  // Returns the multiplications and additions of the forward pass. nullptr: each scalar of a weight
  // is used once for every element of an output channel.
  double (*operations)(const Shape& output) = nullptr;
};

// All ops, in the order of op_list.inc.
std::span<const OpSpec* const> op_table();

// Throws Error(not_found), naming the nearest op.
const OpSpec& find_op(const std::string& name);

// Throws Error(invalid_argument) if the rank differs: "conv2d: input must be [N, H, W, C], not [3,
// 4]".
void require_rank(const char* op, const char* input, const Shape& shape, size_t rank,
                  const char* expected);

// Throws Error(invalid_argument) unless in[0] is [..., classes], and in[1] (labels) and in[2]
// (weights), if given, are [...].
void require_labels(const char* op, const std::vector<Shape>& in);

// Returns samples [first, first + count) of x, along its first axis.
DeviceTensor samples_of(const DeviceTensor& x, uint32_t first, uint32_t count);

// Returns how many samples a dispatch can take if each has `groups` workgroups along y or z: all of
// them where they fit, or else a number of which every multiple is the beginning of a part of a
// tensor that devices can bind, whatever the size of a sample. Error(unsupported) if there is no
// such number: only attention has so many groups, one for each head.
uint32_t sample_run(uint32_t samples, uint32_t groups);

// Calls emit(first, count) for such runs of samples.
template <typename Emit>
void for_sample_runs(uint32_t samples, uint32_t groups, Emit&& emit) {
  const uint32_t run = sample_run(samples, groups);
  for (uint32_t first = 0; first < samples; first += run)
    emit(first, std::min(run, samples - first));
}

inline gpu::Binding reads(const DeviceTensor& t) { return {t.buffer, gpu::Access::read}; }
inline gpu::Binding writes(const DeviceTensor& t) { return {t.buffer, gpu::Access::write}; }
inline gpu::Binding updates(const DeviceTensor& t) { return {t.buffer, gpu::Access::read_write}; }

}  // namespace etr::ops
