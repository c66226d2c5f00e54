#include "exchange/engines/gloo/operations.h"

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "exchange/engines/gloo/slots.h"
#include "exchange/numbers.h"

namespace etr::exchange {

namespace {

using Context = std::shared_ptr<gloo::Context>;

// A ring algorithm: each segment is reduced on one rank, in the order of the ring.
void all_reduce(const Context& context, const Call& call, std::byte* memory, uint32_t tag) {
  if (call.count == 0) return;
  const Number number{call.number};
  const Reduction reduction{call.reduction};
  gloo::AllreduceOptions options(context);
  with_number(number, [&]<typename T>(T) {
    options.setOutput(reinterpret_cast<T*>(memory + call.in), call.count);
  });
  options.setReduceFunction([=](void* out, const void* a, const void* b, size_t count) {
    reduce(number, reduction, out, a, b, count);
  });
  options.setTag(tag);
  gloo::allreduce(options);
}

// Every rank receives all ranks' versions of its part, and reduces them in rank order.
void reduce_scatter(const Context& context, const Call& call, std::span<const uint64_t> counts,
                    std::byte* memory, uint32_t tag) {
  const Number number{call.number};
  const auto rank = static_cast<size_t>(context->rank), size = static_cast<size_t>(context->size);
  const uint64_t mine = counts[rank];
  with_number(number, [&]<typename T>(T) {
    std::vector<T> versions(mine * size);
    gloo::AlltoallvOptions options(context);
    options.setInput(reinterpret_cast<T*>(memory + call.in),
                     std::vector<int64_t>(counts.begin(), counts.end()));
    options.setOutput(versions.data(), std::vector<int64_t>(size, static_cast<int64_t>(mine)));
    options.setTag(tag);
    gloo::alltoallv(options);
    auto* const out = reinterpret_cast<T*>(memory + call.out);
    std::copy_n(versions.data(), mine, out);
    for (size_t r = 1; r < size; ++r)
      reduce(Reduction{call.reduction}, out, out, versions.data() + r * mine, mine);
  });
}

void all_gather(const Context& context, const Call& call, std::span<const uint64_t> sizes,
                std::byte* memory, uint32_t tag) {
  gloo::AllgathervOptions options(context);
  options.setInput(reinterpret_cast<char*>(memory + call.in),
                   sizes[static_cast<size_t>(context->rank)]);
  options.setOutput(reinterpret_cast<char*>(memory + call.out),
                    std::vector<size_t>(sizes.begin(), sizes.end()));
  options.setTag(tag);
  gloo::allgatherv(options);
}

void broadcast(const Context& context, const Call& call, std::byte* memory, uint32_t tag) {
  if (call.count == 0) return;
  gloo::BroadcastOptions options(context);
  options.setOutput(reinterpret_cast<char*>(memory + call.in), call.count);
  options.setRoot(call.peer);
  options.setTag(tag);
  gloo::broadcast(options);
}

void barrier(const Context& context, uint32_t tag) {
  gloo::BarrierOptions options(context);
  options.setTag(tag);
  gloo::barrier(options);
}

void pass(const Context& context, const Call& call, std::byte* memory) {
  const auto buffer = context->createUnboundBuffer(memory + call.in, call.count);
  if (call.operation == Operation::send) {
    buffer->send(call.peer, message_slot(call.tag));
    buffer->waitSend();
  } else {
    buffer->recv(call.peer, message_slot(call.tag));
    buffer->waitRecv();
  }
}

}  // namespace

void perform(const std::shared_ptr<gloo::Context>& context, const Call& call,
             std::span<const uint64_t> sizes, std::byte* memory, uint64_t ordinal) {
  const auto tag = static_cast<uint32_t>(ordinal);
  switch (call.operation) {
    case Operation::all_reduce: return all_reduce(context, call, memory, tag);
    case Operation::reduce_scatter: return reduce_scatter(context, call, sizes, memory, tag);
    case Operation::all_gather: return all_gather(context, call, sizes, memory, tag);
    case Operation::broadcast: return broadcast(context, call, memory, tag);
    case Operation::barrier: return barrier(context, tag);
    case Operation::send:
    case Operation::receive: return pass(context, call, memory);
  }
}

}  // namespace etr::exchange
