// The protocol between the library and an engine's helper process (helper.h). Both come from one
// build and run on one machine, so frames hold these structs as they lie in memory.
#pragma once

#include <echotrain/engine.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace etr::exchange {

enum class FrameKind : uint32_t {
  // From the library.
  join = 1,  // Join, then the address to listen on: form the group
  value,     // the answer to `get`
  call,      // Call, then one uint64_t for each rank if the operation takes them
  abort,     // a reason: end the group, and tell the other ranks
  leave,     // leave the group
  // From the helper.
  set,     // a rendezvous key, NUL, its value
  get,     // a rendezvous key: send its value as soon as it is set
  ready,   // the group has formed
  done,    // answer to call: it is done; to leave: all ranks have left
  failed,  // Failure: the helper has ended
};

struct Join {
  int32_t rank, size;
  int32_t interface;  // whether the address is the name of a network interface
  int32_t reserved;
  double timeout_s;
};

enum class Operation : int32_t {
  all_reduce = 1,
  reduce_scatter,
  all_gather,
  broadcast,
  barrier,
  send,
  receive
};

inline const char* operation_name(Operation operation) {
  switch (operation) {
    case Operation::all_reduce: return "all_reduce";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::all_gather: return "all_gather";
    case Operation::broadcast: return "broadcast";
    case Operation::barrier: return "barrier";
    case Operation::send: return "send";
    case Operation::receive: return "receive";
  }
  return "no operation";
}

// Returns whether all ranks take part.
inline bool is_collective(Operation operation) {
  return operation != Operation::send && operation != Operation::receive;
}

struct Call {
  Operation operation;
  int32_t number, reduction;
  int32_t peer;  // the root, or the other rank
  uint32_t tag;
  uint32_t reserved;
  uint64_t count;  // of numbers, or of bytes
  double timeout_s;
  uint64_t memory;   // the size in bytes of the part of the shared memory that the call uses
  uint64_t in, out;  // offsets of the input and the output; equal if there is one array
};

struct Failure {
  int32_t status;
  etr_engine_error error;
};

// Returns a frame's payload: a struct and the bytes that follow it.
template <typename T>
std::string payload_of(const T& value, std::string_view rest = {}) {
  std::string out(reinterpret_cast<const char*>(&value), sizeof value);
  return out.append(rest);
}

// Moves the struct at the start of a payload to `value`, and leaves the rest in the payload.
// Returns false if the payload is too short.
template <typename T>
bool take(std::string& payload, T& value) {
  if (payload.size() < sizeof value) return false;
  std::memcpy(&value, payload.data(), sizeof value);
  payload.erase(0, sizeof value);
  return true;
}

}  // namespace etr::exchange
