#include "exchange/engines/gloo/notices.h"

#include <gloo/transport/unbound_buffer.h>

#include <algorithm>

#include "exchange/engines/gloo/slots.h"

namespace etr::exchange {

void Notices::watch(Heard heard, Silent silent) {
  for (int rank = 0; rank < context_->size; ++rank) {
    if (rank == context_->rank) continue;
    std::thread([=, this] {
      Notice notice{};
      try {
        const auto buffer = context_->createUnboundBuffer(&notice, sizeof notice);
        while (true) {
          buffer->recv(rank, kNoticeSlot);
          buffer->waitRecv();
          heard(rank, notice);
        }
      } catch (const std::exception& error) {
        silent(rank, error.what());
      }
    }).detach();
  }
}

void Notices::send(int rank, const Notice& notice) {
  const std::lock_guard lock(mutex_);
  Sent& sent = sent_.emplace_back(Sent{rank, notice, nullptr});
  try {
    sent.buffer = context_->createUnboundBuffer(&sent.notice, sizeof sent.notice);
    sent.buffer->send(rank, kNoticeSlot);
  } catch (const std::exception&) {
    sent_.pop_back();  // the receive that watches this rank reports the loss
  }
}

void Notices::tell_all(const Notice& notice) {
  for (int rank = 0; rank < context_->size; ++rank)
    if (rank != context_->rank) send(rank, notice);
}

// Each wait has its own thread and no time limit: a wait that times out makes Gloo close all
// connections.
void Notices::flush(std::chrono::milliseconds patience, std::span<const int> lost) {
  struct Count {
    std::mutex mutex;
    std::condition_variable changed;
    size_t open;
  };
  const std::lock_guard lock(mutex_);
  std::vector<Sent*> awaited;
  for (Sent& sent : sent_)
    if (std::find(lost.begin(), lost.end(), sent.rank) == lost.end()) awaited.push_back(&sent);
  const auto count = std::make_shared<Count>();
  count->open = awaited.size();
  for (Sent* const sent : awaited)
    std::thread([count, sent] {
      try {
        sent->buffer->waitSend();
      } catch (const std::exception&) {
      }
      const std::lock_guard done(count->mutex);
      --count->open;
      count->changed.notify_all();
    }).detach();
  std::unique_lock wait(count->mutex);
  count->changed.wait_for(wait, patience, [&] { return count->open == 0; });
}

}  // namespace etr::exchange
