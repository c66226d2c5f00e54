#include "exchange/local.h"

#include <cstring>
#include <numeric>

#include "exchange/engine_table.h"
#include "exchange/local_world.h"
#include "exchange/membership.h"

namespace etr::exchange {

namespace {

constexpr size_t kBlock = 4096;  // numbers reduced at a time, few enough to stay in the cache

// Writes the reduction of in[0], in[1], ..., in this order, to every out[r]. `out` may be `in`.
template <typename T>
void reduce_block(Reduction reduction, const std::vector<const T*>& in, const std::vector<T*>& out,
                  size_t begin, size_t count) {
  T result[kBlock];
  std::copy_n(in[0] + begin, count, result);
  for (size_t r = 1; r < in.size(); ++r) reduce(reduction, result, result, in[r] + begin, count);
  for (T* const to : out) std::copy_n(result, count, to + begin);
}

template <typename T>
void reduce_range(Reduction reduction, const std::vector<const T*>& in, const std::vector<T*>& out,
                  size_t begin, size_t end) {
  for (size_t at = begin; at < end; at += kBlock)
    reduce_block(reduction, in, out, at, std::min(kBlock, end - at));
}

std::string sizes_text(const uint64_t* sizes, int count) {
  std::string out = " of";
  for (int i = 0; i < count; ++i) out += cat(i ? " + " : " ", sizes[i]);
  return out;
}

std::string shape_text(Number number, Reduction reduction) {
  return cat(" numbers (type ", static_cast<int>(number), ", reduction ",
             static_cast<int>(reduction), ")");
}

class LocalEngine {
 public:
  LocalEngine(std::shared_ptr<LocalWorld> world, int rank)
      : world_(std::move(world)), rank_(rank) {}
  ~LocalEngine() { world_->leave(rank_); }

  int rank() const { return rank_; }
  int size() const { return world_->size(); }

  // Each rank reduces its share of the values and writes the result to all ranks' arrays.
  void all_reduce(void* data, uint64_t count, Number number, Reduction reduction, double timeout) {
    const Visit visit{"all_reduce", cat(" of ", count, shape_text(number, reduction)), data, data};
    world_->meet(rank_, visit, timeout, [&](const std::vector<Visit>& visits) {
      with_number(number, [&]<typename T>(T) {
        std::vector<const T*> in;
        std::vector<T*> out;
        for (const Visit& v : visits) {
          in.push_back(static_cast<const T*>(v.in));
          out.push_back(static_cast<T*>(v.out));
        }
        const auto share = [&](int r) {
          return count / static_cast<size_t>(size()) * static_cast<size_t>(r) +
                 std::min<uint64_t>(count % static_cast<size_t>(size()), static_cast<size_t>(r));
        };
        reduce_range(reduction, in, out, share(rank_), share(rank_ + 1));
      });
    });
  }

  void reduce_scatter(const void* data, const uint64_t* counts, void* part, Number number,
                      Reduction reduction, double timeout) {
    const Visit visit{"reduce_scatter", sizes_text(counts, size()) + shape_text(number, reduction),
                      data, part};
    world_->meet(rank_, visit, timeout, [&](const std::vector<Visit>& visits) {
      const uint64_t begin = std::accumulate(counts, counts + rank_, uint64_t{0});
      with_number(number, [&]<typename T>(T) {
        std::vector<const T*> in;
        for (const Visit& v : visits) in.push_back(static_cast<const T*>(v.in) + begin);
        reduce_range(reduction, in, {static_cast<T*>(part)}, 0, counts[rank_]);
      });
    });
  }

  void all_gather(const void* part, const uint64_t* sizes, void* data, double timeout) {
    const Visit visit{"all_gather", sizes_text(sizes, size()) + " bytes", part, data};
    world_->meet(rank_, visit, timeout, [&](const std::vector<Visit>& visits) {
      auto* to = static_cast<std::byte*>(data);
      // Skips a part that is already in its place: other ranks may be reading it.
      for (size_t r = 0; r < visits.size(); to += sizes[r++])
        if (sizes[r] > 0 && to != visits[r].in) std::memmove(to, visits[r].in, sizes[r]);
    });
  }

  void broadcast(void* data, uint64_t bytes, int32_t root, double timeout) {
    const Visit visit{"broadcast", cat(" of ", bytes, " bytes from rank ", root), data, data};
    world_->meet(rank_, visit, timeout, [&](const std::vector<Visit>& visits) {
      if (rank_ != root && bytes > 0)
        std::memcpy(data, visits[static_cast<size_t>(root)].in, bytes);
    });
  }

  void barrier(double timeout) {
    world_->meet(rank_, {"barrier", ""}, timeout, [](const std::vector<Visit>&) {});
  }

  void send(const void* data, uint64_t bytes, int32_t to, uint32_t tag, double timeout) {
    world_->send(data, bytes, rank_, to, tag, timeout);
  }
  void receive(void* data, uint64_t bytes, int32_t from, uint32_t tag, double timeout) {
    world_->receive(data, bytes, from, rank_, tag, timeout);
  }

  LocalEngine* split(int32_t colour, int32_t key, double timeout) {
    std::unique_ptr<LocalEngine> made;
    const Visit visit{"split", "", nullptr, nullptr, colour, key};
    world_->meet(rank_, visit, timeout, [&](const std::vector<Visit>& visits) {
      std::vector<Choice> choices;
      for (const Visit& v : visits) choices.push_back({v.colour, v.key});
      const std::vector<int> ranks = members(choices, rank_);
      if (ranks.empty()) return;
      made = std::make_unique<LocalEngine>(world_->part(colour, static_cast<int>(ranks.size())),
                                           place(ranks, rank_));
    });
    return made.release();
  }

  void abort(const std::string& reason) { world_->abort(rank_, reason); }

 private:
  const std::shared_ptr<LocalWorld> world_;
  const int rank_;
};

}  // namespace

std::vector<Group> local_groups(int size, double timeout_s) {
  if (size < 1) fail(Code::invalid_argument, "a group of ", size, " ranks");
  const auto world = std::make_shared<LocalWorld>(size);
  std::vector<Group> groups;
  for (int rank = 0; rank < size; ++rank)
    groups.emplace_back(table_of(new LocalEngine(world, rank)), timeout_s);
  return groups;
}

}  // namespace etr::exchange
