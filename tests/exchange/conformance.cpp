#include "exchange/conformance.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <limits>
#include <numeric>
#include <vector>

namespace etr::test {

using exchange::Group;
using exchange::Reduction;

namespace {

// None, one, primes, and more than one message, one segment or one socket buffer holds.
constexpr size_t kCounts[] = {0, 1, 7, 1009, 65537, 2621441};  // the last: 10 MB of f32
constexpr size_t kFew = 20011;

// Returns the value of a rank at a place. Sums of such values need no rounding.
template <typename T>
T value(int rank, size_t at) {
  const int out = static_cast<int>((at * 7 + static_cast<size_t>(rank) * 13) % 101) - 50;
  if constexpr (exchange::is_short<T>)
    return T::of(static_cast<float>(out));
  else
    return static_cast<T>(out);
}

template <typename T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <typename T>
T expected(Reduction reduction, int size, size_t at) {
  T out = value<T>(0, at);
  for (int r = 1; r < size; ++r) {
    const T v = value<T>(r, at);
    exchange::reduce(reduction, &out, &out, &v, 1);
  }
  return out;
}

template <typename T>
std::vector<T> values(int rank, size_t count) {
  std::vector<T> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = value<T>(rank, i);
  return out;
}

template <typename T>
std::span<std::byte> bytes(std::vector<T>& of) {
  return std::as_writable_bytes(std::span(of));
}

class Check {
 public:
  explicit Check(Group& group) : g(group), rank(group.rank()), size(group.size()) {}

  template <typename T>
  void all_reduce(size_t count, Reduction reduction) {
    auto v = values<T>(rank, count);
    g.all_reduce(std::span(v), reduction);
    for (size_t i = 0; i < count; ++i)
      if (!same(v[i], expected<T>(reduction, size, i))) return wrong("all_reduce", count, i);
  }

  // Returns different lengths of parts for the ranks; the first one is 0.
  std::vector<uint64_t> uneven(size_t unit) const {
    std::vector<uint64_t> out;
    for (int r = 0; r < size; ++r) out.push_back(static_cast<uint64_t>(r) * unit);
    return out;
  }

  template <typename T>
  void reduce_scatter(size_t unit, Reduction reduction) {
    const auto counts = uneven(unit);
    const auto all = values<T>(rank, std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
    const size_t begin = std::accumulate(counts.begin(), counts.begin() + rank, uint64_t{0});
    std::vector<T> part(counts[static_cast<size_t>(rank)]);
    g.reduce_scatter(std::span<const T>(all), counts, std::span(part), reduction);
    for (size_t i = 0; i < part.size(); ++i)
      if (!same(part[i], expected<T>(reduction, size, begin + i)))
        return wrong("reduce_scatter", unit, i);
  }

  void all_gather(size_t unit) {
    const auto counts = uneven(unit);
    auto part = values<uint8_t>(rank, counts[static_cast<size_t>(rank)]);
    std::vector<uint8_t> all(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
    g.all_gather(bytes(part), counts, bytes(all));
    size_t at = 0;
    for (int r = 0; r < size; ++r)
      for (size_t i = 0; i < counts[static_cast<size_t>(r)]; ++i, ++at)
        if (all[at] != value<uint8_t>(r, i)) return wrong("all_gather", unit, at);
  }

  void broadcast(size_t count) {
    for (int root = 0; root < size; ++root) {
      auto v = values<int32_t>(rank, count);
      g.broadcast(bytes(v), root);
      for (size_t i = 0; i < count; ++i)
        if (v[i] != value<int32_t>(root, i)) return wrong("broadcast", count, i);
    }
  }

  // Sends around the ring, in both directions.
  void messages(size_t count) {
    if (size == 1) return;
    for (const int step : {1, size - 1}) {
      const int to = (rank + step) % size, from = (rank + size - step) % size;
      const auto tag = static_cast<uint32_t>(step == 1 ? 0 : ETR_ENGINE_TAG_MAX);
      auto mine = values<double>(rank, count);
      std::vector<double> theirs(count);
      if (rank % 2 == 0) g.send(bytes(mine), to, tag);
      g.receive(bytes(theirs), from, tag);
      if (rank % 2 == 1) g.send(bytes(mine), to, tag);
      if (theirs != values<double>(from, count)) wrong("receive", count, 0);
    }
  }

  // Messages with the same tags, in a group and in a duplicate of it at the same time. A send may
  // wait for its receive, so each has a thread. They are received in both orders: a group that took
  // messages of the other one would do so in one of them.
  void tags() {
    if (size == 1) return;
    Group other = g.duplicate();
    const auto number = [](bool duplicate, int32_t round, uint32_t tag) {
      return 1000 * (round + 1) + (duplicate ? 100 : 0) + static_cast<int32_t>(tag);
    };
    constexpr uint32_t kTags[] = {5, 0, 6, 5};
    const auto send = [&](bool duplicate, int32_t round) {
      for (const uint32_t tag : kTags) {
        std::vector<int32_t> message{number(duplicate, round, tag)};
        (duplicate ? other : g).send(bytes(message), 0, tag);
      }
    };
    const auto receive = [&](bool duplicate, int32_t round) {
      for (const uint32_t tag : kTags) {
        std::vector<int32_t> message{0};
        (duplicate ? other : g).receive(bytes(message), 1, tag);
        if (message[0] != number(duplicate, round, tag)) wrong("messages with tags", 1, 0);
      }
    };
    for (int32_t round = 0; round < 6; ++round) {
      if (rank == 1) {
        auto beside = std::async(std::launch::async, [&] { send(true, round); });
        send(false, round);
        beside.get();
      } else if (rank == 0) {
        receive(round % 2 == 0, round);
        receive(round % 2 == 1, round);
      }
    }
    g.barrier();
  }

  // Splits into even and odd ranks, in reverse order, without the last rank.
  void split() {
    const bool in = rank + 1 < size || size == 1;
    std::optional<Group> part = g.split(in ? rank % 2 : -1, -rank);
    if (part.has_value() != in) return wrong("split", 0, 0);
    if (!part) return;
    std::vector<int64_t> sum{rank};
    part->all_reduce(std::span(sum));
    int64_t want = 0, count = 0, after = 0;
    for (int r = rank % 2; r < std::max(size - 1, 1); r += 2) want += r, ++count, after += r > rank;
    if (sum[0] != want || part->size() != count || part->rank() != after) wrong("split", 1, 0);
  }

  // Sums that are rounded depend on the order of the ranks, which must be the same on all ranks and
  // every time.
  template <typename T>
  void same_bits() {
    std::vector<T> v(kFew);
    for (size_t i = 0; i < v.size(); ++i) {
      const float of = 1.0f / static_cast<float>(1 + i % 977 + static_cast<size_t>(rank) * 31);
      if constexpr (exchange::is_short<T>)
        v[i] = T::of(of);
      else
        v[i] = of;
    }
    auto again = v;
    g.all_reduce(std::span(v));
    g.all_reduce(std::span(again));
    if (std::memcmp(v.data(), again.data(), v.size() * sizeof(T)) != 0)
      return wrong("all_reduce, twice", kFew, 0);
    std::vector<T> all(v.size() * static_cast<size_t>(size));
    g.all_gather(bytes(v), bytes(all));
    for (int r = 0; r < size; ++r)
      if (std::memcmp(v.data(), all.data() + static_cast<size_t>(r) * v.size(),
                      v.size() * sizeof(T)) != 0)
        return wrong("all_reduce, on all ranks", kFew, static_cast<size_t>(r));
  }

  // In memory of the group, with arrays that begin at any place.
  void own_memory(size_t count) {
    exchange::Buffer memory = g.allocate((count * 2 + 16) * sizeof(float));
    const std::span all(reinterpret_cast<float*>(memory.bytes().data()), count * 2 + 16);
    if (reinterpret_cast<uintptr_t>(all.data()) % 4096 != 0) wrong("allocate", count, 0);
    const std::span array = all.subspan(5, count), other = all.subspan(7 + count, count);
    const auto mine = values<float>(rank, count);
    for (int twice = 0; twice < 2; ++twice) {
      std::ranges::copy(mine, array.begin());
      g.all_reduce(array);
      expect_sums(array, "all_reduce");
    }
    std::ranges::copy(mine, array.begin());
    g.broadcast(std::as_writable_bytes(array), size - 1);
    if (!std::ranges::equal(array, values<float>(size - 1, count)))
      wrong("broadcast in the group's memory", count, 0);

    const bool last = rank == size - 1;
    std::vector<uint64_t> counts(static_cast<size_t>(size));
    counts.back() = count;
    std::ranges::copy(mine, array.begin());
    const auto part = other.first(last ? count : 0);
    g.reduce_scatter(std::span<const float>(array), counts, part);
    expect_sums(part, "reduce_scatter");
    neighbours(array, other);
    in_place(array);
  }

  void expect_sums(std::span<const float> found, const char* operation) {
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i] != expected<float>(Reduction::sum, size, i))
        return wrong(cat(operation, " in the group's memory").c_str(), found.size(), i);
  }

  // Sends a message to the next rank.
  void neighbours(std::span<float> array, std::span<float> other) {
    if (size == 1) return;
    const int to = (rank + 1) % size, from = (rank + size - 1) % size;
    std::ranges::copy(values<float>(rank, array.size()), array.begin());
    if (rank % 2 == 0) g.send(std::as_bytes(array), to, 3);
    g.receive(std::as_writable_bytes(other), from, 3);
    if (rank % 2 == 1) g.send(std::as_bytes(array), to, 3);
    if (!std::ranges::equal(other, values<float>(from, array.size())))
      wrong("receive in the group's memory", array.size(), 0);
  }

  // Gathers parts that already lie in their places.
  void in_place(std::span<float> array) {
    const size_t each = array.size() / static_cast<size_t>(size);
    const auto all = array.first(each * static_cast<size_t>(size));
    const auto part = all.subspan(static_cast<size_t>(rank) * each, each);
    std::ranges::copy(values<float>(rank, each), part.begin());
    g.all_gather(std::as_bytes(part), std::as_writable_bytes(all));
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i] != value<float>(static_cast<int>(i / each), i % each))
        return wrong("all_gather in place", each, i);
  }

  void wrong(const char* operation, size_t count, size_t at) {
    if (problem.empty())
      problem =
          cat("rank ", rank, " of ", size, ": ", operation, " of ", count, " is wrong at ", at);
  }

  Group& g;
  const int rank, size;
  std::string problem;
};

}  // namespace

std::string every_operation(Group& group) {
  Check check(group);
  group.barrier();
  for (const size_t count : kCounts) {
    check.all_reduce<float>(count, Reduction::sum);
    check.broadcast(count / 3);
    check.messages(count / 2);
    check.all_gather(count);
    check.reduce_scatter<float>(count, Reduction::sum);
  }
  for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max}) {
    check.all_reduce<float>(kFew, reduction), check.all_reduce<double>(kFew, reduction);
    check.all_reduce<int32_t>(kFew, reduction), check.all_reduce<int64_t>(kFew, reduction);
    check.reduce_scatter<float>(kFew, reduction), check.reduce_scatter<double>(kFew, reduction);
    check.all_reduce<exchange::Float16>(kFew, reduction);
    check.all_reduce<exchange::BFloat16>(kFew, reduction);
    check.reduce_scatter<exchange::Float16>(kFew, reduction);
    check.reduce_scatter<exchange::BFloat16>(kFew, reduction);
    check.reduce_scatter<int32_t>(kFew, reduction), check.reduce_scatter<int64_t>(kFew, reduction);
  }
  for (const size_t count : {size_t{1}, kFew, size_t{2621441}}) check.own_memory(count);
  check.same_bits<float>();
  check.same_bits<exchange::Float16>(), check.same_bits<exchange::BFloat16>();
  check.tags();
  check.split();
  group.barrier();
  return check.problem;
}

}  // namespace etr::test
