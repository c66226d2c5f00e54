// Runs a compute shader on the host, as SPIR-V says, one invocation after the other between barriers.
//
// Two uses: a driver's results are compared with these (gpu/comparison.h), and what no driver tells is told here: Error(internal) for
// a load or store outside a buffer or an array, for buffers used otherwise than declared, for shared memory that is read
// before it is written, for barriers that not all invocations reach, and for races: two invocations that touch a word, at least
// one of them to write it, with no barrier between them. Two that write the same are no race.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spirv/module.h"
#include "spirv/storage.h"

namespace etr::spirv {

// A buffer that a kernel is given: a range of a storage, in bytes.
struct Argument {
  Storage* storage = nullptr;
  uint64_t offset = 0, size_bytes = 0;
  uint64_t address = 0;  // of its first byte on the device, where the kernel takes addresses
  // What the kernel was declared to do with it. What it does not read it may read once it has written it.
  bool reads = true, writes = true;
};

class Machine {
 public:
  struct Grid {
    std::array<uint32_t, 3> groups{1, 1, 1};
    uint32_t subgroup_size = 1;
  };

  // `push` has the addresses of `buffers` at its head where the module takes them so. The module and the storages must
  // outlive the machine.
  Machine(const Module& module, std::vector<Argument> buffers, std::span<const std::byte> push,
          const Grid& grid);

  // A workgroup. False: it took more than `most_instructions`, and was given up.
  bool run(std::array<uint32_t, 3> group, uint64_t most_instructions = ~uint64_t{0});

  uint64_t instructions() const { return instructions_; }  // so far

 private:
  enum class State { running, at_barrier, at_subgroup, ended };
  struct Frame {
    uint32_t back = 0, result = 0, block = 0;
  };
  struct Lane {
    std::vector<uint32_t> registers, own;
    std::vector<Frame> calls;
    uint32_t at = 0, block = 0, from = 0;  // the instruction; the block's label and that before it
    State state = State::running;
    bool orders_buffers = false;  // it has, with a memory barrier, since the last barrier
  };
  enum class Use { load, store };

  void begin(uint32_t lane, std::array<uint32_t, 3> group);
  void advance(Lane& lane);  // until it waits or ends
  bool step(Lane& lane, const Instruction& i);
  void enter(Lane& lane, const Instruction& i);
  void leave(Lane& lane, const Instruction& i);
  void pass_phis(Lane& lane);
  void address(Lane& lane, const Instruction& i);
  void load(Lane& lane, const Instruction& i);
  void store(Lane& lane, const Instruction& i);
  uint32_t length(const Lane& lane, const Instruction& i);
  void meet();  // all wait: at a barrier, or lanes of a subgroup for each other
  void join_subgroup(size_t first, size_t last);

  struct Place {
    uint32_t* value;
    Storage::State* state;  // of a buffer's word
    Trace* trace;           // of words that invocations share
    size_t buffer;          // kNoBuffer: elsewhere
    uint64_t offset;
    bool is_shared() const { return buffer == kNoBuffer; }  // of words with a trace
  };
  static constexpr size_t kNoBuffer = ~size_t{0};
  Place find(Lane& lane, uint64_t pointer, Use use);
  Place find_by_address(uint64_t address, Use use);
  Place find_in_buffer(size_t buffer, uint64_t offset, Use use);
  uint64_t pointer_in(const Lane& lane, uint32_t reg) const {
    return lane.registers[reg] | static_cast<uint64_t>(lane.registers[reg + 1]) << 32;
  }
  uint32_t stretch(bool is_shared) const { return is_shared ? shared_stretch_ : buffer_stretch_; }
  bool in_order(uint32_t other, uint32_t then, bool is_shared) const;
  std::string name_of(const Place& place) const;
  void note_load(const Place& place);
  void note_store(const Place& place, uint32_t value);

  const Module& module_;
  std::vector<Argument> buffers_;
  std::vector<uint32_t> push_;
  Grid grid_;
  std::vector<Lane> lanes_;
  std::vector<uint32_t> input_;  // of the lane that runs
  std::vector<uint32_t> shared_;
  std::vector<Trace> shared_traces_;
  std::vector<bool> shared_written_;
  std::array<uint32_t, 3> group_{};
  uint32_t first_invocation_ = 1;  // of the workgroup, counted through all that were run
  uint32_t lane_ = 0;
  // Stretches between barriers, for shared memory and for buffers, which not every barrier orders.
  uint32_t shared_stretch_ = 1, buffer_stretch_ = 1;
  uint64_t instructions_ = 0, most_ = 0;
};

}  // namespace etr::spirv
