#include "exchange/local_world.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "core/clock.h"
#include "exchange/failure.h"

namespace etr::exchange {

LocalWorld::LocalWorld(int size)
    : visits_(static_cast<size_t>(size)),
      here_(static_cast<size_t>(size)),
      left_(static_cast<size_t>(size)) {}

void LocalWorld::end(const std::vector<int>& missing, const std::string& why) {
  if (!ended_) {
    ended_ = true;
    why_ = why;
    missing_ = missing;
    changed_.notify_all();
  }
  check_ended();
  fail(Code::internal, why);
}

void LocalWorld::check_ended() const {
  if (!ended_) return;
  if (missing_.empty()) fail(Code::invalid_argument, why_);
  throw RankLost(why_, missing_);
}

std::vector<int> LocalWorld::absent() const {
  std::vector<int> out;
  for (int i = 0; i < size(); ++i)
    if (!here_[static_cast<size_t>(i)]) out.push_back(i);
  return out;
}

void LocalWorld::check_alike() const {
  for (const Visit& visit : met_) {
    const Visit& first = met_.front();
    if (visit.operation == first.operation && visit.shape == first.shape) continue;
    const auto rank = &visit - met_.data();
    throw Error(Code::invalid_argument,
                cat("rank 0 calls ", first.operation, first.shape, ", and rank ", rank, " ",
                    visit.operation, visit.shape,
                    ": all ranks have to make the same calls in the same order"));
  }
}

// Returns when all ranks have arrived. The last one releases the others.
void LocalWorld::arrive(Lock& lock, int rank, const char* operation, double timeout_s) {
  check_ended();
  here_[static_cast<size_t>(rank)] = true;
  const uint64_t meeting = meetings_;
  const auto gone = [&] {  // ranks that left and will not come
    std::vector<int> out = absent();
    std::erase_if(out, [&](int i) { return !left_[static_cast<size_t>(i)]; });
    return out;
  };
  if (absent().empty()) {
    ++meetings_;
    here_.assign(here_.size(), false);
    met_ = visits_;
    changed_.notify_all();
    return;
  }
  const auto over = [&] { return meetings_ != meeting || ended_ || !gone().empty(); };
  const bool in_time = changed_.wait_until(lock, deadline_after(timeout_s), over);
  if (meetings_ != meeting) return;
  check_ended();
  if (in_time) end(gone(), cat(ranks_text(gone()), " left the group before ", operation));
  end(absent(), absence_text(absent(), operation, meeting / 2 + 1, timeout_s));
}

void LocalWorld::meet(int rank, const Visit& visit, double timeout_s,
                      const std::function<void(const std::vector<Visit>&)>& work) {
  Lock lock(mutex_);
  visits_[static_cast<size_t>(rank)] = visit;
  arrive(lock, rank, visit.operation.c_str(), timeout_s);
  check_alike();  // all ranks see the same visits, so all of them throw
  const std::vector<Visit> visits = met_;
  lock.unlock();
  std::exception_ptr failed;
  try {
    work(visits);
  } catch (...) {
    failed = std::current_exception();
  }
  lock.lock();
  depart(lock);
  if (failed) std::rethrow_exception(failed);
}

// Waits without a deadline, even if the group has ended: the others still work on this rank's
// memory.
void LocalWorld::depart(Lock& lock) {
  const uint64_t meeting = meetings_;
  if (++done_ == visits_.size()) {
    done_ = 0;
    ++meetings_;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return meetings_ != meeting; });
}

void LocalWorld::send(const void* data, uint64_t size, int from, int to, uint32_t tag,
                      double timeout_s) {
  Lock lock(mutex_);
  check_ended();
  Message message{data, size};
  const auto key = std::make_tuple(from, to, tag);
  messages_[key].push_back(&message);
  changed_.notify_all();
  const auto gone = [&] { return left_[static_cast<size_t>(to)]; };
  const bool in_time = changed_.wait_until(lock, deadline_after(timeout_s),
                                           [&] { return message.taken || ended_ || gone(); });
  if (message.taken) return;
  std::erase(messages_[key], &message);
  check_ended();
  end({to}, cat(ranks_text(std::vector{to}),
                gone() ? " left the group before it received" : " did not receive",
                " a message with the tag ", tag, " from rank ", from,
                in_time ? "" : cat(" within ", timeout_s, " s")));
}

void LocalWorld::receive(void* data, uint64_t size, int from, int to, uint32_t tag,
                         double timeout_s) {
  Lock lock(mutex_);
  check_ended();
  auto& queue = messages_[{from, to, tag}];
  const auto gone = [&] { return left_[static_cast<size_t>(from)]; };
  const bool in_time = changed_.wait_until(lock, deadline_after(timeout_s),
                                           [&] { return !queue.empty() || ended_ || gone(); });
  check_ended();
  if (queue.empty())
    end({from},
        cat(ranks_text(std::vector{from}),
            gone() ? " left the group before it sent" : " did not send", " a message with the tag ",
            tag, " to rank ", to, in_time ? "" : cat(" within ", timeout_s, " s")));
  Message& message = *queue.front();
  if (message.size != size)
    end({}, cat("rank ", from, " sends ", message.size, " bytes with the tag ", tag, ", and rank ",
                to, " receives ", size));
  if (size > 0) std::memcpy(data, message.data, size);
  message.taken = true;
  queue.erase(queue.begin());
  changed_.notify_all();
}

std::shared_ptr<LocalWorld> LocalWorld::part(int32_t colour, int size) {
  const Lock lock(mutex_);
  parts_.erase(parts_.begin(), parts_.lower_bound({meetings_, 0}));
  auto& known = parts_[{meetings_, colour}];
  auto part = known.lock();
  if (!part) known = part = std::make_shared<LocalWorld>(size);
  return part;
}

void LocalWorld::abort(int rank, const std::string& reason) {
  const Lock lock(mutex_);
  if (ended_) return;
  ended_ = true;
  why_ = cat("rank ", rank, " ended the group: ", reason);
  missing_ = {rank};
  changed_.notify_all();
}

void LocalWorld::leave(int rank) {
  const Lock lock(mutex_);
  left_[static_cast<size_t>(rank)] = true;
  changed_.notify_all();
}

}  // namespace etr::exchange
