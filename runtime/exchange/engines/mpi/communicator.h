// A group on MPI, as the communication thread sees it.
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

// An operation: MPI calls without a wait, one after the other.
struct Job {
  using Step = std::function<void(MPI_Request*)>;

  Call call{};
  std::vector<Step> steps;
  Deadline due;
  std::promise<std::optional<Failure>> result;
};

// Belongs to the communication thread: nothing here is called by another, and nothing waits.
class Communicator {
 public:
  // Notices go by `control`, which may be `comm` where the tag is kept for them. Owns them where `owned`.
  Communicator(MPI_Comm comm, MPI_Comm control, int notice_tag, bool owned);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm comm() const { return comm_; }
  MPI_Comm control() const { return control_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // Memory that MPI works on: the caller's may be freed after a time-out, while MPI still has it.
  std::byte* memory(uint64_t bytes);

  void begin(std::shared_ptr<Job> job);
  bool advance();  // whether there is something to wait for
  void abort(const std::string& reason);
  void leave(
      std::shared_ptr<std::promise<void>> left);  // set when all have left, or the drain is over

 private:
  void step();
  void hear();
  void heard(int rank, const Notice& told);
  void judge(const std::string& why);
  void end(const Failure& failure);
  void tell(int rank, const Notice& notice);
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
  std::string trouble_;  // what MPI said
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
