// Traces of pipelines with an echo node.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/parse_json.h"
#include "support/data.h"

namespace etr::test {

using pipeline::Item;
using pipeline::Pipeline;

inline Json spec_of(const std::string& pattern, const std::string& echo,
                    const std::string& behind = "", double delay_ms = 0, int epochs = 1) {
  std::string stages = R"([{"stage": "webdataset", "pattern": ")" + pattern +
                       R"("}, {"stage": "label", "field": "txt"})";
  if (delay_ms > 0)
    stages += R"(, {"stage": "delay", "milliseconds": )" + std::to_string(delay_ms) + "}";
  return {{"seed", 2},
          {"epochs", epochs},
          {"stages", parse_json(stages + ", " + echo + behind + "]", "test")}};
}

using Trace = std::vector<std::tuple<uint64_t, uint32_t, double>>;  // ordinal, replica, age

// Returns the trace of the rest of the epoch, of at most `limit` items, and spends `step_s` seconds
// on each item.
inline Trace trace_of_epoch(Pipeline& p, double step_s = 0, size_t limit = SIZE_MAX) {
  Trace trace;
  for (Item item; trace.size() < limit && p.next(item) == Pipeline::Next::item;) {
    trace.emplace_back(item.ordinal, item.replica, item.age);
    if (step_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(step_s));
  }
  return trace;
}

inline int64_t fresh_of(const Trace& trace) {
  return std::count_if(trace.begin(), trace.end(),
                       [](const auto& row) { return std::get<1>(row) == 0; });
}

inline double given_over_fresh(const Trace& trace) {
  return static_cast<double>(trace.size()) / static_cast<double>(fresh_of(trace));
}

}  // namespace etr::test
