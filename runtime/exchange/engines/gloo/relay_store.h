// Gloo's view of the rendezvous store, which the library holds at the other end of the channel.
#pragma once

#include <gloo/rendezvous/store.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/platform_process.h"

namespace etr::exchange {

class RelayStore : public gloo::rendezvous::Store {
 public:
  explicit RelayStore(platform::Channel& channel) : channel_(channel) {}

  void set(const std::string& key, const std::vector<char>& value) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);  // the library enforces the deadline
  }

  // Delivers the library's answer to `get`. The thread that reads the channel calls it.
  void answer(const std::string& value);

 private:
  platform::Channel& channel_;
  std::mutex mutex_;
  std::condition_variable answered_;
  std::map<std::string, std::vector<char>> known_;
  std::string asked_;
};

}  // namespace etr::exchange
