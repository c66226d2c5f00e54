// State that the ranks of a local group share. A collective operation is a meeting of all ranks;
// messages wait until they are received.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "exchange/numbers.h"

namespace etr::exchange {

// The arguments that one rank passes to a meeting.
struct Visit {
  std::string operation;  // must be equal on all ranks, like `shape`
  std::string shape;      // "of 12 f32"
  const void* in = nullptr;
  void* out = nullptr;
  int32_t colour = 0, key = 0;
};

class LocalWorld {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  explicit LocalWorld(int size);

  int size() const { return static_cast<int>(visits_.size()); }

  // Waits for all ranks, calls `work` with their visits, and returns when the `work` of all ranks
  // is done. Until then no rank frees the memory that its visit points to. Throws RankLost if a
  // rank does not come, or after abort(). Once all have come, they return together even if the
  // `work` of one throws.
  void meet(int rank, const Visit& visit, double timeout_s,
            const std::function<void(const std::vector<Visit>&)>& work);

  void send(const void* data, uint64_t size, int from, int to, uint32_t tag, double timeout_s);
  void receive(void* data, uint64_t size, int from, int to, uint32_t tag, double timeout_s);

  // Returns the world of the ranks with this colour. Called during a meeting.
  std::shared_ptr<LocalWorld> part(int32_t colour, int size);

  void abort(int rank, const std::string& reason);
  void leave(int rank);  // ranks that wait for this one, now or later, get an error

 private:
  struct Message {
    const void* data;
    uint64_t size;
    bool taken = false;
  };
  using Lock = std::unique_lock<std::mutex>;

  void arrive(Lock& lock, int rank, const char* operation, double timeout_s);
  void depart(Lock& lock);
  void check_alike() const;
  [[noreturn]] void end(const std::vector<int>& missing, const std::string& why);
  void check_ended() const;
  std::vector<int> absent() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Visit> visits_;
  // A copy of the last meeting's visits: a rank that threw may already have written its next visit.
  std::vector<Visit> met_;
  std::vector<bool> here_, left_;
  uint64_t meetings_ = 0;  // two for each operation: when all have come, and when all are done
  size_t done_ = 0;        // ranks that have done their work and wait for the others
  std::map<std::tuple<int, int, uint32_t>, std::vector<Message*>> messages_;
  // Worlds of the parts, by meeting and colour.
  std::map<std::pair<uint64_t, int32_t>, std::weak_ptr<LocalWorld>> parts_;

  bool ended_ = false;
  std::string why_;
  std::vector<int> missing_;
};

}  // namespace etr::exchange
