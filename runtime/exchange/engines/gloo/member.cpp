#include "exchange/engines/gloo/member.h"

#include <unistd.h>

#include <cmath>
#include <thread>

#include "core/clock.h"
#include "exchange/failure.h"

namespace etr::exchange {

namespace {

using namespace std::chrono_literals;

constexpr auto kAnswer = 2s;    // for the answers of the other ranks
constexpr auto kFlush = 500ms;  // for a verdict to be sent; one to a rank that has ended never is
constexpr auto kGrace = 50ms;   // for what arrives on other connections at the same time
constexpr auto kVerdict = 5s;   // how long a failed call waits for a notice that names the cause
constexpr auto kDrain = 5s;

// Gloo's errors begin with a source location, "[./gloo/transport/tcp/pair.cc:598] ".
std::string without_place(const std::string& why) {
  const size_t end = why.find("] ");
  return why.starts_with("[") && end != std::string::npos ? why.substr(end + 2) : why;
}

}  // namespace

Member::Member(std::shared_ptr<gloo::Context> context, platform::Channel& library)
    : context_(context), library_(library), notices_(std::move(context)) {
  notices_.watch([this](int rank, const Notice& heard_notice) { heard(rank, heard_notice); },
                 [this](int rank, const std::string& why) { silent(rank, why); });
}

void Member::begin(const Call& call) {
  const std::lock_guard lock(mutex_);
  call_ = call;
  ++calls_;
  if (is_collective(call.operation)) ++collectives_;
  due_ = deadline_after(call.timeout_s);
}

void Member::finish() {
  {
    const std::lock_guard lock(mutex_);
    call_.reset();
    due_ = Deadline::max();
    changed_.notify_all();
  }
  library_.send(static_cast<uint32_t>(FrameKind::done), {});
}

Member::Deadline Member::due() const {
  const std::lock_guard lock(mutex_);
  return due_;
}

// Returns whether this rank has left and the current call cannot complete without it.
bool Member::needs(int rank) const {
  if (!call_ || !left_.contains(rank)) return false;
  return is_collective(call_->operation) ? left_.at(rank) < collectives_ : call_->peer == rank;
}

void Member::check_left() {
  std::unique_lock lock(mutex_);
  std::vector<int> missing;
  for (const auto& [rank, after] : left_)
    if (needs(rank)) missing.push_back(rank);
  if (missing.empty()) return;
  // What the rank sent before it left may still complete the call.
  const uint64_t call = calls_;
  if (changed_.wait_for(lock, kGrace, [&] { return !call_ || calls_ != call; })) return;
  const char* const name = operation_name(call_->operation);
  lock.unlock();
  end(failure_of(Code::rank_lost, cat(ranks_text(missing), " left the group before ", name),
                 missing));
}

Notice Member::notice(NoticeKind kind) const {
  Notice out{};
  out.kind = kind;
  out.collective = collectives_;
  if (call_) out.operation = call_->operation, out.count = call_->count;
  return out;
}

void Member::expire() {
  std::unique_lock lock(mutex_);
  if (!call_ || std::chrono::steady_clock::now() < due_) return;
  if (is_collective(call_->operation)) {
    const Notice question = notice(NoticeKind::ask);
    answers_.clear();
    lock.unlock();
    notices_.tell_all(question);
    lock.lock();
    const auto all = static_cast<size_t>(context_->size - 1);
    changed_.wait_for(lock, kAnswer, [&] { return answers_.size() == all || !call_; });
    if (!call_) return;  // it completed after all
  }
  const Failure verdict =
      verdict_on({*call_, context_->rank, context_->size, collectives_, answers_});
  lock.unlock();
  end(verdict);
}

void Member::heard(int rank, const Notice& told) {
  std::unique_lock lock(mutex_);
  switch (told.kind) {
    case NoticeKind::ask: {
      const Notice answer = notice(NoticeKind::answer);
      lock.unlock();
      notices_.send(rank, answer);
      return;
    }
    case NoticeKind::answer:
      answers_[rank] = told;
      changed_.notify_all();
      return;
    case NoticeKind::leave:
      left_[rank] = told.collective;
      changed_.notify_all();
      lock.unlock();
      return check_left();
    case NoticeKind::failed:
      if (leaving_) {
        left_[rank] = told.collective;
        return changed_.notify_all();
      }
      lock.unlock();
      end(told.failure);
  }
}

void Member::silent(int rank, const std::string& why) {
  std::unique_lock lock(mutex_);
  if (left_.contains(rank)) return;
  lost_.insert(rank);
  changed_.notify_all();
  if (leaving_) return;
  changed_.wait_for(lock, kGrace, [] { return false; });
  const std::vector<int> missing(lost_.begin(), lost_.end());
  lock.unlock();
  end(failure_of(
      Code::rank_lost,
      cat(ranks_text(missing), missing.size() == 1 ? " is" : " are", " lost: ", without_place(why)),
      missing));
}

// A connection breaks where a rank is lost or has ended the group. Then the thread that hears from
// the others ends this process, and names that rank.
void Member::broken(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    due_ = Deadline::max();  // this failure is told, and not that the call took too long
  }
  std::this_thread::sleep_for(kVerdict);
  end(failure_of(Code::io, cat("Gloo failed on rank ", context_->rank, ": ", without_place(why))));
}

void Member::abort(const std::string& reason) {
  end(failure_of(Code::rank_lost, cat("rank ", context_->rank, " ended the group: ", reason),
                 {context_->rank}));
}

void Member::leave() {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  const Notice last = notice(NoticeKind::leave);
  lock.unlock();
  notices_.tell_all(last);
  lock.lock();
  const bool all = changed_.wait_for(lock, kDrain, [&] {
    std::set<int> gone = lost_;
    for (const auto& [rank, after] : left_) gone.insert(rank);
    return gone.size() == static_cast<size_t>(context_->size - 1);
  });
  lock.unlock();
  notices_.flush(kFlush);
  if (all) library_.send(static_cast<uint32_t>(FrameKind::done), {});
  ::_exit(0);
}

void Member::end(const Failure& failure) {
  verdict_.lock();  // other threads wait here until the process ends
  library_.send(static_cast<uint32_t>(FrameKind::failed), payload_of(failure));
  Notice last{};
  last.kind = NoticeKind::failed;
  last.failure = failure;
  notices_.tell_all(last);
  notices_.flush(kFlush, missing_of(failure.error));
  ::_exit(0);
}

}  // namespace etr::exchange
