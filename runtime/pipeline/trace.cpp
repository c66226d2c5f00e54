#include "pipeline/trace.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/json.h"

namespace etr::pipeline {

void Trace::record(const std::string& name, int64_t begin_ns, int64_t end_ns, size_t items) {
  std::scoped_lock lock(mutex_);
  const int thread =
      threads_.try_emplace(std::this_thread::get_id(), static_cast<int>(threads_.size()) + 1)
          .first->second;
  const Event event{&name, begin_ns, end_ns, items, thread};
  if (events_.size() < capacity_)
    events_.push_back(event);
  else
    events_[next_++ % capacity_] = event;
}

Json Trace::json() const {
  if (capacity_ == 0)
    fail(Code::state,
         "the pipeline keeps no trace; set its option 'trace_events', for instance to 100000");
  std::scoped_lock lock(mutex_);
  Json rows = Json::array();
  // A thread is named after the stage that it ran, or "worker" if it ran several.
  std::map<int, std::set<std::string>> seen;
  for (const Event& e : events_) seen[e.thread].insert(*e.name);
  for (const auto& [thread, names] : seen) {
    const std::string label = names.size() == 1 ? *names.begin() : cat("worker ", thread);
    rows.push_back({{"name", "thread_name"},
                    {"ph", "M"},
                    {"pid", 1},
                    {"tid", thread},
                    {"args", {{"name", label}}}});
  }
  std::vector<Event> ordered = events_;
  std::sort(ordered.begin(), ordered.end(),
            [](const Event& a, const Event& b) { return a.begin_ns < b.begin_ns; });
  for (const Event& e : ordered)
    rows.push_back({{"name", *e.name},
                    {"ph", "X"},
                    {"pid", 1},
                    {"tid", e.thread},
                    {"ts", static_cast<double>(e.begin_ns - ordered.front().begin_ns) * 1e-3},
                    {"dur", static_cast<double>(e.end_ns - e.begin_ns) * 1e-3},
                    {"args", {{"items", e.items}}}});
  return {{"traceEvents", std::move(rows)}, {"displayTimeUnit", "ms"}};
}

}  // namespace etr::pipeline
