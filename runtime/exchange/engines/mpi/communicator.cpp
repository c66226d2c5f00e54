#include "exchange/engines/mpi/communicator.h"

#include <utility>

#include "exchange/engines/mpi/call.h"
#include "exchange/failure.h"

namespace etr::exchange {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kAnswer = 2s;  // for the answers of the other ranks
constexpr auto kDrain = 5s;

}  // namespace

Communicator::Communicator(MPI_Comm comm, MPI_Comm control, int notice_tag, bool owned)
    : comm_(comm), control_(control), tag_(notice_tag), owned_(owned) {
  if (owned_) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
  }
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

// Frees the communicators if all ranks do so. Otherwise MPI may still use its buffers, which then
// live until the process ends.
Communicator::~Communicator() {
  if (!owned_ || ended_ || left_.size() + 1 != static_cast<size_t>(size_)) {
    new std::list<Sent>(std::move(sent_));
    new std::vector<std::byte>(std::move(memory_));
    return;
  }
  MPI_Comm control = control_, comm = comm_;
  MPI_Comm_free(&control);
  MPI_Comm_free(&comm);
}

std::byte* Communicator::memory(uint64_t bytes) {
  if (memory_.size() < bytes) memory_.resize(bytes);
  return memory_.data();
}

void Communicator::begin(std::shared_ptr<Job> job) {
  if (ended_) return job->result.set_value(ended_);
  job_ = std::move(job);
  next_step_ = 0;
  asked_ = false;
  trouble_.clear();
  if (is_collective(job_->call.operation)) ++collectives_;
  check_left();
}

bool Communicator::advance() {
  hear();
  drop_sent();
  if (leaving_ &&
      (left_.size() + 1 == static_cast<size_t>(size_) || ended_ || Clock::now() >= drain_due_) &&
      (sent_.empty() || Clock::now() >= drain_due_))
    std::exchange(leaving_, nullptr)->set_value();
  if (!job_) return leaving_ != nullptr;
  if (trouble_.empty()) {
    try {
      step();
    } catch (const Error& error) {
      trouble_ = error.what();
    }
  }
  if (job_ && (!trouble_.empty() || Clock::now() >= job_->due)) judge(trouble_);
  return true;
}

void Communicator::step() {
  while (true) {
    int done = 0;
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), operation_name(job_->call.operation));
    if (!done) return;
    if (next_step_ == job_->steps.size())
      return std::exchange(job_, nullptr)->result.set_value(std::nullopt);
    job_->steps[next_step_++](&request_);
  }
}

// Asks the other ranks where they are. When all have answered, or their time is over, those that
// are not in this operation are missing. (MPI's fault-tolerance extensions do not help: MPICH 4.0
// exports MPIX_Comm_failure_ack, and ends the process in it.)
void Communicator::judge(const std::string& why) {
  if (!asked_) {
    asked_ = true;
    answers_.clear();
    answers_due_ = Clock::now() + kAnswer;
    return tell_all(notice(NoticeKind::ask));
  }
  if (answers_.size() + 1 < static_cast<size_t>(size_) && Clock::now() < answers_due_) return;
  Failure verdict = verdict_on({job_->call, rank_, size_, collectives_, answers_});
  if (!why.empty()) {
    std::vector<int> silent;
    for (int r = 0; r < size_; ++r)
      if (r != rank_ && !answers_.contains(r)) silent.push_back(r);
    verdict = silent.empty() ? failure_of(Code::io, cat("MPI failed on rank ", rank_, ": ", why))
                             : failure_of(Code::rank_lost,
                                          cat(ranks_text(silent),
                                              silent.size() == 1 ? " is" : " are", " lost: ", why),
                                          silent);
  }
  end(verdict);
}

void Communicator::check_left() {
  if (!job_) return;
  const Call& call = job_->call;
  std::vector<int> missing;
  for (const auto& [rank, after] : left_)
    if (is_collective(call.operation) ? after < collectives_ : call.peer == rank)
      missing.push_back(rank);
  // A message that the rank sent before it left may still be on its way, so only collective calls
  // end here.
  if (!missing.empty() && is_collective(call.operation))
    end(failure_of(
        Code::rank_lost,
        cat(ranks_text(missing), " left the group before ", operation_name(call.operation)),
        missing));
}

Notice Communicator::notice(NoticeKind kind) const {
  Notice out{};
  out.kind = kind;
  out.collective = collectives_;
  if (job_) out.operation = job_->call.operation, out.count = job_->call.count;
  return out;
}

void Communicator::hear() {
  while (true) {
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag_, control_, &there, &status) != MPI_SUCCESS || !there)
      return;
    Notice told{};
    if (MPI_Recv(&told, sizeof told, MPI_BYTE, status.MPI_SOURCE, tag_, control_,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return;
    heard(status.MPI_SOURCE, told);
  }
}

void Communicator::heard(int rank, const Notice& told) {
  switch (told.kind) {
    case NoticeKind::ask: return send(rank, notice(NoticeKind::answer));
    case NoticeKind::answer: answers_[rank] = told; return;
    case NoticeKind::leave: left_[rank] = told.collective; return check_left();
    case NoticeKind::failed:
      if (!ended_) end(told.failure);
      return;
  }
}

void Communicator::send(int rank, const Notice& told) {
  Sent& sent = sent_.emplace_back();
  sent.notice = told;
  if (MPI_Isend(&sent.notice, sizeof sent.notice, MPI_BYTE, rank, tag_, control_, &sent.request) !=
      MPI_SUCCESS)
    sent_.pop_back();
}

void Communicator::tell_all(const Notice& told) {
  for (int r = 0; r < size_; ++r)
    if (r != rank_) send(r, told);
}

void Communicator::drop_sent() {
  sent_.remove_if([](Sent& sent) {
    int done = 0;
    return MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done;
  });
}

void Communicator::end(const Failure& failure) {
  if (ended_) return;
  ended_ = failure;
  Notice last = notice(NoticeKind::failed);
  last.failure = failure;
  tell_all(last);
  if (job_) std::exchange(job_, nullptr)->result.set_value(failure);
}

void Communicator::abort(const std::string& reason) {
  end(failure_of(Code::rank_lost, cat("rank ", rank_, " ended the group: ", reason), {rank_}));
}

void Communicator::leave(std::shared_ptr<std::promise<void>> left) {
  leaving_ = std::move(left);
  drain_due_ = Clock::now() + kDrain;
  if (!ended_) tell_all(notice(NoticeKind::leave));
}

}  // namespace etr::exchange
