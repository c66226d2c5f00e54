// The only door to oneTBB: a flow graph with threads of its own, as two small primitives.
#pragma once

#include <functional>
#include <memory>

#include "pipeline/chunk.h"

namespace etr::pipeline {

// Runs a function again and again, never twice at once, each time someone pokes it.
class Task {
 public:
  virtual ~Task() = default;
  virtual void poke() = 0;  // any thread; at least one whole run follows, unless stopped
  virtual void stop() {}    // a task with a thread ends it; later pokes do nothing
};

// Carries chunks through a parallel function, and puts them back in order or leaves them as they come.
class Path {
 public:
  virtual ~Path() = default;
  virtual void put(Chunk&& chunk) = 0;  // sequence numbers 0, 1, 2, ... without gaps
};

// Functions must not throw: an exception would cancel the graph and lose what is in flight.
class FlowGraph {
 public:
  explicit FlowGraph(int threads);
  ~FlowGraph();
  FlowGraph(const FlowGraph&) = delete;
  FlowGraph& operator=(const FlowGraph&) = delete;

  // Destroy them after finish().
  std::unique_ptr<Task> make_task(std::function<void()> run);
  std::unique_ptr<Path> make_path(std::function<void(Chunk&)> parallel,
                                  std::function<void(Chunk&&)> one_by_one, bool ordered);

  void finish();  // waits until no message is in flight; nobody may poke or put afterwards

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A task on a thread of its own, for functions that block.
std::unique_ptr<Task> make_thread_task(std::function<void()> run);

}  // namespace etr::pipeline
