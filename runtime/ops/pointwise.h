// Element-wise dispatches that say what they compute, so that chains of them can become one kernel.
//
// A chain reads and writes memory once instead of once an operation, and element-wise kernels do little else. The kernel is
// made of GLSL while a plan is: the functions of shaders/elementwise.glsl, called one after the other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/op.h"

namespace etr::ops {

// Of each element of the last binding of its dispatch, which it writes whole.
struct Pointwise final : gpu::Fusible {
  enum class Along { elements, columns, nothing };

  struct Operand {
    uint32_t binding = 0;
    Along along = Along::elements;
    uint32_t row = 0;  // along columns: of a tensor [*, columns]
    bool operator==(const Operand&) const = default;
  };

  // What a product can do by itself with what it computes.
  enum class Form { other, add, add_relu, relu_grad };

  std::string name;
  uint32_t count = 0;    // elements
  uint32_t columns = 0;  // of the last axis, where an operand lies along it; 0: none does
  std::vector<Operand> operands;
  std::string
      body;  // statements: "$r = max($0, $1);", of operands by number, with temporaries $t0, $t1, ...
  uint32_t temporaries = 0;  // as many of these
  bool cheap = true;         // to be computed twice rather than be written and read
  Form form = Form::other;   // of the two operands $0 and $1: sum, ReLU of the sum, $1 where $0 > 0
};

using PointwisePtr = std::shared_ptr<const Pointwise>;

// Of as many operands as all bindings of the dispatch but the last.
PointwisePtr pointwise(std::string name, uint32_t count, uint32_t operands, std::string body,
                       Pointwise::Form form = Pointwise::Form::other);

// A float as GLSL takes it, bit by bit.
std::string glsl(float value);

// The note of a dispatch; nullptr where it has none.
const Pointwise* pointwise_of(const gpu::Dispatch& dispatch);

// `consumer` with `producer`, whose result it reads element by element, computed on the way; without a kernel yet (see
// compile()). Empty where more buffers would be bound than `most_bindings`, or their shapes do not go together.
gpu::Dispatch joined(const gpu::Dispatch& producer, const gpu::Dispatch& consumer,
                     uint32_t most_bindings);

// Tensors as long as the result that the dispatch reads.
uint32_t tensors_read(const gpu::Dispatch& dispatch);

// Gives a dispatch of joined() its kernel. Throws Error(unsupported) in a build without a GLSL compiler.
void compile(gpu::Kernels& kernels, gpu::Dispatch& dispatch);

}  // namespace etr::ops
