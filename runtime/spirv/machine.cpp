#include "spirv/machine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"

namespace etr::spirv {
namespace {

using spv::Op;

struct GivenUp {};  // too many instructions

bool has(uint32_t semantics, spv::MemorySemanticsMask what) {
  return (semantics & static_cast<uint32_t>(what)) != 0;
}

}  // namespace

Machine::Machine(const Module& module, std::vector<Argument> buffers,
                 std::span<const std::byte> push, const Grid& grid)
    : module_(module), buffers_(std::move(buffers)), push_(push.size() / 4), grid_(grid) {
  if (!push_.empty()) std::memcpy(push_.data(), push.data(), push_.size() * 4);
  lanes_.resize(module.invocations());
  shared_.resize(module.shared_bytes / 4);
  shared_traces_.resize(shared_.size());
  shared_written_.resize(shared_.size());
  input_.resize(module.input_bytes / 4);
}

bool Machine::run(std::array<uint32_t, 3> group, uint64_t most_instructions) {
  most_ = most_instructions == ~uint64_t{0} ? most_instructions : instructions_ + most_instructions;
  group_ = group;
  ++shared_stretch_;
  ++buffer_stretch_;
  std::fill(shared_written_.begin(), shared_written_.end(), false);
  std::fill(shared_traces_.begin(), shared_traces_.end(), Trace{});
  for (Lane& lane : lanes_) {
    lane.registers = module_.registers;
    lane.own.assign(module_.own_bytes / 4, 0xDEADBEEF);
    lane.calls.assign(1, {});
    lane.at = module_.entry;
    lane.state = State::running;
    lane.orders_buffers = false;
  }
  try {
    while (std::any_of(lanes_.begin(), lanes_.end(),
                       [](const Lane& lane) { return lane.state != State::ended; })) {
      for (lane_ = 0; lane_ < lanes_.size(); ++lane_)
        if (lanes_[lane_].state == State::running) advance(lanes_[lane_]);
      meet();
    }
  } catch (const GivenUp&) {
    return false;
  } catch (const Error& error) {
    throw Error(error.code(), cat("invocation ", lane_, " of workgroup ", group[0], ", ", group[1],
                                  ", ", group[2], ": ", error.what()));
  }
  first_invocation_ += static_cast<uint32_t>(lanes_.size());
  return true;
}

void Machine::advance(Lane& lane) {
  begin(lane_, group_);
  while (lane.state == State::running) {
    if (++instructions_ > most_) throw GivenUp{};
    const Instruction& i = module_.code[lane.at];
    if (step(lane, i)) continue;
    if (!evaluate(i, module_, lane.registers.data()))
      fail(Code::unsupported, "SPIR-V's instruction ", static_cast<uint32_t>(i.op),
           i.op == Op::OpExtInst ? cat(", extended ", i.extra) : "");
    ++lane.at;
  }
}

// Sets the built-in variables (gl_LocalInvocationID and so on).
void Machine::begin(uint32_t lane, std::array<uint32_t, 3> group) {
  const auto& size = module_.workgroup;
  const std::array<uint32_t, 3> local{lane % size[0], lane / size[0] % size[1],
                                      lane / size[0] / size[1]};
  for (const auto& [what, offset] : module_.builtins) {
    uint32_t* to = &input_[offset / 4];
    switch (what) {
      case spv::BuiltIn::LocalInvocationId: std::copy_n(local.begin(), 3, to); break;
      case spv::BuiltIn::WorkgroupId: std::copy_n(group.begin(), 3, to); break;
      case spv::BuiltIn::NumWorkgroups: std::copy_n(grid_.groups.begin(), 3, to); break;
      case spv::BuiltIn::GlobalInvocationId:
        for (size_t axis = 0; axis < 3; ++axis) to[axis] = group[axis] * size[axis] + local[axis];
        break;
      case spv::BuiltIn::LocalInvocationIndex: *to = lane; break;
      case spv::BuiltIn::SubgroupLocalInvocationId: *to = lane % grid_.subgroup_size; break;
      case spv::BuiltIn::SubgroupSize: *to = grid_.subgroup_size; break;
      case spv::BuiltIn::SubgroupId: *to = lane / grid_.subgroup_size; break;
      case spv::BuiltIn::NumSubgroups:
        *to =
            (static_cast<uint32_t>(lanes_.size()) + grid_.subgroup_size - 1) / grid_.subgroup_size;
        break;
      default: fail(Code::unsupported, "SPIR-V's built-in variable ", static_cast<uint32_t>(what));
    }
  }
}

// Executes control flow and memory instructions; returns false for what evaluate() handles.
bool Machine::step(Lane& lane, const Instruction& i) {
  switch (i.op) {
    case Op::OpLoad: load(lane, i); break;
    case Op::OpStore: store(lane, i); break;
    case Op::OpAccessChain: address(lane, i); break;
    case Op::OpArrayLength: lane.registers[i.to] = length(lane, i); break;
    case Op::OpLabel:
      lane.from = lane.block;
      lane.block = i.a;
      break;
    case Op::OpPhi: pass_phis(lane); return true;
    case Op::OpBranch: lane.at = i.a; return true;
    case Op::OpBranchConditional: lane.at = lane.registers[i.a] ? i.b : i.c; return true;
    case Op::OpSwitch: {
      uint32_t to = i.b;
      for (uint32_t k = i.extra; k < i.extra + i.extra_count; k += 2)
        if (module_.extra[k] == lane.registers[i.a]) to = module_.extra[k + 1];
      lane.at = to;
      return true;
    }
    case Op::OpFunctionCall: enter(lane, i); return true;
    case Op::OpReturn:
    case Op::OpReturnValue: leave(lane, i); return true;
    case Op::OpUnreachable: fail(Code::internal, "reaches what it says it never does");
    case Op::OpMemoryBarrier:
      lane.orders_buffers |= has(i.a, spv::MemorySemanticsMask::UniformMemory);
      break;
    case Op::OpControlBarrier: lane.state = State::at_barrier; return true;
    case Op::OpGroupNonUniformBroadcast:
    case Op::OpGroupNonUniformFAdd:
    case Op::OpGroupNonUniformFMax:
    case Op::OpGroupNonUniformFMin: lane.state = State::at_subgroup; return true;
    default: return false;
  }
  ++lane.at;
  return true;
}

// GLSL has no recursion, so a function's registers and variables are its own.
void Machine::enter(Lane& lane, const Instruction& i) {
  for (uint32_t k = i.extra; k < i.extra + i.extra_count; k += 3)
    std::copy_n(&lane.registers[module_.extra[k + 1]], module_.extra[k + 2],
                &lane.registers[module_.extra[k]]);
  lane.calls.push_back({lane.at + 1, i.to, lane.block});
  lane.at = i.a;
}

void Machine::leave(Lane& lane, const Instruction& i) {
  const Frame frame = lane.calls.back();
  lane.calls.pop_back();
  if (i.op == Op::OpReturnValue)
    std::copy_n(&lane.registers[i.a], i.n, &lane.registers[frame.result]);
  lane.at = frame.back;
  lane.block = frame.block;
  if (lane.calls.empty()) lane.state = State::ended;
}

// All phis of a block take their values at once: one may read another.
void Machine::pass_phis(Lane& lane) {
  std::vector<uint32_t> values;
  const uint32_t first = lane.at;
  for (; module_.code[lane.at].op == Op::OpPhi; ++lane.at) {
    const Instruction& i = module_.code[lane.at];
    for (uint32_t k = i.extra; k < i.extra + i.extra_count; k += 2)
      if (module_.extra[k + 1] == lane.from)
        values.insert(values.end(), &lane.registers[module_.extra[k]],
                      &lane.registers[module_.extra[k]] + i.n);
  }
  size_t taken = 0;
  for (uint32_t at = first; at < lane.at; taken += module_.code[at].n, ++at)
    std::copy_n(&values.at(taken), module_.code[at].n, &lane.registers[module_.code[at].to]);
}

void Machine::address(Lane& lane, const Instruction& i) {
  uint64_t to = pointer_in(lane, i.a) + i.b;
  for (uint32_t k = i.extra; k < i.extra + i.extra_count; ++k) {
    const Step& step = module_.steps[k];
    const uint32_t index = lane.registers[step.index];
    if (step.count && index >= step.count)
      fail(Code::internal, "takes element ", static_cast<int32_t>(index), " of an array of ",
           step.count);
    const int64_t by = step.is_signed ? int64_t{static_cast<int32_t>(index)} : int64_t{index};
    to += static_cast<uint64_t>(by * step.stride);
  }
  lane.registers[i.to] = static_cast<uint32_t>(to);
  lane.registers[i.to + 1] = static_cast<uint32_t>(to >> 32);
}

Machine::Place Machine::find_in_buffer(size_t buffer, uint64_t offset, Use use) {
  const char* does = use == Use::load ? "reads" : "writes";
  if (buffer >= buffers_.size())
    fail(Code::internal, does, " buffer ", buffer, ", which there is not");
  const Argument& in = buffers_[buffer];
  if (offset % 4 || offset >= in.size_bytes)
    fail(Code::internal, does, " byte ", static_cast<int64_t>(offset << 8) >> 8, " of buffer ",
         buffer, ", which has ", in.size_bytes);
  const Storage::Word word = in.storage->word(in.offset + offset);
  if (use == Use::store && !in.writes)
    fail(Code::internal, "writes buffer ", buffer, ", which it is given to read");
  if (use == Use::load && !in.reads && word.state == Storage::State::fetched)
    fail(Code::internal, "reads byte ", offset, " of buffer ", buffer,
         " before it has written it, which is all that the buffer was given for");
  return {&word.value, &word.state, &word.trace, buffer, offset};
}

// If several buffers contain the address, takes the one that allows this use.
Machine::Place Machine::find_by_address(uint64_t address, Use use) {
  size_t in = buffers_.size(), behind = in;  // the buffer, or one that the address narrowly misses
  for (size_t k = 0; k < buffers_.size(); ++k) {
    const Argument& buffer = buffers_[k];
    const uint64_t offset = address - buffer.address;
    if (offset >= buffer.size_bytes) {
      if (offset < buffer.size_bytes + 4096) behind = k;
    } else if (in == buffers_.size() || (use == Use::load ? buffer.reads : buffer.writes)) {
      in = k;
    }
  }
  if (in == buffers_.size()) in = behind;
  if (in == buffers_.size())
    fail(Code::internal, use == Use::load ? "reads" : "writes", " outside all of its buffers");
  return find_in_buffer(in, address - buffers_[in].address, use);
}

Machine::Place Machine::find(Lane& lane, uint64_t pointer, Use use) {
  const auto space = static_cast<Space>(pointer >> kSpaceShift);
  const uint64_t offset = pointer & ((uint64_t{1} << kSpaceShift) - 1);
  const auto in = [&](std::vector<uint32_t>& memory, const char* name) -> uint32_t* {
    if (offset / 4 >= memory.size())
      fail(Code::internal, "is at byte ", offset, " of ", name, " of ", 4 * memory.size());
    return &memory[offset / 4];
  };
  switch (space) {
    case Space::input: return {in(input_, "inputs"), nullptr, nullptr, kNoBuffer, offset};
    case Space::push: return {in(push_, "push constants"), nullptr, nullptr, kNoBuffer, offset};
    case Space::own: return {in(lane.own, "variables"), nullptr, nullptr, kNoBuffer, offset};
    case Space::shared: {
      uint32_t* value = in(shared_, "shared memory");
      if (use == Use::load && !shared_written_[offset / 4])
        fail(Code::internal, "reads byte ", offset, " of shared memory, which nobody has written");
      if (use == Use::store) shared_written_[offset / 4] = true;
      return {value, nullptr, &shared_traces_[offset / 4], kNoBuffer, offset};
    }
    case Space::address: return find_by_address(pointer, use);
    default:
      return find_in_buffer(static_cast<size_t>(space) - static_cast<size_t>(Space::first_binding),
                            offset, use);
  }
}

// Returns whether what `other` did in stretch `then` is ordered before what this lane does now.
bool Machine::in_order(uint32_t other, uint32_t then, bool is_shared) const {
  const uint32_t self = first_invocation_ + lane_;
  if (other == 0 || other == self) return true;
  return other >= first_invocation_ && then < stretch(is_shared);
}

std::string Machine::name_of(const Place& place) const {
  return cat("byte ", place.offset, " of ",
             place.is_shared() ? "shared memory" : cat("buffer ", place.buffer));
}

void Machine::note_load(const Place& place) {
  Trace& trace = *place.trace;
  if (!in_order(trace.writer, trace.writer_stretch, place.is_shared()))
    fail(Code::internal, "reads ", name_of(place),
         ", which another invocation writes, with no barrier between them");
  const uint32_t self = first_invocation_ + lane_, now = stretch(place.is_shared());
  if (trace.reader != 0 && trace.reader < first_invocation_) trace.others_read = true;
  trace.many_read = trace.reader_stretch == now && (trace.many_read || trace.reader != self);
  trace.reader = self;
  trace.reader_stretch = now;
}

void Machine::note_store(const Place& place, uint32_t value) {
  Trace& trace = *place.trace;
  const bool changes = *place.value != value;
  const bool read_by_others =
      trace.others_read || !in_order(trace.reader, trace.reader_stretch, place.is_shared()) ||
      (trace.many_read && trace.reader_stretch == stretch(place.is_shared()));
  if (changes &&
      (read_by_others || !in_order(trace.writer, trace.writer_stretch, place.is_shared())))
    fail(Code::internal, "writes ", name_of(place), ", which another invocation ",
         read_by_others ? "reads" : "writes otherwise", ", with no barrier between them");
  trace.writer = first_invocation_ + lane_;
  trace.writer_stretch = stretch(place.is_shared());
}

void Machine::load(Lane& lane, const Instruction& i) {
  const uint64_t from = pointer_in(lane, i.a);
  if (from % i.c != 0)
    fail(Code::internal, "reads a number of ", i.c, " bytes that begins at no multiple of them");
  for (uint32_t k = 0; k < i.n; ++k) {
    const Place place = find(lane, from + (i.b ? module_.layouts[i.b - 1][k] : 4 * k), Use::load);
    if (place.trace) note_load(place);
    lane.registers[i.to + k] = *place.value;
  }
}

void Machine::store(Lane& lane, const Instruction& i) {
  const uint64_t to = pointer_in(lane, i.a);
  if (to % i.extra_count != 0)
    fail(Code::internal, "writes a number of ", i.extra_count,
         " bytes that begins at no multiple of them");
  for (uint32_t k = 0; k < i.n; ++k) {
    const Place place = find(lane, to + (i.c ? module_.layouts[i.c - 1][k] : 4 * k), Use::store);
    const uint32_t value = lane.registers[i.b + k];
    if (place.trace) note_store(place, value);
    *place.value = value;
    if (place.state)
      *place.state = i.to ? Storage::State::written_float : Storage::State::written_integer;
  }
}

uint32_t Machine::length(const Lane& lane, const Instruction& i) {
  const uint64_t base = pointer_in(lane, i.a);
  const size_t buffer = (base >> kSpaceShift) - static_cast<size_t>(Space::first_binding);
  if (buffer >= buffers_.size()) fail(Code::unsupported, "the length of what is no buffer");
  return static_cast<uint32_t>((buffers_[buffer].size_bytes - i.b) / i.c);
}

void Machine::meet() {
  bool any = false;
  for (size_t first = 0; first < lanes_.size(); first += grid_.subgroup_size) {
    const size_t last = std::min(first + grid_.subgroup_size, lanes_.size());
    const bool waits =
        std::any_of(lanes_.begin() + static_cast<ptrdiff_t>(first),
                    lanes_.begin() + static_cast<ptrdiff_t>(last),
                    [](const Lane& lane) { return lane.state == State::at_subgroup; });
    if (waits) join_subgroup(first, last);
    any = any || waits;
  }
  if (any) return;
  const auto waits = [](const Lane& lane) { return lane.state == State::at_barrier; };
  const auto first = std::find_if(lanes_.begin(), lanes_.end(), waits);
  if (first == lanes_.end()) return;
  const uint32_t at = first->at;
  for (lane_ = 0; lane_ < lanes_.size(); ++lane_)
    if (!waits(lanes_[lane_]) || lanes_[lane_].at != at)
      fail(Code::internal, waits(lanes_[lane_]) ? "waits at another barrier" : "has ended",
           " where others of its workgroup wait at a barrier");
  const uint32_t semantics = module_.code[at].a;
  const bool orders_buffers = has(semantics, spv::MemorySemanticsMask::UniformMemory) ||
                              std::all_of(lanes_.begin(), lanes_.end(),
                                          [](const Lane& lane) { return lane.orders_buffers; });
  if (has(semantics, spv::MemorySemanticsMask::WorkgroupMemory)) ++shared_stretch_;
  if (orders_buffers) ++buffer_stretch_;
  for (Lane& lane : lanes_) {
    lane.orders_buffers = false;
    ++lane.at;
    lane.state = State::running;
  }
}

// Executes a subgroup instruction for the lanes that wait at the same one.
void Machine::join_subgroup(size_t first, size_t last) {
  uint32_t at = ~0u;
  for (size_t k = first; k < last; ++k)
    if (lanes_[k].state == State::at_subgroup) at = std::min(at, lanes_[k].at);
  const auto takes_part = [&](size_t k) {
    return lanes_[k].state == State::at_subgroup && lanes_[k].at == at;
  };
  const Instruction& i = module_.code[at];
  std::vector<uint32_t> joined;
  for (size_t k = first; k < last; ++k) {
    if (!takes_part(k)) continue;
    const uint32_t* own = &lanes_[k].registers[i.a];
    if (i.op == Op::OpGroupNonUniformBroadcast) {
      const size_t source = first + lanes_[k].registers[i.b];
      if (source >= last || !takes_part(source))
        fail(Code::internal, "takes the value of invocation ", source, ", which is not there");
      joined.assign(&lanes_[source].registers[i.a], &lanes_[source].registers[i.a] + i.n);
    } else if (joined.empty()) {
      joined.assign(own, own + i.n);
    } else {
      for (uint32_t c = 0; c < i.n; ++c) {
        const float a = std::bit_cast<float>(joined[c]), b = std::bit_cast<float>(own[c]);
        joined[c] = std::bit_cast<uint32_t>(i.op == Op::OpGroupNonUniformFAdd   ? a + b
                                            : i.op == Op::OpGroupNonUniformFMax ? std::fmax(a, b)
                                                                                : std::fmin(a, b));
      }
    }
  }
  for (size_t k = first; k < last; ++k) {
    if (!takes_part(k)) continue;
    std::copy(joined.begin(), joined.end(), &lanes_[k].registers[i.to]);
  }
  for (size_t k = first; k < last; ++k)
    if (takes_part(k)) {
      lanes_[k].state = State::running;
      ++lanes_[k].at;
    }
}

}  // namespace etr::spirv
