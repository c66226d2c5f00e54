// Who is to blame when an operation of a group does not end.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "exchange/helper_protocol.h"

namespace etr::exchange {

enum class NoticeKind : uint32_t {
  ask = 1,  // which operation are you at?
  answer,   // at this
  failed,   // the group has ended, for this reason
  leave,    // my rank is done with the group, after this operation
};

// What the engines of a group tell each other beside its operations.
struct Notice {
  NoticeKind kind;
  Operation operation;  // what goes on here; 0: nothing
  uint64_t collective;  // how many operations of all ranks have begun here
  uint64_t count;
  Failure failure;
};

// A failure with a text; RankLost where it says who is missing.
Failure failure_of(Code code, const std::string& message, std::vector<int> missing = {});

// An operation of this rank is late, and the others have been asked where they are: those who have not begun it are missing.
struct Late {
  const Call& call;
  int rank, size;
  uint64_t collective;
  const std::map<int, Notice>& answers;
};
Failure verdict_on(const Late& late);

}  // namespace etr::exchange
