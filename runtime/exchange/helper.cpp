#include "exchange/helper.h"

#include <cstring>
#include <mutex>
#include <numeric>

#include "core/clock.h"
#include "core/log.h"
#include "core/platform.h"
#include "exchange/engine_table.h"
#include "exchange/helper_process.h"
#include "exchange/membership.h"

namespace etr::exchange {

namespace {

using Deadline = platform::Deadline;
using Clock = std::chrono::steady_clock;

constexpr double kDrain =
    5;  // seconds that a rank waits at the end for others to have what it sent

uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

uint64_t sum_of(const uint64_t* parts, int count) {
  return std::accumulate(parts, parts + count, uint64_t{0});
}

class HelperEngine {
 public:
  explicit HelperEngine(HelperPlace place) : place_(std::move(place)) {
    const Deadline deadline = deadline_after(place_.timeout_s);
    meeting_ =
        std::make_unique<Meeting>(*place_.store, place_.name, place_.rank, place_.size, [] {});
    while (!process_) form(deadline);
  }

  // Waits until the others have left, too: this rank may have sent what they still read.
  ~HelperEngine() {
    const bool all = process_->leave(deadline_after(kDrain + 1));
    process_.reset();
    if (platform::process_id() == owner_) meeting_->forget(all);
  }

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }

  void all_reduce(void* data, uint64_t count, Number number, Reduction reduction, double timeout) {
    const uint64_t bytes = count * number_size(number);
    run({.operation = Operation::all_reduce,
         .number = static_cast<int32_t>(number),
         .reduction = static_cast<int32_t>(reduction),
         .count = count,
         .timeout_s = timeout},
        {}, data, bytes, 0, data, bytes);
  }

  void reduce_scatter(const void* data, const uint64_t* counts, void* part, Number number,
                      Reduction reduction, double timeout) {
    const uint64_t all = sum_of(counts, size()) * number_size(number);
    run({.operation = Operation::reduce_scatter,
         .number = static_cast<int32_t>(number),
         .reduction = static_cast<int32_t>(reduction),
         .timeout_s = timeout},
        counts, data, all, aligned(all), part, counts[rank()] * number_size(number));
  }

  void all_gather(const void* part, const uint64_t* sizes, void* data, double timeout) {
    run({.operation = Operation::all_gather, .timeout_s = timeout}, sizes, part, sizes[rank()],
        aligned(sizes[rank()]), data, sum_of(sizes, size()));
  }

  void broadcast(void* data, uint64_t bytes, int32_t root, double timeout) {
    const bool gives = root == rank();
    run({.operation = Operation::broadcast, .peer = root, .count = bytes, .timeout_s = timeout}, {},
        data, gives ? bytes : 0, 0, data, gives ? 0 : bytes);
  }

  void barrier(double timeout) {
    run({.operation = Operation::barrier, .timeout_s = timeout}, {}, nullptr, 0, 0, nullptr, 0);
  }

  void send(const void* data, uint64_t bytes, int32_t to, uint32_t tag, double timeout) {
    run({.operation = Operation::send,
         .peer = to,
         .tag = tag,
         .count = bytes,
         .timeout_s = timeout},
        {}, data, bytes, 0, nullptr, 0);
  }

  void receive(void* data, uint64_t bytes, int32_t from, uint32_t tag, double timeout) {
    run({.operation = Operation::receive,
         .peer = from,
         .tag = tag,
         .count = bytes,
         .timeout_s = timeout},
        {}, nullptr, 0, 0, data, bytes);
  }

  // A group of its own, with a helper of its own.
  HelperEngine* split(int32_t colour, int32_t key, double timeout) {
    std::vector<Choice> choices(static_cast<size_t>(size()));
    const std::vector<uint64_t> sizes(choices.size(), sizeof(Choice));
    const Choice mine{colour, key};
    all_gather(&mine, sizes.data(), choices.data(), timeout);
    const uint64_t split = ++splits_;
    const std::vector<int> ranks = members(choices, rank());
    if (ranks.empty()) return nullptr;
    HelperPlace part = place_;
    part.name = cat(session_, ".part", split, ".", colour);  // a session's name is nobody else's
    part.rank = place(ranks, rank());
    part.size = static_cast<int>(ranks.size());
    part.timeout_s = timeout;
    return new HelperEngine(part);
  }

  void abort(const std::string& reason) { process_->abort(reason); }

 private:
  // One attempt. A helper that fails while the group forms may have met a stranger: all ranks try again.
  void form(Deadline deadline) {
    session_ = meeting_->agree(deadline, place_.timeout_s);
    try {
      process_ = std::make_unique<HelperProcess>(place_, *meeting_, deadline);
    } catch (const Error& error) {
      const bool passing = error.code() == Code::cancelled || error.code() == Code::rank_lost;
      if (!passing) meeting_->give_up_for_good(error.what());
      meeting_->give_up();
      if (!passing || Clock::now() >= deadline) throw;
      log_line(LogLevel::info,
               cat("rank ", rank(), " tries again to form a group: ", error.what()));
    }
  }

  void run(Call call, const uint64_t* sizes, const void* in, uint64_t in_bytes, uint64_t out_at,
           void* out, uint64_t out_bytes) {
    call.out = out_at;
    call.memory = std::max(in_bytes, out_at + out_bytes);
    std::byte* const memory = process_->memory(call.memory);
    if (in_bytes > 0) std::memcpy(memory, in, in_bytes);
    process_->call(call, {sizes, sizes ? static_cast<size_t>(size()) : 0});
    if (out_bytes > 0) std::memcpy(out, memory + out_at, out_bytes);
  }

  const HelperPlace place_;
  const int64_t owner_ = platform::process_id();
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<HelperProcess> process_;
  std::string session_;
  uint64_t splits_ = 0;
};

}  // namespace

Group helper_group(const HelperPlace& place) {
  return Group(table_of(new HelperEngine(place)), place.timeout_s);
}

}  // namespace etr::exchange
