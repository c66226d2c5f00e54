// Errors of groups: which ranks are missing, and how errors cross an engine's table.
#pragma once

#include <echotrain/engine.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace etr::exchange {

// Ranks of the group are dead, frozen or unreachable, or did not take part in time.
class RankLost : public Error {
 public:
  RankLost(std::string message, std::vector<int> missing)
      : Error(Code::rank_lost, message), missing_(std::move(missing)) {}
  const std::vector<int>& missing() const { return missing_; }

 private:
  std::vector<int> missing_;
};

std::string ranks_text(std::span<const int> ranks);  // "rank 3", "ranks 1, 2 and 5"

// "ranks 1 and 2 did not come to all_reduce, operation 17 of this group, within 60 s"
std::string absence_text(std::span<const int> missing, const char* operation, uint64_t ordinal,
                         double timeout_s);

// Writes as much of a message as fits, without splitting a UTF-8 character.
void copy_message(std::string_view message, etr_engine_error* out);

// Describes `error` in `out`, as an engine reports it, and returns its status.
int32_t describe(const std::exception& error, etr_engine_error* out) noexcept;

// Calls `body` on behalf of a function in an engine's table. An exception becomes a status and
// `error`.
int32_t guarded(etr_engine_error* error, const std::function<void()>& body) noexcept;

// The ranks that an engine's error lists as missing.
std::span<const int> missing_of(const etr_engine_error& error);

// Throws the error that an engine reported, as RankLost or Error.
[[noreturn]] void raise(int32_t status, const etr_engine_error& error);

}  // namespace etr::exchange
