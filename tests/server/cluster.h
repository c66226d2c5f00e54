// Shards of a parameter server in this process, and clients that join them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "exchange/local.h"
#include "server/client.h"
#include "server/server.h"

namespace etr::test {

using server::Client;
using server::Pair;
using server::Server;
using server::ShardOptions;

constexpr double kTimeout = 20;  // seconds

class Cluster {
 public:
  // `timeout`: of the servers; `pairs`: of what they and the workers tell each other.
  explicit Cluster(int shards, const ShardOptions& options = {}, double timeout = kTimeout,
                   double pairs = kTimeout)
      : timeout_(pairs) {
    server::Place place;
    place.world.timeout_s = timeout;
    place.shards = shards;
    for (; place.shard < shards; ++place.shard)
      shards_.push_back(std::make_unique<Server>(options, place));
  }

  std::unique_ptr<Client> join(int wanted = -1, uint64_t workers = 1,
                               const std::string& terms = "") {
    return join({.number = wanted, .workers = workers, .terms = terms}, [](int) {});
  }

  // Calls `before` before it joins each shard.
  std::unique_ptr<Client> join(const Pair::Name& name, const std::function<void(int)>& before) {
    return std::make_unique<Client>(
        static_cast<int>(shards_.size()),
        [&](int shard) {
          before(shard);
          auto pair = exchange::local_groups(2, timeout_);
          shards_[static_cast<size_t>(shard)]->add(std::move(pair[0]));
          return std::move(pair[1]);
        },
        name);
  }

  Server& operator[](size_t i) { return *shards_[i]; }
  void kill(size_t i) { shards_[i].reset(); }

 private:
  const double timeout_;
  std::vector<std::unique_ptr<Server>> shards_;
};

// Collects the lines that are logged while it lives.
class Log {
 public:
  Log() {
    set_log_hook([this](LogLevel, const char* line) {
      const std::lock_guard lock(mutex_);
      lines_ += line;
      lines_ += '\n';
    });
  }
  ~Log() { set_log_hook({}); }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool has(const std::string& words) { return text().find(words) != std::string::npos; }

 private:
  std::mutex mutex_;
  std::string lines_;
};

inline void perform(Client& client, const Client::Work& work) {
  client.start(work);
  client.wait();
}

// Returns the message of the error that a call throws; "" if none.
inline std::string problem_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline ShardOptions sgd(float momentum = 0) {
  ShardOptions options;
  options.adagrad = false;
  options.momentum = momentum;
  return options;
}

}  // namespace etr::test
