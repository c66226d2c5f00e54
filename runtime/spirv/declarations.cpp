// The reader's first pass.
#include <algorithm>

#include "spirv/reader.h"

namespace etr::spirv {

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

// Sizes follow the decorations if there are any, and are tight otherwise.
void Reader::lay_out(Type& t) {
  switch (t.kind) {
    case Type::Kind::none: return;
    case Type::Kind::boolean:
    case Type::Kind::integer:
    case Type::Kind::floating: t.words = 1; break;
    case Type::Kind::wide:
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
      t.kind = op == Op::OpTypeFloat ? Type::Kind::floating
               : w[1] == 64          ? Type::Kind::wide
                                     : Type::Kind::integer;
      if (w[1] != 32 && t.kind != Type::Kind::wide)
        fail(Code::unsupported, "numbers of ", w[1], " bits");
      t.is_signed = op == Op::OpTypeInt && w[2] != 0;
      break;
    case Op::OpTypeVector:
      if (type(w[1]).kind == Type::Kind::wide) fail(Code::unsupported, "vectors of 64-bit numbers");
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
    case Op::OpTypeForwardPointer:  // its target follows
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
  if (type(w[0]).kind == Type::Kind::wide) fail(Code::unsupported, "constants of 64 bits");
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

}  // namespace etr::spirv
