// Conversions between the library's types and the C API's that trainers and runs share.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "functions.h"
#include "handles.h"
#include "train/profile.h"

namespace etr::capi {

inline train::EvalProgress progress_of(int32_t (*progress)(void*, int64_t, int64_t),
                                       std::shared_ptr<void> user_data) {
  if (!progress) return {};
  return [progress, user_data](int64_t done, int64_t batches) {
    return goes_on(progress, user_data.get(), done, batches);
  };
}

inline void fill_result(etr_eval_result* result, const train::EvalMetrics& m) {
  etr_eval_result out{};
  out.samples = m.samples;
  out.loss = m.loss;
  out.accuracy = m.accuracy;
  fill_struct(result, out);
}

// Calls `measure` once the arguments are checked, and returns its profile in that format.
inline std::string profile_as(const char* format, int32_t steps,
                              const std::function<Json()>& measure) {
  const std::string kind = &required(format, "format");
  const std::string kinds[] = {"text", "json", "trace"};
  if (std::find(std::begin(kinds), std::end(kinds), kind) == std::end(kinds))
    fail(Code::invalid_argument, "a profile has no format '", kind, "'", suggestion(kind, kinds));
  if (steps < 1)
    fail(Code::invalid_argument, "profile: steps is ", steps, "; it takes one or more");
  Json profile = measure();
  if (kind == "trace") return Json{{"traceEvents", std::move(profile["traceEvents"])}}.dump();
  remove_member(profile, "traceEvents");
  return kind == "json" ? profile.dump() : train::profile_text(profile);
}

}  // namespace etr::capi
