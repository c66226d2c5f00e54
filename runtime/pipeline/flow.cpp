#include "pipeline/flow.h"

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/version.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "core/error.h"
#include "core/platform.h"
#include "core/start_thread.h"

namespace etr::pipeline {
namespace {

namespace tbb = oneapi::tbb;
using Message = std::shared_ptr<Chunk>;  // the graph copies messages, so copies must be cheap

// At most one message is pending: pokes that arrive before the run starts are merged into it.
class GraphTask final : public Task {
 public:
  GraphTask(tbb::flow::graph& graph, std::function<void()> run)
      : run_(std::move(run)), node_(graph, tbb::flow::serial, [this](tbb::flow::continue_msg) {
          pending_.store(false);
          run_();
          return tbb::flow::continue_msg();
        }) {}

  void poke() override {
    if (!pending_.exchange(true)) node_.try_put(tbb::flow::continue_msg());
  }

 private:
  std::function<void()> run_;
  std::atomic<bool> pending_{false};
  tbb::flow::function_node<tbb::flow::continue_msg> node_;
};

class GraphPath final : public Path {
 public:
  GraphPath(tbb::flow::graph& graph, std::function<void(Chunk&)> parallel,
            std::function<void(Chunk&&)> one_by_one, PathOptions options)
      : parallel_(graph,
                  options.threads > 0 ? static_cast<size_t>(options.threads)
                                      : static_cast<size_t>(tbb::flow::unlimited),
                  [work = std::move(parallel)](Message message) {
                    work(*message);
                    return message;
                  }),
        sequencer_(graph, [](const Message& message) { return message->sequence; }),
        one_by_one_(graph, tbb::flow::serial, [take = std::move(one_by_one)](Message message) {
          take(std::move(*message));
          return tbb::flow::continue_msg();
        }) {
    if (!options.ordered) {
      tbb::flow::make_edge(parallel_, one_by_one_);
      return;
    }
    tbb::flow::make_edge(parallel_, sequencer_);
    tbb::flow::make_edge(sequencer_, one_by_one_);
  }

  void put(Chunk&& chunk) override { parallel_.try_put(std::make_shared<Chunk>(std::move(chunk))); }

 private:
  tbb::flow::function_node<Message, Message> parallel_;
  tbb::flow::sequencer_node<Message> sequencer_;
  tbb::flow::function_node<Message> one_by_one_;
};

constexpr char kThread[] = "a thread of the pipeline", kFewer[] = "the pipeline's 'threads'";

class ThreadTask final : public Task {
 public:
  explicit ThreadTask(std::function<void()> run)
      : run_(std::move(run)), thread_(start_thread(kThread, kFewer, [this] { loop(); })) {}
  ~ThreadTask() override { stop(); }

  void stop() override {
    {
      std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  void poke() override {
    {
      std::scoped_lock lock(mutex_);
      pending_ = true;
    }
    changed_.notify_one();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return pending_ || stop_; });
      if (stop_) return;
      pending_ = false;
      lock.unlock();
      run_();
      lock.lock();
    }
  }

  std::function<void()> run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool pending_ = false, stop_ = false;
  std::thread thread_;  // last: it uses the members above
};

// Arenas that are in no use, by their threads, for pipelines with as many. oneTBB before 2021.10
// keeps treating a destroyed arena as busy until its workers have polled it about a hundred times,
// and withholds them from other arenas until then. On busy cores, where each poll takes
// milliseconds, a pipeline that follows others would have a single thread for its first second.
class Arenas {
 public:
  std::unique_ptr<tbb::task_arena> take(int threads) {
    const std::scoped_lock lock(mutex_);
    const auto found = free_.find(threads);
    if (found == free_.end()) return std::make_unique<tbb::task_arena>(threads, 1);
    return std::move(free_.extract(found).mapped());
  }
  void give_back(int threads, std::unique_ptr<tbb::task_arena> arena) noexcept {
    constexpr int kMended = 12100;  // 2021.10
    if (TBB_runtime_interface_version() >= kMended) return;
    try {
      const std::scoped_lock lock(mutex_);
      free_.emplace(threads, std::move(arena));
    } catch (const std::bad_alloc&) {  // then it ends here
    }
  }

 private:
  std::mutex mutex_;
  std::multimap<int, std::unique_ptr<tbb::task_arena>> free_;
};

Arenas& arenas() {
  static auto* const kept = new Arenas;  // never freed: pipelines may end after static objects
  return *kept;
}

}  // namespace

struct FlowGraph::State {
  // The runner occupies the arena's reserved slot, so that tasks run even if TBB has no worker
  // thread for the arena (on a machine with one core).
  explicit State(int wanted) : threads(wanted), arena(arenas().take(wanted)) {
    if (threads > static_cast<int>(platform::usable_threads()))
      control.emplace(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads));
    arena->execute([this] {
      graph.emplace();
      graph->reserve_wait();
    });
    try {
      runner = start_thread(kThread, kFewer,
                            [this] { arena->execute([this] { graph->wait_for_all(); }); });
    } catch (...) {  // without a runner the graph's destructor would never return
      graph->release_wait();
      throw;
    }
  }
  ~State() {
    finish();
    graph.reset();
    arenas().give_back(threads, std::move(arena));
  }

  void finish() {
    if (!runner.joinable()) return;
    graph->release_wait();
    runner.join();  // wait_for_all() returns when the last message is done
  }

  std::optional<tbb::global_control> control;
  const int threads;
  std::unique_ptr<tbb::task_arena> arena;
  std::optional<tbb::flow::graph> graph;
  std::thread runner;
};

FlowGraph::FlowGraph(int threads) {
  // oneTBB's threads do not survive fork(), and oneTBB does not notice.
  static std::atomic<int64_t> first_process{0};
  int64_t first = 0;
  const int64_t here = platform::process_id();
  if (!first_process.compare_exchange_strong(first, here) && first != here)
    fail(Code::state,
         "a pipeline ran in this process's parent before fork(), and the threads stayed there; run "
         "the first "
         "pipeline after fork(), or let new processes start afresh (Python: the start method "
         "'spawn')");
  state_ = std::make_unique<State>(threads);
}
FlowGraph::~FlowGraph() = default;

std::unique_ptr<Task> FlowGraph::make_task(std::function<void()> run) {
  return std::make_unique<GraphTask>(*state_->graph, std::move(run));
}

std::unique_ptr<Path> FlowGraph::make_path(std::function<void(Chunk&)> parallel,
                                           std::function<void(Chunk&&)> one_by_one,
                                           PathOptions options) {
  return std::make_unique<GraphPath>(*state_->graph, std::move(parallel), std::move(one_by_one),
                                     options);
}

void FlowGraph::finish() { state_->finish(); }

std::unique_ptr<Task> make_thread_task(std::function<void()> run) {
  return std::make_unique<ThreadTask>(std::move(run));
}

}  // namespace etr::pipeline
