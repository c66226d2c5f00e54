#define SPV_ENABLE_UTILITY_CODE  // for spv::HasResultAndType
#include "spirv/module.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "core/error.h"

namespace etr::spirv {
namespace {

using spv::Op;

struct Type {
  enum class Kind { none, boolean, integer, floating, vector, array, structure, pointer };
  Kind kind = Kind::none;
  bool is_signed = false;
  uint32_t element = 0;           // of a vector, an array, a pointer: a type's id
  uint32_t count = 0;             // of its elements; 0: known when it runs only
  uint32_t words = 0;             // of a value, in registers
  uint32_t bytes = 0;             // in memory
  uint32_t stride = 0;            // between elements there
  std::vector<uint32_t> members;  // types' ids
  std::vector<uint32_t> offsets;  // of the members, in memory
  std::vector<uint32_t> layout;   // of a value's words, in memory
  spv::StorageClass storage{};    // of what a pointer points to
};

struct Id {
  const Type* type = nullptr;  // of the value
  uint32_t reg = 0;
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

  // Second pass: a register for each result, as they are named before they are made.
  void reserve(Op op, std::span<const uint32_t> w);

  // Third pass.
  void decode(Op op, std::span<const uint32_t> w);
  bool decode_flow(Op op, std::span<const uint32_t> w);
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
  // Of a type's words in memory; 0: one behind the other, else a number of Module::layouts, from 1.
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
  std::unordered_map<uint32_t, uint32_t> labels_;  // and functions: where their code begins
  std::unordered_map<uint32_t, std::vector<uint32_t>> parameters_;
  std::unordered_map<const Type*, uint32_t> layout_numbers_;
  std::vector<std::pair<size_t, Target>> branches_;
  std::vector<std::pair<size_t, uint32_t>> extra_branches_;
};

void Reader::decorate(Decorations& of, uint32_t member, std::span<const uint32_t> w) {
  switch (static_cast<spv::Decoration>(w[0])) {
    case spv::Decoration::SpecId: of.spec_id = w[1]; break;
    case spv::Decoration::BuiltIn: of.builtin = w[1]; break;
    case spv::Decoration::Binding: of.binding = w[1]; break;
    case spv::Decoration::ArrayStride: of.stride = w[1]; break;
    case spv::Decoration::Offset: of.offsets[member] = w[1]; break;
    default: break;
  }
}

// Sizes follow the decorations where there are such, and are tight where there are none.
void Reader::lay_out(Type& t) {
  switch (t.kind) {
    case Type::Kind::none: return;
    case Type::Kind::boolean:
    case Type::Kind::integer:
    case Type::Kind::floating: t.words = 1; break;
    case Type::Kind::pointer: t.words = 2; break;
    case Type::Kind::vector:
    case Type::Kind::array: {
      const Type& of = type(t.element);
      if (t.stride == 0) t.stride = of.bytes;
      t.words = of.words * t.count;
      t.bytes = t.stride * t.count;
      for (uint32_t i = 0; i < t.count; ++i)
        for (const uint32_t at : of.layout) t.layout.push_back(i * t.stride + at);
      return;
    }
    case Type::Kind::structure: {
      for (size_t i = 0; i < t.members.size(); ++i) {
        const Type& of = type(t.members[i]);
        if (i == t.offsets.size()) t.offsets.push_back(t.bytes);
        t.bytes = std::max(t.bytes, t.offsets[i] + of.bytes);
        t.words += of.words;
        for (const uint32_t at : of.layout) t.layout.push_back(t.offsets[i] + at);
      }
      return;
    }
  }
  t.bytes = 4 * t.words;
  for (uint32_t i = 0; i < t.words; ++i) t.layout.push_back(4 * i);
}

void Reader::declare_type(Op op, std::span<const uint32_t> w) {
  const Decorations& decorations = decorations_[w[0]];
  Type t;
  switch (op) {
    case Op::OpTypeVoid:
    case Op::OpTypeFunction: t.kind = Type::Kind::none; break;
    case Op::OpTypeBool: t.kind = Type::Kind::boolean; break;
    case Op::OpTypeInt:
    case Op::OpTypeFloat:
      if (w[1] != 32) fail(Code::unsupported, "numbers of ", w[1], " bits");
      t.kind = op == Op::OpTypeInt ? Type::Kind::integer : Type::Kind::floating;
      t.is_signed = op == Op::OpTypeInt && w[2] != 0;
      break;
    case Op::OpTypeVector:
      t.kind = Type::Kind::vector;
      t.element = w[1];
      t.count = w[2];
      break;
    case Op::OpTypeArray:
    case Op::OpTypeRuntimeArray:
      t.kind = Type::Kind::array;
      t.element = w[1];
      t.count = op == Op::OpTypeArray ? constant(w[2]) : 0;
      t.stride = decorations.stride.value_or(0);
      break;
    case Op::OpTypeStruct:
      t.kind = Type::Kind::structure;
      t.members.assign(w.begin() + 1, w.end());
      if (decorations.offsets.size() == t.members.size())
        for (uint32_t i = 0; i < t.members.size(); ++i)
          t.offsets.push_back(decorations.offsets.at(i));
      break;
    case Op::OpTypePointer:
    case Op::OpTypeForwardPointer:  // what it points to follows
      t.kind = Type::Kind::pointer;
      t.storage = static_cast<spv::StorageClass>(w[1]);
      if (op == Op::OpTypePointer) t.element = w[2];
      t.stride = decorations.stride.value_or(0);
      break;
    default: unknown(op);
  }
  lay_out(t);
  types_[w[0]] = std::move(t);
}

void Reader::declare_constant(Op op, std::span<const uint32_t> w) {
  const uint32_t to = give(w[1], w[0]);
  constant_[w[1]] = true;
  const auto& spec_id = decorations_[w[1]].spec_id;
  const bool given = spec_id && *spec_id < constants_.size();
  switch (op) {
    case Op::OpConstantTrue:
    case Op::OpSpecConstantTrue: m_.registers[to] = given ? constants_[*spec_id] != 0 : 1; break;
    case Op::OpSpecConstantFalse: m_.registers[to] = given && constants_[*spec_id] != 0; break;
    case Op::OpConstantFalse:
    case Op::OpConstantNull:
    case Op::OpUndef: break;
    case Op::OpConstant: m_.registers[to] = w[2]; break;
    case Op::OpSpecConstant: m_.registers[to] = given ? constants_[*spec_id] : w[2]; break;
    case Op::OpConstantComposite:
    case Op::OpSpecConstantComposite: {
      uint32_t at = to;
      for (const uint32_t part : w.subspan(2))
        for (uint32_t i = 0; i < id(part).type->words; ++i)
          m_.registers[at++] = m_.registers[reg(part) + i];
      if (decorations_[w[1]].builtin == static_cast<uint32_t>(spv::BuiltIn::WorkgroupSize))
        std::copy_n(m_.registers.begin() + to, 3, m_.workgroup.begin());
      break;
    }
    case Op::OpSpecConstantOp: {
      const Instruction made = value(static_cast<Op>(w[2]), w[0], to, w.subspan(3));
      if (!evaluate(made, m_, m_.registers.data())) unknown(static_cast<Op>(w[2]));
      break;
    }
    default: unknown(op);
  }
}

void Reader::declare_variable(std::span<const uint32_t> w) {
  const uint32_t to = give(w[1], w[0]);
  constant_[w[1]] = true;
  const Type& of = type(type(w[0]).element);
  const Decorations& decorations = decorations_[w[1]];
  const auto reserve_in = [&](Space space, uint32_t& bytes) {
    set_pointer(to, pointer(space, bytes));
    bytes += of.bytes;
  };
  switch (static_cast<spv::StorageClass>(w[2])) {
    case spv::StorageClass::Input:
      if (!decorations.builtin) fail(Code::unsupported, "an input that is not built in");
      m_.builtins.push_back({static_cast<spv::BuiltIn>(*decorations.builtin), m_.input_bytes});
      reserve_in(Space::input, m_.input_bytes);
      break;
    case spv::StorageClass::PushConstant: set_pointer(to, pointer(Space::push, 0)); break;
    case spv::StorageClass::Workgroup: reserve_in(Space::shared, m_.shared_bytes); break;
    case spv::StorageClass::Private:
    case spv::StorageClass::Function: reserve_in(Space::own, m_.own_bytes); break;
    case spv::StorageClass::Uniform:
    case spv::StorageClass::StorageBuffer:
      set_pointer(to, pointer(static_cast<Space>(static_cast<uint64_t>(Space::first_binding) +
                                                 decorations.binding.value_or(0)),
                              0));
      break;
    default: fail(Code::unsupported, "variables of storage class ", w[2]);
  }
}

void Reader::declare(Op op, std::span<const uint32_t> w) {
  switch (op) {
    case Op::OpDecorate: decorate(decorations_[w[0]], 0, w.subspan(1)); break;
    case Op::OpMemberDecorate: decorate(decorations_[w[0]], w[1], w.subspan(2)); break;
    case Op::OpEntryPoint:
      if (w[0] == static_cast<uint32_t>(spv::ExecutionModel::GLCompute)) entry_ = w[1];
      break;
    case Op::OpExecutionMode:
      if (w[1] == static_cast<uint32_t>(spv::ExecutionMode::LocalSize))
        std::copy_n(w.begin() + 2, 3, m_.workgroup.begin());
      break;
    case Op::OpTypeVoid:
    case Op::OpTypeFunction:
    case Op::OpTypeBool:
    case Op::OpTypeInt:
    case Op::OpTypeFloat:
    case Op::OpTypeVector:
    case Op::OpTypeArray:
    case Op::OpTypeRuntimeArray:
    case Op::OpTypeStruct:
    case Op::OpTypePointer:
    case Op::OpTypeForwardPointer: declare_type(op, w); break;
    case Op::OpConstantTrue:
    case Op::OpConstantFalse:
    case Op::OpConstant:
    case Op::OpConstantComposite:
    case Op::OpConstantNull:
    case Op::OpSpecConstantTrue:
    case Op::OpSpecConstantFalse:
    case Op::OpSpecConstant:
    case Op::OpSpecConstantComposite:
    case Op::OpSpecConstantOp: declare_constant(op, w); break;
    case Op::OpUndef: declare_constant(op, w); break;
    case Op::OpVariable: declare_variable(w); break;
    default: break;
  }
}

void Reader::reserve(Op op, std::span<const uint32_t> w) {
  if (op == Op::OpFunction) in_function_ = w[1];
  if (op == Op::OpFunctionEnd) in_function_ = 0;
  if (!in_function_) return;
  bool has_result = false, has_type = false;
  spv::HasResultAndType(op, &has_result, &has_type);
  if (!has_result || !has_type || ids_[w[1]].type) return;  // it has one already
  give(w[1], w[0]);
  if (op == Op::OpFunctionParameter) parameters_[in_function_].push_back(w[1]);
}

uint32_t Reader::layout_of(const Type& of) {
  bool tight = true;
  for (uint32_t i = 0; i < of.layout.size(); ++i) tight = tight && of.layout[i] == 4 * i;
  if (tight) return 0;
  uint32_t& number = layout_numbers_[&of];
  if (number == 0) {
    m_.layouts.push_back(of.layout);
    number = static_cast<uint32_t>(m_.layouts.size());
  }
  return number;
}

bool Reader::all_float(const Type& of) const {
  if (of.kind == Type::Kind::vector || of.kind == Type::Kind::array)
    return all_float(type(of.element));
  return of.kind == Type::Kind::floating;
}

// An instruction that evaluate() carries out.
Instruction Reader::value(Op op, uint32_t type_id, uint32_t to, std::span<const uint32_t> o) {
  const Type& result = type(type_id);
  Instruction i{.op = op, .n = static_cast<uint16_t>(result.words), .to = to};
  const auto words_of = [&](uint32_t operand) { return id(operand).type->words; };
  const auto list = [&](std::initializer_list<uint32_t> values) {
    m_.extra.insert(m_.extra.end(), values);
  };
  i.extra = static_cast<uint32_t>(m_.extra.size());
  // Where a part lies in a composite, in words, and its type.
  const auto part_of = [&](uint32_t composite, std::span<const uint32_t> path) {
    const Type* of = id(composite).type;
    uint32_t at = 0;
    for (const uint32_t index : path) {
      if (of->kind == Type::Kind::structure) {
        for (uint32_t k = 0; k < index; ++k) at += type(of->members[k]).words;
        of = &type(of->members.at(index));
      } else {
        of = &type(of->element);
        at += index * of->words;
      }
    }
    return at;
  };
  switch (op) {
    case Op::OpCompositeExtract:
      i.op = Op::OpCopyObject;
      i.a = reg(o[0]) + part_of(o[0], o.subspan(1));
      return i;
    case Op::OpCompositeInsert:
      i.a = reg(o[0]);
      i.b = reg(o[1]);
      i.c = part_of(o[1], o.subspan(2));
      i.extra_count = words_of(o[0]);
      return i;
    case Op::OpCompositeConstruct:
      for (const uint32_t part : o) list({reg(part), words_of(part)});
      i.extra_count = static_cast<uint32_t>(2 * o.size());
      return i;
    case Op::OpVectorShuffle: {
      const uint32_t first = words_of(o[0]);
      for (const uint32_t at : o.subspan(2))
        list({at == ~0u ? reg(o[0]) : at < first ? reg(o[0]) + at : reg(o[1]) + at - first});
      i.extra_count = static_cast<uint32_t>(o.size() - 2);
      return i;
    }
    case Op::OpExtInst:
      if (o.size() < 3 || o.size() > 5) fail(Code::unsupported, "an extended instruction");
      i.extra = o[1];
      i.a = reg(o[2]);
      if (o.size() > 3) i.b = reg(o[3]);
      if (o.size() > 4) i.c = reg(o[4]);
      return i;
    default: break;
  }
  if (o.empty() || o.size() > 3) unknown(op);
  i.a = reg(o[0]);
  if (o.size() > 1) i.b = reg(o[1]);
  if (o.size() > 2) i.c = reg(o[2]);
  i.extra_count = words_of(o[0]);  // for those that join a vector's elements, or choose by one
  return i;
}

// Pointers to parts of what another points to.
void Reader::chain(std::span<const uint32_t> w, size_t first_index, bool by_element) {
  const Type& base = *id(w[2]).type;
  Instruction i{.op = Op::OpAccessChain, .n = 2, .to = reg(w[1]), .a = reg(w[2])};
  i.extra = static_cast<uint32_t>(m_.steps.size());
  const Type* of = &type(base.element);
  const auto step = [&](uint32_t index, uint32_t stride, uint32_t count) {
    if (is_constant(index)) {
      const uint32_t at = constant(index);
      if (count && at >= count) fail(Code::corrupt_data, "an index of SPIR-V's is out of bounds");
      i.b += at * stride;
    } else {
      m_.steps.push_back({reg(index), stride, count, id(index).type->is_signed});
    }
  };
  if (by_element) step(w[3], base.stride ? base.stride : of->bytes, 0);
  for (const uint32_t index : w.subspan(first_index)) {
    if (of->kind == Type::Kind::structure) {
      i.b += of->offsets.at(constant(index));
      of = &type(of->members.at(constant(index)));
    } else if (of->kind == Type::Kind::vector || of->kind == Type::Kind::array) {
      step(index, of->stride, of->count);
      of = &type(of->element);
    } else {
      fail(Code::corrupt_data, "an index of SPIR-V's into what has no parts");
    }
  }
  i.extra_count = static_cast<uint32_t>(m_.steps.size()) - i.extra;
  emit(i);
}

void Reader::call(std::span<const uint32_t> w) {
  Instruction i{.op = Op::OpFunctionCall, .n = static_cast<uint16_t>(type(w[0]).words)};
  i.to = reg(w[1]);
  i.extra = static_cast<uint32_t>(m_.extra.size());
  const std::vector<uint32_t>& parameters = parameters_[w[2]];
  if (parameters.size() != w.size() - 3) fail(Code::corrupt_data, "a call in SPIR-V is wrong");
  for (size_t k = 0; k < parameters.size(); ++k)
    m_.extra.insert(m_.extra.end(),
                    {reg(parameters[k]), reg(w[3 + k]), id(parameters[k]).type->words});
  i.extra_count = static_cast<uint32_t>(3 * parameters.size());
  emit(i);
  branch_to(&Instruction::a, w[2]);
}

bool Reader::decode_flow(Op op, std::span<const uint32_t> w) {
  switch (op) {
    case Op::OpFunction:
      in_function_ = w[1];
      labels_[w[1]] = static_cast<uint32_t>(m_.code.size());
      return true;
    case Op::OpFunctionEnd: in_function_ = 0; return true;
    case Op::OpFunctionParameter:
    case Op::OpSelectionMerge:
    case Op::OpLoopMerge:
    case Op::OpNop:
    case Op::OpUndef:
    case Op::OpLine:
    case Op::OpNoLine: return true;
    case Op::OpLabel:
      labels_[w[0]] = static_cast<uint32_t>(m_.code.size());
      emit({.op = op, .a = w[0]});
      return true;
    case Op::OpBranch:
      emit({.op = op});
      branch_to(&Instruction::a, w[0]);
      return true;
    case Op::OpBranchConditional:
      emit({.op = op, .a = reg(w[0])});
      branch_to(&Instruction::b, w[1]);
      branch_to(&Instruction::c, w[2]);
      return true;
    case Op::OpSwitch:
      emit({.op = op,
            .a = reg(w[0]),
            .extra = static_cast<uint32_t>(m_.extra.size()),
            .extra_count = static_cast<uint32_t>(w.size() - 2)});
      branch_to(&Instruction::b, w[1]);
      for (size_t k = 2; k < w.size(); ++k) {
        if (k % 2) extra_branches_.emplace_back(m_.extra.size(), w[k]);
        m_.extra.push_back(w[k]);
      }
      return true;
    case Op::OpPhi:
      emit({.op = op,
            .n = static_cast<uint16_t>(type(w[0]).words),
            .to = reg(w[1]),
            .extra = static_cast<uint32_t>(m_.extra.size()),
            .extra_count = static_cast<uint32_t>(w.size() - 2)});
      for (size_t k = 2; k < w.size(); k += 2)
        m_.extra.insert(m_.extra.end(), {reg(w[k]), w[k + 1]});
      return true;
    case Op::OpReturn:
    case Op::OpUnreachable: emit({.op = op}); return true;
    case Op::OpReturnValue:
      emit({.op = op, .n = static_cast<uint16_t>(id(w[0]).type->words), .a = reg(w[0])});
      return true;
    case Op::OpFunctionCall: call(w); return true;
    case Op::OpControlBarrier: emit({.op = op, .a = constant(w[2])}); return true;
    case Op::OpMemoryBarrier: emit({.op = op, .a = constant(w[1])}); return true;
    case Op::OpGroupNonUniformBroadcast:
    case Op::OpGroupNonUniformFAdd:
    case Op::OpGroupNonUniformFMax:
    case Op::OpGroupNonUniformFMin: {
      const bool broadcast = op == Op::OpGroupNonUniformBroadcast;
      if (!broadcast && w[3] != static_cast<uint32_t>(spv::GroupOperation::Reduce))
        fail(Code::unsupported, "scans of a subgroup");
      emit({.op = op,
            .n = static_cast<uint16_t>(type(w[0]).words),
            .to = reg(w[1]),
            .a = reg(broadcast ? w[3] : w[4]),
            .b = broadcast ? reg(w[4]) : 0});
      return true;
    }
    default: return false;
  }
}

bool Reader::decode_memory(Op op, std::span<const uint32_t> w) {
  switch (op) {
    case Op::OpVariable:
      if (w.size() > 3)
        emit({.op = Op::OpStore,
              .n = static_cast<uint16_t>(id(w[3]).type->words),
              .a = reg(w[1]),
              .b = reg(w[3])});
      return true;
    case Op::OpLoad: {
      const Type& of = type(w[0]);
      emit({.op = op,
            .n = static_cast<uint16_t>(of.words),
            .to = reg(w[1]),
            .a = reg(w[2]),
            .b = layout_of(of)});
      return true;
    }
    case Op::OpStore: {
      const Type& of = *id(w[1]).type;
      emit({.op = op,
            .n = static_cast<uint16_t>(of.words),
            .to = all_float(of),
            .a = reg(w[0]),
            .b = reg(w[1]),
            .c = layout_of(of)});
      return true;
    }
    case Op::OpAccessChain:
    case Op::OpInBoundsAccessChain: chain(w, 3, false); return true;
    case Op::OpPtrAccessChain:
    case Op::OpInBoundsPtrAccessChain: chain(w, 4, true); return true;
    case Op::OpArrayLength: {
      const Type& block = type(id(w[2]).type->element);
      emit({.op = op,
            .to = reg(w[1]),
            .a = reg(w[2]),
            .b = block.offsets.at(w[3]),
            .c = type(block.members.at(w[3])).stride});
      return true;
    }
    default: return false;
  }
}

void Reader::decode(Op op, std::span<const uint32_t> w) {
  if (!in_function_ && op != Op::OpFunction) return;
  if (decode_flow(op, w) || decode_memory(op, w)) return;
  bool has_result = false, has_type = false;
  spv::HasResultAndType(op, &has_result, &has_type);
  if (!has_result || !has_type) unknown(op);
  emit(value(op, w[0], reg(w[1]), w.subspan(2)));
}

}  // namespace

Module::Module(std::span<const uint32_t> words, std::span<const uint32_t> constants) {
  Reader(*this, words, constants).read();
}

}  // namespace etr::spirv
