// Decides which ranks are to blame when an operation of a group does not complete.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "exchange/helper_protocol.h"

namespace etr::exchange {

enum class NoticeKind : uint32_t {
  ask = 1,  // which operation are you in?
  answer,   // I am in this one
  failed,   // the group has ended, for this reason
  leave,    // my rank leaves the group after this operation
};

// A message that the engines of a group send each other outside its operations.
struct Notice {
  NoticeKind kind;
  Operation operation;  // the current operation of the sender; 0: none
  uint64_t collective;  // the number of collective operations the sender has begun
  uint64_t count;
  Failure failure;
};

// Returns a failure with a message. Code::rank_lost names the missing ranks.
Failure failure_of(Code code, const std::string& message, std::vector<int> missing = {});

// A late operation of this rank, and what the other ranks answered about theirs. Those that have
// not begun it are missing.
struct Late {
  const Call& call;
  int rank, size;
  uint64_t collective;
  const std::map<int, Notice>& answers;
};
Failure verdict_on(const Late& late);

}  // namespace etr::exchange
