#include "parallel/data_parallel.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "core/error.h"
#include "ops/op.h"

namespace etr::parallel {

// Memory that both sides see: the rank's weight, then what is exchanged.
struct DataParallel::Exchange {
  gpu::Buffer memory;
  gpu::Buffer values;  // a copy of the step's
  int64_t rows;

  std::span<float> numbers() const {
    return {reinterpret_cast<float*>(memory.host), memory.size_bytes / sizeof(float)};
  }
  gpu::Buffer part(uint64_t begin, uint64_t count) const {
    return memory.slice((1 + begin) * 4, count * 4);
  }

  void run(exchange::Group& group) const {
    ops::StepValues step;
    std::memcpy(&step, values.host, sizeof step);
    const std::span<float> all = numbers(), means = all.subspan(1);
    const float weight = static_cast<float>(step.valid_rows) / static_cast<float>(rows);
    all[0] = weight;
    if (weight != 1)
      for (float& mean : means) mean *= weight;
    group.all_reduce(all);
    const float share = 1 / all[0];
    for (float& mean : means) mean *= share;
  }
};

DataParallel::DataParallel(exchange::Group group, gpu::DevicePtr device,
                           DataParallelOptions options)
    : group_(std::move(group)),
      device_(std::move(device)),
      options_(options),
      memory_(device_, gpu::MemoryUse::readback) {}

DataParallel::~DataParallel() = default;

int DataParallel::rank() const { return group_.rank(); }
int DataParallel::size() const { return group_.size(); }

gpu::CommandList DataParallel::weave(const gpu::CommandList& commands,
                                     const graph::ParameterStore& store, const Step& step,
                                     int64_t rows) {
  std::vector<Bucket> buckets =
      make_buckets(commands, store, static_cast<uint64_t>(options_.bucket_mb * 1e6));
  if (buckets.empty()) fail(Code::invalid_argument, "the model has no parameters to train");
  buckets.back().final_after = commands.size();  // the results are exchanged with the last one
  const gpu::Buffer values = memory_.allocate(sizeof(ops::StepValues));

  gpu::CommandList out{gpu::Copy{step.values, values}}, after;
  size_t done = 0;
  const auto copy_up_to = [&](size_t end) {
    out.insert(out.end(), commands.begin() + static_cast<ptrdiff_t>(done),
               commands.begin() + static_cast<ptrdiff_t>(end));
    done = end;
  };
  for (const Bucket& bucket : buckets) {
    const bool last = &bucket == &buckets.back();
    const uint64_t count = bucket.count() + (last ? step.results.size() : 0);
    const Exchange exchange{memory_.allocate((1 + count) * 4), values, rows};
    const auto work =
        std::make_shared<const std::function<void()>>([this, exchange] { exchange.run(group_); });
    copy_up_to(bucket.final_after);
    after.push_back(gpu::HostTurn{gpu::HostTurn::Mark::end, work});
    uint64_t at = 0;
    const auto both_ways = [&](const gpu::Buffer& buffer) {
      const gpu::Buffer part = exchange.part(at, buffer.size_bytes / 4);
      out.push_back(gpu::Copy{buffer, part});
      after.push_back(gpu::Copy{part, buffer});
      at += buffer.size_bytes / 4;
    };
    for (const Bucket::Range& range : bucket.ranges)
      both_ways(store.gradients().slice(uint64_t{range.begin} * 4, uint64_t{range.count} * 4));
    if (last)
      for (const gpu::Buffer& result : step.results) both_ways(result);
    out.push_back(gpu::HostTurn{gpu::HostTurn::Mark::begin, work});
  }
  copy_up_to(commands.size());
  out.insert(out.end(), after.begin(), after.end());
  return out;
}

void DataParallel::share(graph::ParameterStore& store) {
  std::map<std::string, Tensor> tensors = store.download();
  for (auto& [name, tensor] : tensors)
    group_.broadcast(std::as_writable_bytes(tensor.mutable_view<float>()), 0);
  store.upload(tensors);
}

}  // namespace etr::parallel
