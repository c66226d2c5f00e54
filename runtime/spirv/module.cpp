#include "spirv/reader.h"

namespace etr::spirv {

void Reader::reserve(Op op, std::span<const uint32_t> w) {
  if (op == Op::OpFunction) in_function_ = w[1];
  if (op == Op::OpFunctionEnd) in_function_ = 0;
  if (!in_function_) return;
  bool has_result = false, has_type = false;
  spv::HasResultAndType(op, &has_result, &has_type);
  if (!has_result || !has_type || ids_[w[1]].type) return;  // it already has a register
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

// Makes an instruction that evaluate() executes.
Instruction Reader::value(Op op, uint32_t type_id, uint32_t to, std::span<const uint32_t> o) {
  const Type& result = type(type_id);
  Instruction i{.op = op, .n = static_cast<uint16_t>(result.words), .to = to};
  const auto words_of = [&](uint32_t operand) { return id(operand).type->words; };
  const auto list = [&](std::initializer_list<uint32_t> values) {
    m_.extra.insert(m_.extra.end(), values);
  };
  i.extra = static_cast<uint32_t>(m_.extra.size());
  const auto refuse_wide = [&](Op of, uint32_t operand) {
    const bool is_wide =
        result.kind == Type::Kind::wide || id(operand).type->kind == Type::Kind::wide;
    if (is_wide && of != Op::OpBitcast)
      fail(Code::unsupported, "SPIR-V's instruction ", static_cast<uint32_t>(of), " on 64 bits");
  };
  // Returns the word offset and the type of a part of a composite.
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
      refuse_wide(op, o[2]);
      i.extra = o[1];
      i.a = reg(o[2]);
      if (o.size() > 3) i.b = reg(o[3]);
      if (o.size() > 4) i.c = reg(o[4]);
      return i;
    default: break;
  }
  if (o.empty() || o.size() > 3) unknown(op);
  refuse_wide(op, o[0]);
  i.a = reg(o[0]);
  if (o.size() > 1) i.b = reg(o[1]);
  if (o.size() > 2) i.c = reg(o[2]);
  // For instructions that combine a vector's elements or select by one.
  i.extra_count = words_of(o[0]);
  return i;
}

// Makes an instruction for a pointer to a part of another pointer's target.
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
    default: return false;
  }
}

bool Reader::decode_group(Op op, std::span<const uint32_t> w) {
  switch (op) {
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
              .b = reg(w[3]),
              .extra_count = 4});  // as below
      return true;
    case Op::OpLoad: {
      const Type& of = type(w[0]);
      emit({.op = op,
            .n = static_cast<uint16_t>(of.words),
            .to = reg(w[1]),
            .a = reg(w[2]),
            .b = layout_of(of),
            .c = of.kind == Type::Kind::wide ? 8u : 4u});  // its alignment in bytes
      return true;
    }
    case Op::OpStore: {
      const Type& of = *id(w[1]).type;
      emit({.op = op,
            .n = static_cast<uint16_t>(of.words),
            .to = all_float(of) || (of.kind == Type::Kind::wide && id(w[1]).casts_floats),
            .a = reg(w[0]),
            .b = reg(w[1]),
            .c = layout_of(of),
            .extra_count = of.kind == Type::Kind::wide ? 8u : 4u});  // its alignment in bytes
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
  if (decode_flow(op, w) || decode_group(op, w) || decode_memory(op, w)) return;
  bool has_result = false, has_type = false;
  spv::HasResultAndType(op, &has_result, &has_type);
  if (!has_result || !has_type) unknown(op);
  if (op == Op::OpBitcast)
    ids_[w[1]].casts_floats = all_float(*id(w[2]).type) || id(w[2]).casts_floats;
  emit(value(op, w[0], reg(w[1]), w.subspan(2)));
}

Module::Module(std::span<const uint32_t> words, std::span<const uint32_t> constants) {
  Reader(*this, words, constants).read();
}

}  // namespace etr::spirv
