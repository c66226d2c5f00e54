// The only interface to oneTBB: a flow graph with its own threads, as two simple primitives.
#pragma once

#include <functional>
#include <memory>

#include "pipeline/chunk.h"

namespace etr::pipeline {

// Runs a function each time it is poked, never twice concurrently.
class Task {
 public:
  virtual ~Task() = default;
  virtual void poke() = 0;  // thread safe; at least one full run follows, unless stopped
  virtual void stop() {}    // ends the task's thread, if it has one; later pokes do nothing
};

// Passes chunks through a parallel function, then through a serial one, in order or as they finish.
class Path {
 public:
  virtual ~Path() = default;
  virtual void put(Chunk&& chunk) = 0;  // sequence numbers must be 0, 1, 2, ... without gaps
};

struct PathOptions {
  bool ordered = true;
  int threads = 0;  // that the parallel function takes at once; 0: all
};

// Functions must not throw: an exception would cancel the graph and lose messages in flight.
class FlowGraph {
 public:
  explicit FlowGraph(int threads);
  ~FlowGraph();
  FlowGraph(const FlowGraph&) = delete;
  FlowGraph& operator=(const FlowGraph&) = delete;

  // Tasks and paths must be destroyed after finish().
  std::unique_ptr<Task> make_task(std::function<void()> run);
  std::unique_ptr<Path> make_path(std::function<void(Chunk&)> parallel,
                                  std::function<void(Chunk&&)> one_by_one, PathOptions options);

  void finish();  // waits until no message is in flight; no poke() or put() may follow

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A task with its own thread, for functions that block.
std::unique_ptr<Task> make_thread_task(std::function<void()> run);

}  // namespace etr::pipeline
