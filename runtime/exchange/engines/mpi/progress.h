// The one thread that calls MPI.
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

// Started with the first group of the process, for good. Initializes MPI where the program has not, and then ends it when the
// process exits in order.
class Progress {
 public:
  static Progress& instance();  // throws where MPI cannot be used from this thread

  // Has the communication thread call this, and returns when it has; throws what it throws, and Error(io) at the deadline.
  void run(Deadline deadline, std::function<void()> body);
  void post(std::function<void()> body);  // without waiting

  // By the communication thread.
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
  std::shared_ptr<Communicator> world_;  // on which groups are made
  std::list<std::shared_ptr<Communicator>> communicators_;
  std::thread thread_;
};

}  // namespace etr::exchange
