// Describes element-wise dispatches, so that chains of them can become one kernel.
//
// A chain then reads and writes memory once instead of once per operation, and element-wise kernels
// do little else. The fused kernel is compiled from GLSL while a plan is made: it calls the
// functions of shaders/elementwise.glsl one after another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/op.h"

namespace etr::ops {

// Describes how each element of the dispatch's last binding is computed. The dispatch writes that
// buffer as a whole.
struct Pointwise final : gpu::Fusible {
  enum class Along { elements, columns, nothing };

  struct Operand {
    uint32_t binding = 0;
    Along along = Along::elements;
    uint32_t row = 0;  // along columns: the row of a tensor [*, columns]
    bool operator==(const Operand&) const = default;
  };

  // Operations that a product's kernel can apply to its own result.
  enum class Form { other, add, add_relu, relu_grad };

  std::string name;
  uint32_t count = 0;    // elements
  uint32_t columns = 0;  // length of the last axis if an operand lies along it, else 0
  std::vector<Operand> operands;
  // Statements such as "$r = max($0, $1);": operands by number, temporaries $t0, $t1, ...
  // `column_length` is the number of elements per column.
  std::string body;
  uint32_t temporaries = 0;  // number of temporaries
  bool cheap = true;         // cheaper to compute twice than to write and read
  Form form = Form::other;   // sum of $0 and $1, ReLU of the sum, or $1 where $0 > 0
};

using PointwisePtr = std::shared_ptr<const Pointwise>;

// Makes a description of a dispatch that reads its `operands` operands element by element: all its
// bindings except the last, in order.
PointwisePtr pointwise(std::string name, uint32_t count, uint32_t operands, std::string body,
                       Pointwise::Form form = Pointwise::Form::other);

// Emits dx = dy where y > 0, else 0: the gradient of a ReLU whose result is y.
void emit_relu_grad(Emitter& emit, const DeviceTensor& y, const DeviceTensor& dy,
                    const DeviceTensor& dx);

// Returns a GLSL expression with the exact bits of `value`.
std::string glsl(float value);

// Returns the description of a dispatch; nullptr if it has none.
const Pointwise* pointwise_of(const gpu::Dispatch& dispatch);

// Returns `consumer` with the computation of `producer`, whose result it reads element by element,
// merged into it. The dispatch has no kernel yet (see compile()). Returns an empty dispatch (no
// fusible) if it would bind more than `most_bindings` buffers or the shapes do not match.
gpu::Dispatch joined(const gpu::Dispatch& producer, const gpu::Dispatch& consumer,
                     uint32_t most_bindings);

// Returns how many tensors of the result's length the dispatch reads.
uint32_t tensors_read(const gpu::Dispatch& dispatch);

// Compiles a kernel for a dispatch with a description, such as one made by joined(). Throws
// Error(unsupported) in a build without a GLSL compiler.
void compile(gpu::Kernels& kernels, gpu::Dispatch& dispatch);

// Returns whether a compiled kernel is faster than the one that the dispatch has: on a CPU device,
// compiled kernels read and write two elements at once.
bool gains_from_compiling(const gpu::Device& device, const gpu::Dispatch& dispatch);

}  // namespace etr::ops
