// An MPI group, as the communication thread uses it.
#pragma once

#include <mpi.h>

#include <chrono>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exchange/engines/verdict.h"

namespace etr::exchange {

using Deadline = std::chrono::steady_clock::time_point;

// An operation: a sequence of non-blocking MPI calls, each begun when the one before is complete.
struct Job {
  using Step = std::function<void(MPI_Request*)>;

  Call call{};
  std::vector<Step> steps;
  Deadline due;
  std::promise<std::optional<Failure>> result;
};

// Only the communication thread uses it, and no function waits.
class Communicator {
 public:
  // Notices are sent on `control`, which may equal `comm` if notice_tag is reserved for them. With
  // `owned` the object owns both communicators.
  Communicator(MPI_Comm comm, MPI_Comm control, int notice_tag, bool owned);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm comm() const { return comm_; }
  MPI_Comm control() const { return control_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // Returns memory for MPI to work on. The caller's own memory may be freed after a time-out while
  // MPI still uses it.
  std::byte* memory(uint64_t bytes);

  void begin(std::shared_ptr<Job> job);
  bool advance();  // returns whether there is something to wait for
  void abort(const std::string& reason);
  // Sets `left` when all ranks have left, or when the time for that is over.
  void leave(std::shared_ptr<std::promise<void>> left);

 private:
  void step();
  void hear();
  void heard(int rank, const Notice& told);
  void judge(const std::string& why);
  void end(const Failure& failure);
  void send(int rank, const Notice& notice);
  void tell_all(const Notice& notice);
  void drop_sent();
  Notice notice(NoticeKind kind) const;
  void check_left();

  const MPI_Comm comm_, control_;
  const int tag_;
  const bool owned_;
  int rank_ = 0, size_ = 1;

  std::vector<std::byte> memory_;
  std::shared_ptr<Job> job_;
  size_t next_step_ = 0;
  MPI_Request request_ = MPI_REQUEST_NULL;
  uint64_t collectives_ = 0;

  bool asked_ = false;
  Deadline answers_due_;
  std::string trouble_;  // MPI's error message
  std::map<int, Notice> answers_;
  std::map<int, uint64_t> left_;
  std::optional<Failure> ended_;
  std::shared_ptr<std::promise<void>> leaving_;
  Deadline drain_due_;

  struct Sent {
    Notice notice;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::list<Sent> sent_;
};

}  // namespace etr::exchange
