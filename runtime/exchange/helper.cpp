#include "exchange/helper.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>

#include "core/clock.h"
#include "core/log.h"
#include "core/platform.h"
#include "exchange/engine_table.h"
#include "exchange/helper_process.h"
#include "exchange/membership.h"
#include "exchange/overlap.h"

namespace etr::exchange {

namespace {

using Deadline = platform::Deadline;
using Clock = std::chrono::steady_clock;

// Seconds that a rank waits at the end until others have received what it sent, as its helper does.
constexpr double kDrain = 5;
constexpr double kFlush = 2;  // in which the helper then sends its last words and ends
// Seconds that it waits if another group of the same ranks has lost one.
constexpr double kLostDrain = 0.5;

uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

uint64_t sum_of(const uint64_t* parts, int count) {
  return std::accumulate(parts, parts + count, uint64_t{0});
}

class HelperEngine {
 public:
  explicit HelperEngine(HelperPlace place, std::shared_ptr<std::atomic<bool>> rank_lost = {})
      : place_(std::move(place)),
        rank_lost_(rank_lost ? std::move(rank_lost) : std::make_shared<std::atomic<bool>>(false)) {
    const Deadline deadline = deadline_after(place_.timeout_s);
    meeting_ = std::make_unique<Meeting>(*place_.store, place_.name, place_.rank, place_.size);
    while (!process_) form(deadline);
  }

  // Waits until the others have left, too: they may still read what this rank sent. Waits only
  // briefly if another group of the same ranks lost a rank. That rank never leaves this group
  // either, and the others must report it as missing, not this rank.
  ~HelperEngine() {
    const bool elsewhere = *rank_lost_ && !lost_here_;
    const bool all = process_->leave(deadline_after(elsewhere ? kLostDrain : kDrain + kFlush));
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
        {}, {data, bytes}, {data, bytes});
  }

  void reduce_scatter(const void* data, const uint64_t* counts, void* part, Number number,
                      Reduction reduction, double timeout) {
    const uint64_t all = sum_of(counts, size()) * number_size(number);
    run({.operation = Operation::reduce_scatter,
         .number = static_cast<int32_t>(number),
         .reduction = static_cast<int32_t>(reduction),
         .timeout_s = timeout},
        counts, {data, all}, {part, counts[rank()] * number_size(number)});
  }

  void all_gather(const void* part, const uint64_t* sizes, void* data, double timeout) {
    run({.operation = Operation::all_gather, .timeout_s = timeout}, sizes, {part, sizes[rank()]},
        {data, sum_of(sizes, size())});
  }

  void broadcast(void* data, uint64_t bytes, int32_t root, double timeout) {
    const bool gives = root == rank();
    run({.operation = Operation::broadcast, .peer = root, .count = bytes, .timeout_s = timeout}, {},
        {data, gives ? bytes : 0}, {data, gives ? 0 : bytes});
  }

  void barrier(double timeout) {
    run({.operation = Operation::barrier, .timeout_s = timeout}, {}, {}, {});
  }

  void send(const void* data, uint64_t bytes, int32_t to, uint32_t tag, double timeout) {
    run({.operation = Operation::send,
         .peer = to,
         .tag = tag,
         .count = bytes,
         .timeout_s = timeout},
        {}, {data, bytes}, {});
  }

  void receive(void* data, uint64_t bytes, int32_t from, uint32_t tag, double timeout) {
    run({.operation = Operation::receive,
         .peer = from,
         .tag = tag,
         .count = bytes,
         .timeout_s = timeout},
        {}, {data, 0}, {data, bytes});
  }

  // Returns the engine of a new group, which has its own helper.
  HelperEngine* split(int32_t colour, int32_t key, double timeout) {
    std::vector<Choice> choices(static_cast<size_t>(size()));
    const std::vector<uint64_t> sizes(choices.size(), sizeof(Choice));
    const Choice mine{colour, key};
    all_gather(&mine, sizes.data(), choices.data(), timeout);
    const uint64_t split = ++splits_;
    const std::vector<int> ranks = members(choices, rank());
    if (ranks.empty()) return nullptr;
    HelperPlace part = place_;
    part.name = cat(session_, ".part", split, ".", colour);  // the session's name is unique
    part.rank = place(ranks, rank());
    part.size = static_cast<int>(ranks.size());
    part.timeout_s = timeout;
    try {
      return new HelperEngine(part, rank_lost_);
    } catch (const RankLost&) {
      *rank_lost_ = true;
      throw;
    }
  }

  void abort(const std::string& reason) { process_->abort(reason); }

  // Allocates memory that the helper shares.
  void* allocate(uint64_t bytes) {
    process_->check_owner();
    return process_->memory().take(bytes);
  }
  void release(void* memory) { process_->memory().give_back(memory); }

 private:
  // Makes one attempt. If a helper fails while the group forms, for example because a stranger
  // connected, all ranks try again.
  void form(Deadline deadline) {
    session_ = meeting_->agree(deadline, place_.timeout_s);
    try {
      process_ = std::make_unique<HelperProcess>(place_, *meeting_, deadline);
    } catch (const NeverJoins&) {
      meeting_->give_up();
      throw;
    } catch (const Error& error) {
      const bool passing = error.code() == Code::cancelled || error.code() == Code::rank_lost;
      if (!passing) meeting_->give_up_for_good(error.what());
      meeting_->give_up();
      if (!passing || Clock::now() >= deadline) throw;
      log_line(LogLevel::info,
               cat("rank ", rank(), " tries again to form a group: ", error.what()));
    }
  }

  struct Input {
    const void* data = nullptr;
    uint64_t bytes = 0;
  };
  struct Output {
    void* data = nullptr;
    uint64_t bytes = 0;
  };

  // Arrays in shared memory are used in place. Others are copied through the scratch memory, input
  // first.
  void run(Call call, const uint64_t* sizes, const Input& in, const Output& out) {
    process_->check_owner();
    SharedPool& pool = process_->memory();
    const bool one = !sizes;  // one array for both
    const uint64_t in_bytes = one ? std::max(in.bytes, out.bytes) : in.bytes;
    auto in_at = pool.place(in.data, in_bytes);
    const auto out_at = one ? in_at : pool.place(out.data, out.bytes);
    if (!one && overlap(in.data, in.bytes, out.data, out.bytes)) in_at.reset();
    const uint64_t in_scratch = in_at ? 0 : aligned(in_bytes);
    std::byte* const scratch = this->scratch(in_scratch + (out_at || one ? 0 : out.bytes));
    const uint64_t begin = pool.place(scratch, 0).value_or(0);
    call.in = in_at.value_or(begin);
    call.out = one ? call.in : out_at.value_or(begin + in_scratch);
    call.memory = std::max(call.in + in_bytes, call.out + out.bytes);
    if (!in_at && in.bytes > 0) std::memcpy(scratch, in.data, in.bytes);
    try {
      process_->call(call, {sizes, sizes ? static_cast<size_t>(size()) : 0});
    } catch (const RankLost&) {
      *rank_lost_ = lost_here_ = true;
      throw;
    }
    if (!out_at && out.bytes > 0) std::memcpy(out.data, scratch + (call.out - begin), out.bytes);
  }

  std::byte* scratch(uint64_t bytes) {
    if (bytes <= scratch_bytes_) return scratch_;
    // Grows by at least half, so that growing sizes do not remap each time.
    const uint64_t wanted = std::max(bytes, scratch_bytes_ + scratch_bytes_ / 2);
    SharedPool& pool = process_->memory();
    if (scratch_) pool.give_back(scratch_);
    scratch_ = nullptr, scratch_bytes_ = 0;
    scratch_ = pool.take(wanted);
    scratch_bytes_ = wanted;
    return scratch_;
  }

  const HelperPlace place_;
  const int64_t owner_ = platform::process_id();
  const std::shared_ptr<std::atomic<bool>> rank_lost_;  // shared with groups that are split off
  bool lost_here_ = false;
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<HelperProcess> process_;
  std::byte* scratch_ = nullptr;  // in the shared memory
  uint64_t scratch_bytes_ = 0;
  std::string session_;
  uint64_t splits_ = 0;
};

}  // namespace

Group helper_group(const HelperPlace& place) {
  return Group(table_of(new HelperEngine(place)), place.timeout_s);
}

}  // namespace etr::exchange
