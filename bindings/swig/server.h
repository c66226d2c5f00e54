// A shard of a parameter server for languages other than C++.
#pragma once

#include <memory>

#include "facade.h"

namespace echotrain::facade {

struct ServerStatus {
  int64_t workers = 0, joined = 0, finished = 0, updates = 0;
};

class ServerHandle {
 public:
  ServerHandle(const JobHandle& job, int shard)
      : server_("server", *job.get(), shard) {}

  // Waits for at most `seconds`. Returns whether the run is over or the server was stopped; see
  // etr_server_wait.
  bool ended_within(double seconds) { return get()->wait(seconds); }
  ServerStatus status() {
    etr_server_status is{};
    try {
      get()->wait(0, &is);
    } catch (const Error& error) {
      if (error.status() != ETR_RANK_LOST) throw;  // ended_within() reports it
    }
    return {is.workers, is.joined, is.finished, static_cast<int64_t>(is.updates)};
  }
  void stop() { get()->stop(); }

  // Stops the shard; a thread that is waiting for it returns first.
  void close() {
    if (const auto last = server_.close()) last->stop();
  }

 private:
  std::shared_ptr<Server> get() const { return server_.get(); }
  Closable<Server> server_;
};

}  // namespace echotrain::facade
