// Gradients that travel in 16 bits: what rounding leaves of one joins the next.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/parameters.h"
#include "ops/op.h"
#include "parallel/buckets.h"

namespace etr::parallel {

// Values are those of shaders/gradient_wire.comp.
enum class Compression : uint32_t { none, bf16, fp16 };

// "none", "fp16", "bf16"; Error(invalid_argument).
Compression compression_named(const std::string& name);

// One rank's end, for the gradients of one store: each rank sends its share of the mean, and receives the mean.
class Compressor {
 public:
  // `feedback`: keeps, for each scalar, what its rounding has left, and adds it to the next gradient.
  Compressor(const graph::ParameterStore& store, Compression format, int ranks, bool feedback);

  Compression format() const { return format_; }
  static uint64_t bytes(const Bucket& bucket);  // on the wire

  // What a step has for it.
  struct Step {
    gpu::Buffer values;  // ops::StepValues; one that ends no update changes nothing
    gpu::Buffer
        divisor;  // f32 [1]: of this rank's gradients, so that those of all ranks weigh the same; none: 1
    gpu::Buffer loss_scale;  // f32 [1]: gradients come multiplied by it; none: 1
  };
  void emit_pack(ops::Emitter& emit, const Bucket& bucket, const gpu::Buffer& wire,
                 const Step& step) const;
  void emit_unpack(ops::Emitter& emit, const Bucket& bucket, const gpu::Buffer& wire,
                   const Step& step) const;

  void forget() const;  // what rounding has left so far. Nothing may be in flight.

 private:
  const graph::ParameterStore& store_;
  const Compression format_;
  const float ranks_;
  const bool feedback_;
  gpu::Arena arena_;
  gpu::Buffer residual_, one_;
};

}  // namespace etr::parallel
