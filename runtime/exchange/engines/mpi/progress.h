// The only thread that calls MPI.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "exchange/engines/mpi/communicator.h"

namespace etr::exchange {

// Starts with the first group of the process and runs until the process exits. Initializes MPI if
// the program has not; in that case it also finalizes MPI at a normal exit.
class Progress {
 public:
  static Progress& instance();  // throws if MPI cannot be used from this thread

  // Runs `body` on the communication thread and returns when it is done. Rethrows its exception;
  // throws Error(io) at the deadline.
  void run(Deadline deadline, std::function<void()> body);
  void post(std::function<void()> body);  // does not wait

  // Only the communication thread calls these.
  void add(std::shared_ptr<Communicator> communicator) {
    communicators_.push_back(std::move(communicator));
  }
  void remove(const std::shared_ptr<Communicator>& communicator) {
    communicators_.remove(communicator);
  }
  const std::shared_ptr<Communicator>& world() const { return world_; }

 private:
  Progress();
  void initialize();
  void loop();
  bool work();
  void stop();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> bodies_;
  bool stopping_ = false;
  bool finalizes_ = false;
  std::shared_ptr<Communicator> world_;  // the parent of all groups
  std::list<std::shared_ptr<Communicator>> communicators_;
  std::thread thread_;
};

}  // namespace etr::exchange
