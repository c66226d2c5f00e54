#include "exchange/engines/verdict.h"

#include "exchange/failure.h"

namespace etr::exchange {

Failure failure_of(Code code, const std::string& message, std::vector<int> missing) {
  Failure out{};
  out.error.struct_size = sizeof out.error;
  describe(RankLost(message, std::move(missing)), &out.error);
  out.status = static_cast<int32_t>(code);
  return out;
}

namespace {

Failure no_message(const Late& late) {
  const Call& call = late.call;
  const bool sends = call.operation == Operation::send;
  return failure_of(
      Code::rank_lost,
      cat("rank ", call.peer, " did not ", sends ? "receive" : "send", " a message with the tag ",
          call.tag, sends ? " from" : " to", " rank ", late.rank, " within ", call.timeout_s, " s"),
      {call.peer});
}

// The verdict if all ranks came but the operation did not complete.
Failure disagreement(const Late& late) {
  const char* const name = operation_name(late.call.operation);
  for (const auto& [rank, other] : late.answers) {
    if (other.collective != late.collective ||
        (other.operation == late.call.operation && other.count == late.call.count))
      continue;
    return failure_of(
        Code::invalid_argument,
        cat("rank ", late.rank, " calls ", name, " of ", late.call.count, ", and rank ", rank, " ",
            operation_name(other.operation), " of ", other.count,
            ": all ranks have to make the same calls in the same order"));
  }
  return failure_of(
      Code::io,
      cat(name, " did not end within ", late.call.timeout_s,
          " s, although all ranks came: the network is slow, or the ranks disagree about sizes"));
}

}  // namespace

Failure verdict_on(const Late& late) {
  if (!is_collective(late.call.operation)) return no_message(late);
  std::vector<int> missing;
  for (int r = 0; r < late.size; ++r) {
    if (r == late.rank) continue;
    const auto answer = late.answers.find(r);
    if (answer == late.answers.end() || answer->second.collective < late.collective)
      missing.push_back(r);
  }
  if (missing.empty()) return disagreement(late);
  return failure_of(Code::rank_lost,
                    absence_text(missing, operation_name(late.call.operation), late.collective,
                                 late.call.timeout_s),
                    missing);
}

}  // namespace etr::exchange
