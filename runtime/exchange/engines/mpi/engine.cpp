// libechotrain-mpi-openmpi.so and libechotrain-mpi-mpich.so: groups on MPI.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <numeric>
#include <utility>

#include "core/clock.h"
#include "core/json.h"
#include "exchange/engine_table.h"
#include "exchange/engines/mpi/call.h"
#include "exchange/engines/mpi/progress.h"
#include "exchange/membership.h"
#include "exchange/numbers.h"
#include "exchange/overlap.h"

namespace etr::exchange {

namespace {

using Clock = std::chrono::steady_clock;
using Steps = std::vector<Job::Step>;

constexpr uint64_t kChunk = uint64_t{1} << 28;  // elements per MPI call, whose counts are int
constexpr size_t kPage = 4096;
// How long after a deadline the communication thread may take to report the result.
constexpr auto kPatience = std::chrono::seconds(6);
constexpr auto kDrain = std::chrono::seconds(6);

MPI_Datatype type_of(Number number) {
  switch (number) {
    case Number::f32: return MPI_FLOAT;
    case Number::f64: return MPI_DOUBLE;
    case Number::i32: return MPI_INT32_T;
    case Number::i64: return MPI_INT64_T;
    case Number::f16:
    case Number::bf16: return MPI_UINT16_T;
  }
  fail(Code::invalid_argument, "an unknown type of numbers");
}

// A user-defined MPI operation for types that MPI lacks: inout[i] = in[i] (+) inout[i].
template <typename T, Reduction reduction>
void reduce_short(void* in, void* inout, int* count, MPI_Datatype*) {
  reduce(reduction, static_cast<T*>(inout), static_cast<const T*>(in), static_cast<const T*>(inout),
         static_cast<size_t>(*count));
}

MPI_Op make_operation(MPI_User_function* function) {
  MPI_Op out;
  check(MPI_Op_create(function, /*commute=*/1, &out), "MPI_Op_create");
  return out;
}

template <typename T>
MPI_Op short_operation(Reduction reduction) {
  static const MPI_Op sum = make_operation(reduce_short<T, Reduction::sum>),
                      min = make_operation(reduce_short<T, Reduction::min>),
                      max = make_operation(reduce_short<T, Reduction::max>);
  return reduction == Reduction::sum ? sum : reduction == Reduction::min ? min : max;
}

// Only the communication thread calls this.
MPI_Op operation_of(Number number, Reduction reduction) {
  if (number == Number::f16) return short_operation<Float16>(reduction);
  if (number == Number::bf16) return short_operation<BFloat16>(reduction);
  switch (reduction) {
    case Reduction::sum: return MPI_SUM;
    case Reduction::min: return MPI_MIN;
    case Reduction::max: return MPI_MAX;
  }
  fail(Code::invalid_argument, "an unknown reduction");
}

// Returns one `step(offset, count, request)` for each chunk whose size fits MPI's int counts.
template <typename Step>
Steps in_chunks(uint64_t count, Step step) {
  Steps out;
  for (uint64_t at = 0; at < count; at += kChunk)
    out.push_back([=](MPI_Request* request) {
      step(at, static_cast<int>(std::min(kChunk, count - at)), request);
    });
  return out;
}

std::vector<int> as_ints(const uint64_t* counts, int size) {
  std::vector<int> out;
  for (int r = 0; r < size; ++r) {
    if (counts[r] > INT_MAX)
      fail(Code::unsupported, "a part of ", counts[r], " elements: MPI counts to ", INT_MAX);
    out.push_back(static_cast<int>(counts[r]));
  }
  return out;
}

uint64_t sum_of(const uint64_t* parts, int count) {
  return std::accumulate(parts, parts + count, uint64_t{0});
}

class MpiEngine {
 public:
  explicit MpiEngine(std::shared_ptr<Communicator> communicator) : c_(std::move(communicator)) {}

  // Waits until the other ranks have left, too.
  ~MpiEngine() {
    auto left = std::make_shared<std::promise<void>>();
    auto future = left->get_future();
    Progress::instance().post([c = c_, left] { c->leave(left); });
    if (future.wait_for(kDrain) != std::future_status::ready) return;
    Progress::instance().post([c = std::move(c_)] { Progress::instance().remove(c); });
  }

  int rank() const { return c_->rank(); }
  int size() const { return c_->size(); }

  void all_reduce(void* data, uint64_t count, Number number, Reduction reduction, double timeout) {
    const uint64_t bytes = count * number_size(number);
    const auto type = type_of(number);
    const auto memory = array(data, bytes, bytes, timeout);
    perform({.operation = Operation::all_reduce, .count = count, .timeout_s = timeout},
            in_chunks(count, [=, c = c_, each = number_size(number)](uint64_t at, int n,
                                                                     MPI_Request* request) {
              check(MPI_Iallreduce(MPI_IN_PLACE, memory + at * each, n, type,
                                   operation_of(number, reduction), c->comm(), request),
                    "MPI_Iallreduce");
            }));
    copy(data, memory, bytes);
  }

  void reduce_scatter(const void* data, const uint64_t* counts, void* part, Number number,
                      Reduction reduction, double timeout) {
    const auto type = type_of(number);
    const uint64_t all = sum_of(counts, size()) * number_size(number),
                   mine = counts[rank()] * number_size(number);
    const auto [in, out] = arrays(data, all, part, mine, timeout);
    const Steps steps{[=, c = c_, n = as_ints(counts, size())](MPI_Request* request) {
      check(MPI_Ireduce_scatter(in, out, n.data(), type, operation_of(number, reduction), c->comm(),
                                request),
            "MPI_Ireduce_scatter");
    }};
    perform({.operation = Operation::reduce_scatter, .count = all, .timeout_s = timeout}, steps);
    copy(part, out, mine);
  }

  // Beyond INT_MAX bytes each rank broadcasts its part, because MPI's own operation counts all
  // parts in an int.
  void all_gather(const void* part, const uint64_t* sizes, void* data, double timeout) {
    const uint64_t all = sum_of(sizes, size()), mine = sizes[rank()];
    const auto [in, out] = arrays(part, mine, data, all, timeout);
    Steps steps;
    if (all <= INT_MAX) {
      std::vector<int> counts = as_ints(sizes, size()), places(counts.size());
      std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
      steps.push_back([=, c = c_](MPI_Request* request) {
        check(MPI_Iallgatherv(in, static_cast<int>(mine), MPI_BYTE, out, counts.data(),
                              places.data(), MPI_BYTE, c->comm(), request),
              "MPI_Iallgatherv");
      });
    } else {
      copy(out + sum_of(sizes, rank()), in, mine);
      for (int r = 0; r < size(); ++r)
        append(steps, broadcasts(out + sum_of(sizes, r), sizes[r], r));
    }
    perform({.operation = Operation::all_gather, .count = all, .timeout_s = timeout}, steps);
    copy(data, out, all);
  }

  void broadcast(void* data, uint64_t bytes, int32_t root, double timeout) {
    const auto memory = array(data, bytes, root == rank() ? bytes : 0, timeout);
    perform({.operation = Operation::broadcast, .peer = root, .count = bytes, .timeout_s = timeout},
            broadcasts(memory, bytes, root));
    if (root != rank()) copy(data, memory, bytes);
  }

  void barrier(double timeout) {
    perform({.operation = Operation::barrier, .timeout_s = timeout},
            {[c = c_](MPI_Request* request) {
              check(MPI_Ibarrier(c->comm(), request), "MPI_Ibarrier");
            }});
  }

  void send(const void* data, uint64_t bytes, int32_t to, uint32_t tag, double timeout) {
    const auto memory = array(const_cast<void*>(data), bytes, bytes, timeout);
    perform(
        {.operation = Operation::send,
         .peer = to,
         .tag = tag,
         .count = bytes,
         .timeout_s = timeout},
        messages(bytes, [=, c = c_](uint64_t at, int n, MPI_Request* request) {
          check(MPI_Isend(memory + at, n, MPI_BYTE, to, static_cast<int>(tag), c->comm(), request),
                "MPI_Isend");
        }));
  }

  void receive(void* data, uint64_t bytes, int32_t from, uint32_t tag, double timeout) {
    const auto memory = array(data, bytes, 0, timeout);
    perform({.operation = Operation::receive,
             .peer = from,
             .tag = tag,
             .count = bytes,
             .timeout_s = timeout},
            messages(bytes, [=, c = c_](uint64_t at, int n, MPI_Request* request) {
              check(MPI_Irecv(memory + at, n, MPI_BYTE, from, static_cast<int>(tag), c->comm(),
                              request),
                    "MPI_Irecv");
            }));
    copy(data, memory, bytes);
  }

  // MPI makes communicators with blocking calls. The all_gather ensures that all ranks have come
  // before.
  MpiEngine* split(int32_t colour, int32_t key, double timeout) {
    std::vector<Choice> choices(static_cast<size_t>(size()));
    const std::vector<uint64_t> sizes(choices.size(), sizeof(Choice));
    const Choice mine{colour, key};
    all_gather(&mine, sizes.data(), choices.data(), timeout);
    const auto made = std::make_shared<std::shared_ptr<Communicator>>();
    Progress::instance().run(deadline_after(timeout), [c = c_, colour, key, made] {
      const int part = colour < 0 ? MPI_UNDEFINED : colour;
      MPI_Comm comm = MPI_COMM_NULL, control = MPI_COMM_NULL;
      check(MPI_Comm_split(c->comm(), part, key, &comm), "MPI_Comm_split");
      check(MPI_Comm_split(c->control(), part, key, &control), "MPI_Comm_split");
      if (comm == MPI_COMM_NULL) return;
      *made = std::make_shared<Communicator>(comm, control, 0, true);
      Progress::instance().add(*made);
    });
    return *made ? new MpiEngine(*made) : nullptr;
  }

  void abort(const std::string& reason) {
    Progress::instance().post([c = c_, reason] { c->abort(reason); });
  }

  // Allocates memory that MPI may use directly.
  void* allocate(uint64_t bytes) {
    void* const block = ::operator new (bytes, std::align_val_t{kPage});
    const std::lock_guard lock(blocks_mutex_);
    blocks_.emplace(static_cast<std::byte*>(block), bytes);
    return block;
  }

  // After an error MPI may still use the memory, so it is never freed.
  void release(void* block) {
    const std::lock_guard lock(blocks_mutex_);
    blocks_.erase(static_cast<std::byte*>(block));
    if (!failed_) ::operator delete (block, std::align_val_t{kPage});
  }

  static void copy(void* to, const void* from, uint64_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }

  // Has the communication thread perform the steps. Throws if one of them fails.
  static void perform_on(const std::shared_ptr<Communicator>& c, const Call& call, Steps steps) {
    const auto job = std::make_shared<Job>();
    job->call = call;
    job->steps = std::move(steps);
    job->due = deadline_after(call.timeout_s);
    auto result = job->result.get_future();
    Progress::instance().post([c, job] { c->begin(job); });
    if (result.wait_until(job->due + kPatience) != std::future_status::ready)
      throw RankLost(cat("the communication thread of rank ", c->rank(), " hangs in MPI"),
                     {c->rank()});
    if (const auto failure = result.get()) raise(failure->status, failure->error);
  }

 private:
  // Returns whether these bytes lie in memory from allocate().
  bool is_ours(const void* data, uint64_t bytes) const {
    const auto* const at = static_cast<const std::byte*>(data);
    const std::lock_guard lock(blocks_mutex_);
    auto after = blocks_.upper_bound(at);
    if (after == blocks_.begin()) return false;
    const auto& [begin, size] = *--after;
    const auto offset = static_cast<uint64_t>(at - begin);
    return offset <= size && bytes <= size - offset;
  }

  // Returns where MPI works on an array whose first `filled` bytes are input: in place, or a
  // scratch copy.
  std::byte* array(void* data, uint64_t bytes, uint64_t filled, double timeout) {
    if (is_ours(data, bytes)) return static_cast<std::byte*>(data);
    std::byte* const memory = scratch(bytes, timeout);
    copy(memory, data, filled);
    return memory;
  }

  // Does the same for an input and an output.
  std::pair<const std::byte*, std::byte*> arrays(const void* in, uint64_t in_bytes, void* out,
                                                 uint64_t out_bytes, double timeout) {
    const bool in_stays = is_ours(in, in_bytes) && !overlap(in, in_bytes, out, out_bytes);
    const bool out_stays = is_ours(out, out_bytes);
    const uint64_t in_scratch = in_stays ? 0 : in_bytes;
    std::byte* const memory = scratch(in_scratch + (out_stays ? 0 : out_bytes), timeout);
    if (!in_stays) copy(memory, in, in_bytes);
    return {in_stays ? static_cast<const std::byte*>(in) : memory,
            out_stays ? static_cast<std::byte*>(out) : memory + in_scratch};
  }

  // Returns memory that MPI may use for any array. The communication thread owns and grows it.
  std::byte* scratch(uint64_t size, double timeout) {
    if (size > capacity_) {
      const auto grown = std::make_shared<std::byte*>();
      Progress::instance().run(deadline_after(timeout),
                               [c = c_, size, grown] { *grown = c->memory(size); });
      memory_ = *grown;
      capacity_ = size;
    }
    return memory_;
  }

  void perform(const Call& call, Steps steps) {
    try {
      perform_on(c_, call, std::move(steps));
    } catch (...) {
      failed_ = true;
      throw;
    }
  }

  Steps broadcasts(std::byte* memory, uint64_t bytes, int root) const {
    return in_chunks(bytes, [=, c = c_](uint64_t at, int n, MPI_Request* request) {
      check(MPI_Ibcast(memory + at, n, MPI_BYTE, root, c->comm(), request), "MPI_Ibcast");
    });
  }

  // Like in_chunks, with one empty message for zero bytes.
  template <typename Step>
  static Steps messages(uint64_t bytes, Step step) {
    if (bytes > 0) return in_chunks(bytes, step);
    return {[=](MPI_Request* request) { step(0, 0, request); }};
  }

  static void append(Steps& to, const Steps& more) {
    to.insert(to.end(), more.begin(), more.end());
  }

  std::shared_ptr<Communicator> c_;
  std::byte* memory_ = nullptr;
  uint64_t capacity_ = 0;
  mutable std::mutex blocks_mutex_;
  std::map<const std::byte*, uint64_t> blocks_;  // with their sizes in bytes
  std::atomic<bool> failed_ = false;
};

// Opens the group of all processes that MPI's launcher started. Rank and size must be as the caller
// expects.
MpiEngine* open(const Json& spec) {
  const double timeout = spec.at("timeout").get<double>();
  const auto world = Progress::instance().world();
  if (world->size() != spec.at("size").get<int>() || world->rank() != spec.at("rank").get<int>())
    fail(Code::invalid_argument, "MPI says that this is rank ", world->rank(), " of ",
         world->size(), ", and rank ", spec.at("rank").get<int>(), " of ",
         spec.at("size").get<int>(),
         " was expected: start the program with the mpirun of this MPI (", MPI_LIBRARY_NAME, ")");
  // Never freed: after an error MPI may still write to it.
  auto* const comms = new std::array<MPI_Comm, 2>;
  Steps steps;
  for (MPI_Comm& comm : *comms)
    steps.push_back([&comm](MPI_Request* request) {
      check(MPI_Comm_idup(MPI_COMM_WORLD, &comm, request), "MPI_Comm_idup");
    });
  MpiEngine::perform_on(world, {.operation = Operation::barrier, .timeout_s = timeout}, steps);
  const auto made = std::make_shared<std::shared_ptr<Communicator>>();
  Progress::instance().run(deadline_after(timeout), [comms, made] {
    *made = std::make_shared<Communicator>((*comms)[0], (*comms)[1], 0, true);
    Progress::instance().add(*made);
  });
  delete comms;
  return new MpiEngine(*made);
}

}  // namespace
}  // namespace etr::exchange

extern "C" __attribute__((visibility("default"))) int32_t etr_engine_open(const char* spec,
                                                                          etr_engine* engine,
                                                                          etr_engine_error* error) {
  return etr::exchange::guarded(error, [&] {
    etr::exchange::hand_over(etr::exchange::table_of(etr::exchange::open(etr::Json::parse(spec))),
                             engine);
  });
}
