// Gradients that are sent as 16-bit numbers, with error feedback: each rounding error is added to
// the next gradient.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/parameters.h"
#include "ops/op.h"
#include "parallel/buckets.h"

namespace etr::parallel {

// The values must match those in shaders/gradient_wire.comp.
enum class Compression : uint32_t { none, bf16, fp16 };

// "none", "fp16", "bf16"; Error(invalid_argument).
Compression compression_named(const std::string& name);

// One rank's compression of the gradients of one store. Each rank sends its share of the mean and
// receives the mean.
class Compressor {
 public:
  // `feedback`: keeps the rounding error of each scalar and adds it to the next gradient.
  Compressor(const graph::ParameterStore& store, Compression format, int ranks, bool feedback);

  Compression format() const { return format_; }
  static uint64_t bytes(const Bucket& bucket);  // on the wire

  // The inputs of one step.
  struct Step {
    gpu::Buffer values;  // ops::StepValues; a step that completes no update changes nothing
    // f32 [1]: divides this rank's gradients, so that all ranks have equal weight; none: 1.
    gpu::Buffer divisor;
    gpu::Buffer loss_scale;  // f32 [1]: the gradients are multiplied by it; none: 1
  };
  void emit_pack(ops::Emitter& emit, const Bucket& bucket, const gpu::Buffer& wire,
                 const Step& step) const;
  void emit_unpack(ops::Emitter& emit, const Bucket& bucket, const gpu::Buffer& wire,
                   const Step& step) const;

  void forget() const;  // Clears the rounding errors. No work may be in flight.

 private:
  const graph::ParameterStore& store_;
  const Compression format_;
  const float ranks_, most_;
  const bool feedback_;
  gpu::Arena arena_;
  gpu::Buffer residual_, one_;
};

}  // namespace etr::parallel
