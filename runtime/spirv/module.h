// A compute shader's SPIR-V, decoded for running it on the host: see machine.h.
//
// Supports what EchoTrain's shaders need: 32-bit integers and floats, and vectors, arrays and
// structures of them; 64-bit integers that are only loaded and cast to a vector of two; buffers as
// descriptors of set 0 or by address; shared memory; barriers; sums, maxima, minima and broadcasts
// of a subgroup. No matrices, images, atomics or other widths.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <spirv/unified1/spirv.hpp11>

namespace etr::spirv {

// Pointers in registers are a device address, or a space with an offset in bytes.
enum class Space : uint64_t { address, input, push, shared, own, first_binding };
constexpr int kSpaceShift = 56;
constexpr uint64_t pointer(Space space, uint64_t offset) {
  return static_cast<uint64_t>(space) << kSpaceShift | offset;
}

// Operands are registers unless the operation says otherwise (decode() in module.cpp).
struct Instruction {
  spv::Op op{};
  uint16_t n = 1;   // words of the result
  uint32_t to = 0;  // its register
  uint32_t a = 0, b = 0, c = 0;
  uint32_t extra = 0, extra_count = 0;  // more operands, from here on in Module::extra
};

// A step of an access chain, for an index known only at run time.
struct Step {
  uint32_t index;  // its register
  uint32_t stride, count;
  bool is_signed;
};

class Module {
 public:
  // `constants` are the values of constant_id 0, 1, 2, ... Throws Error(unsupported), naming what
  // is not supported, or Error(corrupt_data) for words that are not SPIR-V.
  Module(std::span<const uint32_t> words, std::span<const uint32_t> constants);

  std::vector<Instruction> code;
  std::vector<uint32_t> extra;
  std::vector<Step> steps;
  // Initial registers of an invocation: constants, and pointers to variables.
  std::vector<uint32_t> registers;
  uint32_t entry = 0;      // index of the first instruction
  uint32_t own_bytes = 0;  // size of an invocation's variables
  uint32_t shared_bytes = 0;
  std::array<uint32_t, 3> workgroup{1, 1, 1};
  struct Builtin {
    spv::BuiltIn what;
    uint32_t offset;  // in Space::input
  };
  std::vector<Builtin> builtins;
  uint32_t input_bytes = 0;
  // Memory layouts of loaded and stored values that are not contiguous.
  std::vector<std::vector<uint32_t>> layouts;

  uint32_t invocations() const { return workgroup[0] * workgroup[1] * workgroup[2]; }
};

// Executes an instruction that needs only registers; returns false if it is not one.
bool evaluate(const Instruction& instruction, const Module& module, uint32_t* registers);

}  // namespace etr::spirv
