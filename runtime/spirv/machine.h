// Runs a compute shader on the host as SPIR-V specifies, one invocation after another between
// barriers.
//
// It has two uses. A driver's results are compared with these (gpu/comparison.h). And it finds
// faults that no driver reports, as Error(internal): loads and stores outside a buffer or an array,
// buffers used in a way that was not declared, shared memory that is read before it is written,
// barriers that not all invocations reach, and races. A race is two invocations that access a word
// with no barrier between them, at least one of them writing. Two that write the same value are no
// race.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spirv/module.h"
#include "spirv/storage.h"

namespace etr::spirv {

// A buffer argument of a kernel: a byte range of a storage.
struct Argument {
  Storage* storage = nullptr;
  uint64_t offset = 0, size_bytes = 0;
  uint64_t address = 0;  // device address of its first byte, if the kernel takes addresses
  // The declared accesses. A buffer that is not declared as read may still be read where the kernel
  // has written it.
  bool reads = true, writes = true;
};

class Machine {
 public:
  struct Grid {
    std::array<uint32_t, 3> groups{1, 1, 1};
    uint32_t subgroup_size = 1;
  };

  // If the module takes buffers by address, `push` begins with the addresses of `buffers`. The
  // module and the storages must outlive the machine.
  Machine(const Module& module, std::vector<Argument> buffers, std::span<const std::byte> push,
          const Grid& grid);

  // Runs a workgroup. Returns false if it took more than `most_instructions` and was aborted.
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
    uint32_t at = 0, block = 0, from = 0;  // instruction; labels of its block and of the one before
    State state = State::running;
    // Has executed a memory barrier for buffers since the last barrier.
    bool orders_buffers = false;
  };
  enum class Use { load, store };

  void begin(uint32_t lane, std::array<uint32_t, 3> group);
  void advance(Lane& lane);  // runs the lane until it waits or ends
  bool step(Lane& lane, const Instruction& i);
  void enter(Lane& lane, const Instruction& i);
  void leave(Lane& lane, const Instruction& i);
  void pass_phis(Lane& lane);
  void address(Lane& lane, const Instruction& i);
  void load(Lane& lane, const Instruction& i);
  void store(Lane& lane, const Instruction& i);
  uint32_t length(const Lane& lane, const Instruction& i);
  void meet();  // called when all wait: at a barrier, or for their subgroup
  void join_subgroup(size_t first, size_t last);

  struct Place {
    uint32_t* value;
    Storage::State* state;  // only for words of buffers
    Trace* trace;           // only for words that invocations share
    size_t buffer;          // kNoBuffer: not in a buffer
    uint64_t offset;
    bool is_shared() const { return buffer == kNoBuffer; }  // valid for words with a trace
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
  std::vector<uint32_t> input_;  // of the running lane
  std::vector<uint32_t> shared_;
  std::vector<Trace> shared_traces_;
  std::vector<bool> shared_written_;
  std::array<uint32_t, 3> group_{};
  uint32_t first_invocation_ = 1;  // number of the workgroup's first invocation among all so far
  uint32_t lane_ = 0;
  // Stretches between barriers, counted separately for shared memory and for buffers, because not
  // every barrier orders buffers.
  uint32_t shared_stretch_ = 1, buffer_stretch_ = 1;
  uint64_t instructions_ = 0, most_ = 0;
};

}  // namespace etr::spirv
