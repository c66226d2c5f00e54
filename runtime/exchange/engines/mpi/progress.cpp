#include "exchange/engines/mpi/progress.h"

#include <cstdlib>

#include "exchange/engines/mpi/call.h"

namespace etr::exchange {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kWorldTag = 32000;  // of notices on MPI_COMM_WORLD
constexpr auto kBusy = 1ms;       // how long the loop polls without sleeping
constexpr auto kNap = 50us;       // the sleep between polls after that
constexpr auto kIdle = 10ms;      // how often an idle loop looks for notices

}  // namespace

Progress& Progress::instance() {
  static Progress& progress = *new Progress;  // MPI lives as long as the process
  return progress;
}

Progress::Progress() {
  std::promise<void> ready;
  auto future = ready.get_future();
  thread_ = std::thread([this, &ready] {
    try {
      initialize();
    } catch (...) {
      return ready.set_exception(std::current_exception());
    }
    ready.set_value();
    loop();
  });
  try {
    future.get();
  } catch (...) {
    thread_.join();
    throw;
  }
  std::atexit([] { instance().stop(); });
}

void Progress::initialize() {
  int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized)
    fail(Code::state, "the program has ended MPI (MPI_Finalize) before it asked for a group");
  if (!initialized) {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    finalizes_ = true;
  } else {
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED)
      fail(Code::state,
           "the program has initialized MPI for calls of its main thread only: call "
           "MPI_Init_thread with "
           "MPI_THREAD_MULTIPLE (mpi4py does), or with MPI_THREAD_SERIALIZED where it makes no "
           "calls while a group exists");
  }
  world_ = std::make_shared<Communicator>(MPI_COMM_WORLD, MPI_COMM_WORLD, kWorldTag, false);
  if (finalizes_) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  communicators_.push_back(world_);
}

void Progress::post(std::function<void()> body) {
  const std::lock_guard lock(mutex_);
  bodies_.push_back(std::move(body));
  posted_.notify_one();
}

void Progress::run(Deadline deadline, std::function<void()> body) {
  const auto done = std::make_shared<std::promise<void>>();
  auto future = done->get_future();
  post([done, body = std::move(body)] {
    try {
      body();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  });
  if (future.wait_until(deadline) != std::future_status::ready)
    fail(Code::io,
         "an MPI call does not return: another rank is frozen, or forms other groups at "
         "the same time");
  future.get();
}

// Runs the posted functions and advances operations. Returns whether any is in progress.
bool Progress::work() {
  std::deque<std::function<void()>> bodies;
  {
    const std::lock_guard lock(mutex_);
    bodies.swap(bodies_);
  }
  for (const auto& body : bodies) body();
  bool active = !bodies.empty();
  for (const auto& communicator : communicators_) active |= communicator->advance();
  return active;
}

void Progress::loop() {
  auto busy_until = Clock::now();
  bool was_active = false;
  while (true) {
    const bool active = work();
    if (active && !was_active) busy_until = Clock::now() + kBusy;
    was_active = active;
    std::unique_lock lock(mutex_);
    // Runs what was posted before it ends: MPI_Finalize needs all groups to have left.
    if (!bodies_.empty()) continue;
    if (stopping_) break;
    if (!active)
      posted_.wait_for(lock, kIdle);
    else if (Clock::now() < busy_until)
      lock.unlock(), std::this_thread::yield();
    else
      posted_.wait_for(lock, kNap);
  }
  int finalized = 0;
  MPI_Finalized(&finalized);
  // With a failed group, MPI_Finalize could wait for ever.
  if (finalizes_ && !finalized && communicators_.size() == 1) MPI_Finalize();
}

void Progress::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    posted_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace etr::exchange
