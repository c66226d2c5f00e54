// What the library and an engine's helper process say to each other (helper.h). Both are of one build, on one machine: frames
// hold these structs as they lie in memory.
#pragma once

#include <echotrain/engine.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace etr::exchange {

enum class FrameKind : uint32_t {
  // From the library.
  join = 1,  // Join, then the address to listen on: form the group
  value,     // what `get` asked for
  call,      // Call, then uint64_t for each rank where the operation has them
  abort,     // a reason: end the group, and tell the other ranks
  leave,     // the group is done with
  // From the helper.
  set,     // a key of the rendezvous, NUL, its value
  get,     // a key of the rendezvous: send its value when there is one
  ready,   // the group stands
  done,    // the call is done; all ranks have left
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

// Whether all ranks take part.
inline bool is_collective(Operation operation) {
  return operation != Operation::send && operation != Operation::receive;
}

struct Call {
  Operation operation;
  int32_t number, reduction;
  int32_t peer;  // the root, or the other rank
  uint32_t tag;
  uint32_t reserved;
  uint64_t count;  // numbers, or bytes
  double timeout_s;
  uint64_t memory;  // bytes of the shared memory, of which the call uses some
  uint64_t in, out;  // where its input begins, and its output; the same where it has one array only
};

struct Failure {
  int32_t status;
  etr_engine_error error;
};

// A struct, and what follows it, as a frame's payload.
template <typename T>
std::string payload_of(const T& value, std::string_view rest = {}) {
  std::string out(reinterpret_cast<const char*>(&value), sizeof value);
  return out.append(rest);
}

// The struct at the start of a payload; the payload becomes what follows it. False where it is too short.
template <typename T>
bool take(std::string& payload, T& value) {
  if (payload.size() < sizeof value) return false;
  std::memcpy(&value, payload.data(), sizeof value);
  payload.erase(0, sizeof value);
  return true;
}

}  // namespace etr::exchange
