#include "exchange/group.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/utf8.h"

namespace etr::exchange {

namespace {

thread_local int engines_entered = 0;

struct InEngine {
  InEngine() { ++engines_entered; }
  ~InEngine() { --engines_entered; }
};

// Some engines count the elements of an operation in int64.
constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();

uint64_t bytes_of(uint64_t count, Number number) {
  if (count > kMaxBytes / number_size(number))
    fail(Code::invalid_argument, "an exchange of ", count, " numbers is more than memory can hold");
  return count * number_size(number);
}

uint64_t total(std::span<const uint64_t> parts, int size, const char* what) {
  if (parts.size() != static_cast<size_t>(size))
    fail(Code::invalid_argument, what, " of ", parts.size(), " ranks for a group of ", size);
  uint64_t sum = 0;
  for (const uint64_t part : parts) {
    if (part > kMaxBytes - sum)
      fail(Code::invalid_argument, what, " are more than memory can hold");
    sum += part;
  }
  return sum;
}

void check_length(const char* what, uint64_t given, uint64_t needed) {
  if (given != needed)
    fail(Code::invalid_argument, what, " has ", given, " elements where ", needed, " are needed");
}

constexpr size_t kLeastTable = offsetof(etr_engine, allocate);  // of the first version
constexpr size_t kPage = 4096;

// Copies the members that the engine's version of the table has; the others are null.
etr_engine copy_of(const etr_engine& engine) {
  if (engine.struct_size < kLeastTable)
    fail(Code::invalid_argument, "the engine's table has ", engine.struct_size, " bytes where ",
         kLeastTable, " are needed: set struct_size, and compile it with this version's header");
  etr_engine out{};
  std::memcpy(&out, &engine, std::min<size_t>(engine.struct_size, sizeof out));
  return out;
}

void check_whole(const etr_engine& engine) {
  if (engine.size < 1 || engine.rank < 0 || engine.rank >= engine.size)
    fail(Code::invalid_argument, "the engine says that it is rank ", engine.rank, " of ",
         engine.size);
  if (!engine.abort || !engine.destroy)
    fail(Code::invalid_argument, "the engine's table lacks ", engine.abort ? "destroy" : "abort",
         ", which every engine has");
  if (!engine.allocate != !engine.release)
    fail(Code::invalid_argument,
         "the engine's table has one of allocate and release: both or neither");
}

// A function of the table, and what needs it. An engine that the program supplies may lack it.
struct Function {
  const char *name, *purpose;
};
constexpr Function kAllReduce{"all_reduce", "ranks agree on each step, and sum gradients, by it"};
constexpr Function kReduceScatter{"reduce_scatter", "ranks that share out a sum need it"};
constexpr Function kAllGather{"all_gather", "checkpoints of several ranks need it"};
constexpr Function kBroadcast{"broadcast", "ranks begin with the first one's weights by it"};
constexpr Function kBarrier{"barrier", "ranks that wait for each other need it"};
constexpr Function kSend{"send", "messages from one rank to another need it"};
constexpr Function kReceive{"receive", "messages from one rank to another need it"};
constexpr Function kSplit{"split",
                          "ranks exchange gradients in one group while they agree on steps in "
                          "another, which it makes"};

// Completes an engine's error message: an `unsupported` error says what needs the function, and an
// error without a message gets one that names the function.
void complete(const Function& function, int32_t status, etr_engine_error& error) {
  const std::string told(error.message, strnlen(error.message, sizeof error.message));
  if (status == static_cast<int32_t>(Code::unsupported))
    copy_message(cat(told.empty() ? cat("the engine has no function ", function.name) : told, ": ",
                     function.purpose),
                 &error);
  else if (told.empty())
    copy_message(cat("the engine's function ", function.name, " failed with the status ", status,
                     " and gave no reason"),
                 &error);
}

}  // namespace

bool in_engine() { return engines_entered > 0; }

class Group::State {
 public:
  State(const etr_engine& table, double seconds) : engine(copy_of(table)) {
    try {
      check_whole(engine);
      set_timeout(seconds);
    } catch (...) {  // the group owns the engine even if this throws
      if (engine.destroy) engine.destroy(engine.context);
      throw;
    }
  }
  ~State() {
    const InEngine in;
    engine.destroy(engine.context);
  }

  // For a group that is split off `of`, whose byte count it shares.
  State(const etr_engine& table, const State& of) : State(table, of.timeout_s) {
    brought = of.brought;
  }

  void set_timeout(double seconds) {
    if (!(seconds > 0) || seconds > 1e6)
      fail(Code::invalid_argument, "a time-out of ", seconds,
           " s: it is more than 0 and at most a million seconds");
    timeout_s = seconds;
  }

  // Calls a function of the table. `bytes`: what this rank contributes. After an error the group is
  // dead.
  template <typename... Parameters, typename... Arguments>
  void call(const Function& which, uint64_t bytes, int32_t (*function)(Parameters...),
            Arguments... arguments) {
    const std::unique_lock busy(mutex, std::try_to_lock);
    if (!busy)
      fail(Code::state, "another thread is using this group: use duplicate() for one more");
    if (dead_status != 0) raise_dead();
    etr_engine_error error{};
    error.struct_size = sizeof error;
    const auto run = [&] {
      const InEngine in;
      return function(engine.context, arguments..., &error);
    };
    const int32_t status = function ? run() : static_cast<int32_t>(Code::unsupported);
    if (status == 0) {
      *brought += bytes;
      return;
    }
    complete(which, status, error);
    dead_status = status;
    dead = error;
    raise_numbered(status, error);
  }

  // Returns memory that begins at a page boundary. It is the engine's if the engine allocates
  // memory, otherwise this process's own.
  void* allocate(uint64_t size_bytes) {
    if (!engine.allocate) return ::operator new (size_bytes, std::align_val_t{kPage});
    etr_engine_error error{};
    error.struct_size = sizeof error;
    void* memory = nullptr;
    const int32_t status = engine.allocate(engine.context, size_bytes, &memory, &error);
    if (status != 0) raise(status, error);
    return memory;
  }
  void release(void* memory) {
    if (engine.release) return engine.release(engine.context, memory);
    ::operator delete (memory, std::align_val_t{kPage});
  }

  void check_rank(const char* what, int rank) const {
    if (rank < 0 || rank >= engine.size)
      fail(Code::invalid_argument, what, " ", rank, " of a group of ", engine.size);
  }

  const etr_engine engine;
  std::atomic<double> timeout_s{kDefaultTimeout};
  std::vector<int> numbers;  // of the ranks, see number_ranks(); empty: their own
  std::string along;
  std::shared_ptr<std::atomic<uint64_t>> brought = std::make_shared<std::atomic<uint64_t>>(0);

 private:
  // An engine that the program supplies may report any rank, even one outside of the group.
  int number_of(int rank) const {
    const auto at = static_cast<size_t>(rank);
    return at < numbers.size() ? numbers[at] : rank;
  }

  [[noreturn]] void raise_numbered(int32_t status, const etr_engine_error& error) const {
    try {
      raise(status, error);
    } catch (const RankLost& lost) {
      if (numbers.empty()) throw;
      std::vector<int> there;
      for (const int rank : lost.missing()) there.push_back(number_of(rank));
      throw RankLost(
          cat(ranks_text(there), ": among those along ", along, ", counted from 0: ", lost.what()),
          there);
    }
  }

  [[noreturn]] void raise_dead() const {
    etr_engine_error error = dead;
    copy_message(cat("this group ended before: ", error.message), &error);
    raise_numbered(dead_status, error);
  }

  std::mutex mutex;
  int32_t dead_status = 0;
  etr_engine_error dead{};
};

Group::Group(const etr_engine& engine, double timeout_s)
    : state_(std::make_shared<State>(engine, timeout_s)) {}
Group::Group(const etr_engine& engine, const State& split_off)
    : state_(std::make_shared<State>(engine, split_off)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

int Group::rank() const { return state_->engine.rank; }
int Group::size() const { return state_->engine.size; }
uint64_t Group::bytes() const { return *state_->brought; }
double Group::timeout() const { return state_->timeout_s; }
void Group::set_timeout(double seconds) { state_->set_timeout(seconds); }

Buffer Group::allocate(uint64_t size_bytes) {
  if (size_bytes > kMaxBytes)
    fail(Code::out_of_memory, "an exchange of ", size_bytes, " bytes is more than memory can hold");
  return Buffer(state_, size_bytes);
}

Buffer::Buffer(std::shared_ptr<Group::State> group, uint64_t size_bytes)
    : group_(std::move(group)), size_(size_bytes) {
  const uint64_t bytes = (std::max<uint64_t>(size_bytes, 1) + kPage - 1) / kPage * kPage;
  try {
    memory_ = static_cast<std::byte*>(group_->allocate(bytes));
  } catch (const std::bad_alloc&) {
    fail(Code::out_of_memory, "no ", size_bytes, " bytes for what ranks exchange");
  }
  if (size_ > 0) std::memset(memory_, 0, size_);
}
Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(group_, other.group_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  return *this;
}
Buffer::~Buffer() {
  if (memory_) group_->release(memory_);
}

void Group::all_reduce(void* values, uint64_t count, Number number, Reduction reduction) {
  state_->call(kAllReduce, bytes_of(count, number), state_->engine.all_reduce, values, count,
               static_cast<int32_t>(number), static_cast<int32_t>(reduction), timeout());
}

void Group::reduce_scatter(const void* values, uint64_t count, std::span<const uint64_t> counts,
                           void* part, uint64_t part_count, Number number, Reduction reduction) {
  const uint64_t bytes = bytes_of(count, number);
  check_length("the array to reduce", count, total(counts, size(), "the counts"));
  check_length("this rank's part", part_count, counts[static_cast<size_t>(rank())]);
  state_->call(kReduceScatter, bytes, state_->engine.reduce_scatter, values, counts.data(), part,
               static_cast<int32_t>(number), static_cast<int32_t>(reduction), timeout());
}

void Group::all_gather(std::span<const std::byte> part, std::span<std::byte> all) {
  all_gather(part, std::vector<uint64_t>(static_cast<size_t>(size()), part.size()), all);
}

void Group::all_gather(std::span<const std::byte> part, std::span<const uint64_t> sizes,
                       std::span<std::byte> all) {
  check_length("the array to gather in", all.size(), total(sizes, size(), "the sizes"));
  check_length("this rank's part", part.size(), sizes[static_cast<size_t>(rank())]);
  state_->call(kAllGather, part.size(), state_->engine.all_gather, part.data(), sizes.data(),
               all.data(), timeout());
}

void Group::broadcast(std::span<std::byte> data, int root) {
  state_->check_rank("a broadcast from rank", root);
  const uint64_t bytes = root == rank() ? data.size() : 0;
  state_->call(kBroadcast, bytes, state_->engine.broadcast, data.data(), uint64_t{data.size()},
               root, timeout());
}

void Group::barrier() { state_->call(kBarrier, 0, state_->engine.barrier, timeout()); }

namespace {

void check_tag(uint32_t tag) {
  if (tag > ETR_ENGINE_TAG_MAX)
    fail(Code::invalid_argument, "the tag ", tag, ": they go up to ", int{ETR_ENGINE_TAG_MAX});
}

}  // namespace

void Group::send(std::span<const std::byte> data, int to, uint32_t tag) {
  check_tag(tag);
  state_->check_rank("a message to rank", to);
  if (to == rank()) fail(Code::invalid_argument, "a message from rank ", to, " to itself");
  state_->call(kSend, data.size(), state_->engine.send, data.data(), uint64_t{data.size()}, to, tag,
               timeout());
}

void Group::receive(std::span<std::byte> data, int from, uint32_t tag) {
  check_tag(tag);
  state_->check_rank("a message from rank", from);
  if (from == rank()) fail(Code::invalid_argument, "a message from rank ", from, " to itself");
  state_->call(kReceive, 0, state_->engine.receive, data.data(), uint64_t{data.size()}, from, tag,
               timeout());
}

std::optional<Group> Group::split(int colour, int key) {
  etr_engine part{};
  part.struct_size = sizeof part;
  state_->call(kSplit, 0, state_->engine.split, colour, key, timeout(), &part);
  if (part.size != 0) return Group(part, *state_);
  if (colour < 0) return std::nullopt;
  fail(Code::invalid_argument, "the engine's function split gave no group for colour ", colour,
       ": only ranks with a negative colour are in none");
}

Group Group::duplicate() {
  Group out = std::move(*split(0, rank()));
  if (out.rank() != rank() || out.size() != size())
    fail(Code::invalid_argument, "the engine's function split gave rank ", out.rank(), " of ",
         out.size(), ", although all ranks passed colour 0, and rank ", rank(), " of ", size(),
         " its number as the key");
  out.number_ranks(state_->numbers, state_->along);
  return out;
}

void Group::number_ranks(std::vector<int> numbers, std::string along) {
  state_->numbers = std::move(numbers);
  state_->along = std::move(along);
}

void Group::abort(const std::string& reason) {
  const InEngine in;
  state_->engine.abort(state_->engine.context, as_utf8(reason).c_str());
}

}  // namespace etr::exchange
