// Decodes SPIR-V words into a Module; shared by module.cpp and declarations.cpp.
#pragma once

#define SPV_ENABLE_UTILITY_CODE  // for spv::HasResultAndType
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "spirv/module.h"

namespace etr::spirv {

using spv::Op;

struct Type {
  // A `wide` value has 64 bits, and is only loaded, stored and cast to or from a vector of two.
  enum class Kind { none, boolean, integer, floating, wide, vector, array, structure, pointer };
  Kind kind = Kind::none;
  bool is_signed = false;
  uint32_t element = 0;           // type id of the elements of a vector, an array or a pointer
  uint32_t count = 0;             // number of elements; 0: known only at run time
  uint32_t words = 0;             // of a value in registers
  uint32_t bytes = 0;             // in memory
  uint32_t stride = 0;            // between elements in memory
  std::vector<uint32_t> members;  // type ids
  std::vector<uint32_t> offsets;  // byte offsets of the members in memory
  std::vector<uint32_t> layout;   // byte offsets of a value's words in memory
  spv::StorageClass storage{};    // of a pointer's target
};

struct Id {
  const Type* type = nullptr;  // type of the value
  uint32_t reg = 0;
  bool casts_floats = false;  // its bits are those of floats
};

struct Decorations {
  std::optional<uint32_t> spec_id, builtin, binding, stride;
  std::unordered_map<uint32_t, uint32_t> offsets;  // by member
};

class Reader {
 public:
  Reader(Module& module, std::span<const uint32_t> words, std::span<const uint32_t> constants)
      : m_(module), words_(words), constants_(constants) {
    if (words.size() < 5 || words[0] != spv::MagicNumber)
      fail(Code::corrupt_data, "these words are no SPIR-V");
    bound_ = words[3];
    ids_.resize(bound_);
  }

  void read() {
    each([&](Op op, std::span<const uint32_t> w) { declare(op, w); });
    if (entry_ == 0) fail(Code::unsupported, "the module has no entry point");
    each([&](Op op, std::span<const uint32_t> w) { reserve(op, w); });
    in_function_ = 0;
    each([&](Op op, std::span<const uint32_t> w) { decode(op, w); });
    for (const auto& [at, label] : branches_) m_.code[at].*label.field = place(label.id);
    for (const auto& [at, label] : extra_branches_) m_.extra[at] = place(label);
    m_.entry = place(entry_);
  }

 private:
  template <typename Visit>
  void each(const Visit& visit) {
    for (size_t at = 5; at < words_.size();) {
      const uint32_t count = words_[at] >> 16;
      if (count == 0 || at + count > words_.size())
        fail(Code::corrupt_data, "an instruction of this SPIR-V has a wrong length");
      visit(static_cast<Op>(words_[at] & 0xffff), words_.subspan(at + 1, count - 1));
      at += count;
    }
  }

  [[noreturn]] void unknown(Op op) const {
    fail(Code::unsupported, "SPIR-V's instruction ", static_cast<uint32_t>(op));
  }

  // First pass: decorations, types, constants, variables.
  void declare(Op op, std::span<const uint32_t> w);
  void declare_type(Op op, std::span<const uint32_t> w);
  void declare_constant(Op op, std::span<const uint32_t> w);
  void declare_variable(std::span<const uint32_t> w);
  void decorate(Decorations& of, uint32_t member, std::span<const uint32_t> w);
  void lay_out(Type& type);

  // Second pass: reserves a register for each result, since results are used before they are
  // defined.
  void reserve(Op op, std::span<const uint32_t> w);

  // Third pass.
  void decode(Op op, std::span<const uint32_t> w);
  bool decode_flow(Op op, std::span<const uint32_t> w);
  bool decode_group(Op op, std::span<const uint32_t> w);  // barriers, and what subgroups share
  bool decode_memory(Op op, std::span<const uint32_t> w);
  Instruction value(Op op, uint32_t type, uint32_t to, std::span<const uint32_t> operands);
  void chain(std::span<const uint32_t> w, size_t first_index, bool by_element);
  void call(std::span<const uint32_t> w);

  const Type& type(uint32_t id) const {
    const auto found = types_.find(id);
    if (found == types_.end()) fail(Code::unsupported, "the type that SPIR-V gives the id ", id);
    return found->second;
  }
  const Id& id(uint32_t i) const {
    if (i >= bound_ || !ids_[i].type) fail(Code::unsupported, "a value of SPIR-V's id ", i);
    return ids_[i];
  }
  uint32_t reg(uint32_t i) const { return id(i).reg; }
  uint32_t constant(uint32_t i) const { return m_.registers[reg(i)]; }
  bool is_constant(uint32_t i) const { return constant_.contains(i); }

  uint32_t give(uint32_t i, uint32_t type_id) {
    const Type& of = type(type_id);
    if (i >= bound_) fail(Code::corrupt_data, "SPIR-V's id ", i, " is out of bounds");
    ids_[i] = {&of, static_cast<uint32_t>(m_.registers.size())};
    m_.registers.resize(m_.registers.size() + of.words);
    return ids_[i].reg;
  }
  void set_pointer(uint32_t at, uint64_t value) {
    m_.registers[at] = static_cast<uint32_t>(value);
    m_.registers[at + 1] = static_cast<uint32_t>(value >> 32);
  }
  // Returns a type's layout in memory: 0 if contiguous, otherwise one plus its index in
  // Module::layouts.
  uint32_t layout_of(const Type& of);
  bool all_float(const Type& of) const;
  uint32_t place(uint32_t label) const {
    const auto found = labels_.find(label);
    if (found == labels_.end()) fail(Code::corrupt_data, "SPIR-V's label ", label, " is nowhere");
    return found->second;
  }
  Instruction& emit(const Instruction& instruction) {
    m_.code.push_back(instruction);
    return m_.code.back();
  }
  void branch_to(uint32_t Instruction::*field, uint32_t label) {
    branches_.push_back({m_.code.size() - 1, {field, label}});
  }

  struct Target {
    uint32_t Instruction::*field;
    uint32_t id;
  };

  Module& m_;
  std::span<const uint32_t> words_, constants_;
  uint32_t bound_ = 0;
  uint32_t entry_ = 0;        // the entry point's function
  uint32_t in_function_ = 0;  // 0: between functions
  std::vector<Id> ids_;
  std::unordered_map<uint32_t, Type> types_;
  std::unordered_map<uint32_t, Decorations> decorations_;
  std::unordered_map<uint32_t, bool> constant_;
  // Labels and functions: index of their first instruction.
  std::unordered_map<uint32_t, uint32_t> labels_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> parameters_;
  std::unordered_map<const Type*, uint32_t> layout_numbers_;
  std::vector<std::pair<size_t, Target>> branches_;
  std::vector<std::pair<size_t, uint32_t>> extra_branches_;
};

}  // namespace etr::spirv
