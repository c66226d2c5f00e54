// echotrain-gloo PARENT: performs the exchanges of one rank with Gloo for the process PARENT, which
// has started it (helper.h). Descriptor 3 is the channel to that process, 4 the shared memory.
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include "exchange/engines/gloo/member.h"
#include "exchange/engines/gloo/operations.h"
#include "exchange/engines/gloo/relay_store.h"
#include "exchange/failure.h"

namespace etr::exchange {
namespace {

// Member enforces the deadlines. Gloo's own would close all connections before the other ranks
// could answer where they are.
constexpr auto kNever = std::chrono::hours(10000);

platform::Channel* library = nullptr;

void send_failure(const Failure& failure) {
  library->send(static_cast<uint32_t>(FrameKind::failed), payload_of(failure));
}

// An exception on one of Gloo's threads ends the process. This tells the library why.
[[noreturn]] void tell_and_exit() {
  std::string why = "no reason";
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
  }
  send_failure(failure_of(Code::rank_lost, cat("Gloo ended its process: ", why)));
  ::_exit(1);
}

// Newer versions of Gloo take the store as a shared pointer.
template <typename Context, typename Rendezvous>
void connect(Context& context, const std::shared_ptr<Rendezvous>& store,
             std::shared_ptr<gloo::transport::Device> device) {
  if constexpr (requires { context.connectFullMesh(*store, device); })
    context.connectFullMesh(*store, device);
  else
    context.connectFullMesh(store, device);
}

std::shared_ptr<gloo::transport::Device> device_at(const Join& join, const std::string& address) {
  gloo::transport::tcp::attr where;
  (join.interface ? where.iface : where.hostname) = address;
  try {
    return gloo::transport::tcp::CreateDevice(where);
  } catch (const std::exception& error) {
    fail(Code::invalid_argument, "Gloo cannot listen on ", join.interface ? "the interface '" : "'",
         address, "': ", error.what());
  }
}

class Helper {
 public:
  Helper(platform::Channel& channel, platform::SharedMemory& memory)
      : channel_(channel), memory_(memory), store_(channel) {}

  // Runs on the thread that reads the channel, and never waits for Gloo.
  void handle(platform::Frame& frame) {
    switch (static_cast<FrameKind>(frame.kind)) {
      case FrameKind::join: return start(frame.payload);
      case FrameKind::value: return store_.answer(frame.payload);
      case FrameKind::call: return enqueue(std::move(frame.payload));
      case FrameKind::abort: return member() ? member()->abort(frame.payload) : ::_exit(0);
      case FrameKind::leave: return member() ? member()->leave() : ::_exit(0);
      default: ::_exit(2);
    }
  }

  Member* member() { return member_; }  // set once the group has formed

 private:
  void start(std::string payload) {
    Join join{};
    if (!take(payload, join)) ::_exit(2);
    std::thread([this, join, address = std::move(payload)] { work(join, address); }).detach();
  }

  struct Work {
    Call call;
    std::vector<uint64_t> sizes;
  };

  void enqueue(std::string payload) {
    Work work{};
    if (!member() || !take(payload, work.call)) ::_exit(2);
    work.sizes.resize(payload.size() / sizeof(uint64_t));
    if (!work.sizes.empty())
      std::memcpy(work.sizes.data(), payload.data(), work.sizes.size() * sizeof(uint64_t));
    member()->begin(work.call);
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(work));
      arrived_.notify_one();
    }
    member()->check_left();
  }

  Work next() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !waiting_.empty(); });
    Work out = std::move(waiting_.front());
    waiting_.pop_front();
    return out;
  }

  // Runs on the thread that calls Gloo.
  void work(const Join& join, const std::string& address) {
    std::shared_ptr<gloo::rendezvous::Context> context;
    try {
      context = std::make_shared<gloo::rendezvous::Context>(join.rank, join.size);
      context->setTimeout(kNever);
      const std::shared_ptr<RelayStore> store(&store_, [](RelayStore*) {});
      connect(*context, store, device_at(join, address));
      gloo::BarrierOptions all(context);
      gloo::barrier(all);
    } catch (const Error& error) {
      send_failure(failure_of(error.code(), error.what()));
      ::_exit(1);
    } catch (const std::exception& error) {
      send_failure(failure_of(Code::rank_lost, error.what()));
      ::_exit(1);
    }
    member_ = new Member(context, channel_);  // until the process ends
    channel_.send(static_cast<uint32_t>(FrameKind::ready), {});
    while (true) perform_next(context);
  }

  void perform_next(const std::shared_ptr<gloo::Context>& context) {
    const Work work = next();
    if (is_collective(work.call.operation)) ++collectives_;  // the same on all ranks
    try {
      perform(context, work.call, work.sizes, memory_.bytes(work.call.memory), collectives_);
    } catch (const std::exception& error) {
      member()->broken(error.what());
    }
    member()->finish();
  }

  platform::Channel& channel_;
  platform::SharedMemory& memory_;
  RelayStore store_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Work> waiting_;
  uint64_t collectives_ = 0;
  std::atomic<Member*> member_{nullptr};
};

int run(int64_t parent) {
  platform::close_others(5);
  ::signal(SIGPIPE, SIG_IGN);
  platform::Channel channel{platform::Descriptor(3)};
  platform::SharedMemory memory{platform::Descriptor(4)};
  library = &channel;
  std::set_terminate(tell_and_exit);
  const platform::Descriptor watch = platform::watch_process(parent);
  Helper helper(channel, memory);
  while (true) {
    platform::Frame frame;
    Member* const member = helper.member();
    const auto deadline = member ? member->due() : platform::Deadline::max();
    const auto outcome = channel.receive(frame, deadline, watch.number());
    if (outcome == platform::Channel::Outcome::closed) ::_exit(0);  // the parent has gone
    if (outcome == platform::Channel::Outcome::frame) helper.handle(frame);
    if (outcome == platform::Channel::Outcome::late && member) member->expire();
  }
}

}  // namespace
}  // namespace etr::exchange

int main(int argc, char** argv) {
  if (argc != 2) return 2;  // not meant to be run by hand
  return etr::exchange::run(std::strtoll(argv[1], nullptr, 10));
}
