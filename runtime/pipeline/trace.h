// Records what a pipeline's threads did and when: the newest events, for a Chrome trace.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/json_fwd.h"

namespace etr::pipeline {

// Thread safe. With capacity 0 it records nothing and costs one comparison.
class Trace {
 public:
  explicit Trace(size_t capacity) : capacity_(capacity) {}

  // Records work on `items` items by the calling thread. `name` must outlive the trace.
  void add(const std::string& name, int64_t begin_ns, int64_t end_ns, size_t items) {
    if (capacity_ > 0) record(name, begin_ns, end_ns, items);
  }

  // {"traceEvents": [...]}, one track per thread. Throws Error(state) if nothing is recorded.
  Json json() const;

 private:
  struct Event {
    const std::string* name;
    int64_t begin_ns, end_ns;
    size_t items;
    int thread;
  };

  void record(const std::string& name, int64_t begin_ns, int64_t end_ns, size_t items);

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;  // a ring buffer once full
  size_t next_ = 0;
  std::map<std::thread::id, int> threads_;
};

}  // namespace etr::pipeline
