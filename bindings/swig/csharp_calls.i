// Queues the calls of functions of C# programs; included after facade.h.
%newobject echotrain::facade::CallQueue::take;
%ignore echotrain::facade::Call::Call;

%{
#include <condition_variable>
#include <deque>
%}

%inline %{
namespace echotrain::facade {

// One call of a function or a transport. The worker that made it waits until it is finished.
class Call {
 public:
#ifndef SWIG
  struct State {
    BatchHandle* item = nullptr;
    TransportCall* transport_call = nullptr;
    int function = 0;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::string reason;
  };
#endif
  explicit Call(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~Call() { finish("the call was abandoned"); }

  int function() const { return state_->function; }
  BatchHandle* item() const { return state_->item; }  // valid until finish(), like transport_call()
  TransportCall* transport_call() const { return state_->transport_call; }
  void finish(const std::string& reason) {             // only the first call has an effect
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      if (state_->done) return;
      state_->reason = reason;
      state_->done = true;
    }
    state_->changed.notify_one();
  }

 private:
  std::shared_ptr<State> state_;
};

// Passes calls from the library's threads to the threads that take() them.
class CallQueue {
 public:
  CallQueue() : state_(std::make_shared<State>()) {}

  // Returns the stage that queues calls of function number `function`; give it to a pipeline.
  MapFunction* make(int function) { return new Queued(state_, function); }
  // Returns the transport that queues calls; give it to a run or a split.
  Transport* lend() { return new QueuedTransport(state_); }

  // Returns the next call, which the caller owns; nullptr if none came in time. The queue closes
  // with the destruction of the last function that it made, or here if there is none any more.
  Call* take(double seconds) {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->served = true;
    if (state_->functions == 0 && state_->made) state_->closed = true;
    state_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                             [&] { return !state_->calls.empty() || state_->closed; });
    if (state_->calls.empty()) return nullptr;
    auto call = std::move(state_->calls.front());
    state_->calls.pop_front();
    stand_in = call->transport_call ? StandIn::transport : StandIn::pipeline;
    return new Call(std::move(call));
  }

  // Says that nobody will take() any more: calls that are waiting fail, and so do later ones.
  void close() {
    std::deque<std::shared_ptr<Call::State>> left;
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      state_->closed = true;
      left.swap(state_->calls);
    }
    state_->changed.notify_all();
    for (auto& call : left) Call(call).finish(kClosed);
  }
  bool is_closed() const {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->closed;
  }

 private:
  static constexpr const char* kClosed = "the pipeline is closed";

  struct State {
    // Waits until the call has been taken and finished. Returns why it failed; "" if it did not.
    std::string wait_for(const std::shared_ptr<Call::State>& call) {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (closed) return kClosed;
        calls.push_back(call);
      }
      changed.notify_one();
      std::unique_lock<std::mutex> lock(call->mutex);
      call->changed.wait(lock, [&] { return call->done; });
      return call->reason;
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::shared_ptr<Call::State>> calls;
    int functions = 0;
    bool made = false, served = false, closed = false;  // made: has had a function
  };

  class Queued : public MapFunction {
   public:
    Queued(std::shared_ptr<State> queue, int function)
        : queue_(std::move(queue)), function_(function) {
      const std::lock_guard<std::mutex> lock(queue_->mutex);
      ++queue_->functions;
      queue_->made = true;
    }
    ~Queued() override {
      {
        const std::lock_guard<std::mutex> lock(queue_->mutex);
        if (--queue_->functions == 0 && queue_->served) queue_->closed = true;
      }
      queue_->changed.notify_all();
    }
    std::string apply(BatchHandle& item) override {
      auto call = std::make_shared<Call::State>();
      call->item = &item;
      call->function = function_;
      return queue_->wait_for(call);
    }

   private:
    std::shared_ptr<State> queue_;
    int function_;
  };

  class QueuedTransport : public Transport {
   public:
    explicit QueuedTransport(std::shared_ptr<State> queue) : queue_(std::move(queue)) {}
    void run(TransportCall& call) override {
      auto queued = std::make_shared<Call::State>();
      queued->transport_call = &call;
      if (!queue_->wait_for(queued).empty()) call.fail(ETR_STATE, "the program has ended", {});
    }

   private:
    std::shared_ptr<State> queue_;
  };

  std::shared_ptr<State> state_;
};

}  // namespace echotrain::facade
%}
