#include "pipeline/budget.h"

#include <algorithm>
#include <cmath>

#include "core/bytes_text.h"
#include "core/error.h"
#include "core/memory.h"

namespace etr::pipeline {
namespace {

constexpr int kProbes = 8;
constexpr int kMostFed = 100'000;    // copies of a sample, to fill one batch
constexpr double kPlanned = 0.85;    // share of the budget
constexpr double kKeptShare = 0.05;  // share of the budget, for batch memory kept for reuse
constexpr double kShare = kPlanned - kKeptShare;  // for buffers and queues

class Collector final : public Emitter {
 public:
  void emit(Item&& item) override { items.push_back(std::move(item)); }
  std::vector<Item> items;
};

// Passes the item through the stage. Returns nothing if the stage emits nothing.
std::vector<Item> through(BudgetStage& at, Item item) {
  if (const MapStage* map = map_of(at.stage)) {
    map->process(item, 0);
    return item.dropped ? std::vector<Item>() : std::vector<Item>{std::move(item)};
  }
  SerialStage& serial = *serial_of(at.stage);
  if (!serial.traits().reads_items()) return {std::move(item)};
  serial.start_epoch(0);
  Collector out;
  for (int fed = 0; out.items.empty() && fed < kMostFed; ++fed) serial.process(Item(item), out);
  if (out.items.size() > 1) out.items.resize(1);
  return std::move(out.items);
}

// The size of an item after each stage: the largest of the samples tried.
std::vector<double> sizes_of(std::vector<BudgetStage>& stages, const Interrupt* interrupt) {
  std::vector<double> sizes(stages.size(), 0);
  Source& source = *source_of(stages[0].stage);
  source.start_pass(0, 0);
  int good = 0;
  for (int tried = 0; tried < 4 * kProbes && good < kProbes; ++tried) {
    if (interrupt && interrupt->stopped()) fail(Code::cancelled, "the pipeline was cancelled");
    try {
      Item first;
      first.ordinal = static_cast<uint64_t>(tried);
      if (!source.next(first)) break;
      std::vector<Item> item{std::move(first)};
      for (size_t i = 0; i < stages.size() && !item.empty(); ++i) {
        if (i > 0) item = through(stages[i], std::move(item[0]));
        if (!item.empty()) sizes[i] = std::max(sizes[i], static_cast<double>(item[0].size_bytes()));
      }
      good += !item.empty();
    } catch (const Error& error) {  // bad records are reported by the run
      if (error.code() == Code::cancelled || error.code() == Code::state) throw;
    }
  }
  for (size_t i = 1; i < sizes.size(); ++i)
    if (sizes[i] == 0) sizes[i] = sizes[i - 1];
  return sizes;
}

[[noreturn]] void refuse(double budget, double held, const std::string& holders, double least) {
  // A byte more, as the share is rounded.
  const double enough = std::ceil(((held + least) / kShare + 1) / 1e3) * 1e3;
  fail(Code::invalid_argument, "pipeline: budget_bytes is ", bytes_text(budget),
       ", too little: ", holders.empty() ? "" : holders + ", and ", "the queues need at least ",
       bytes_text(least), holders.empty() ? "" : ", together " + bytes_text(held + least),
       "; they may take ", std::lround(100 * kShare),
       " % of the budget: set budget_bytes to at least ", static_cast<int64_t>(enough), " (",
       bytes_text(enough), ")", holders.empty() ? "" : ", or make the buffers smaller");
}

}  // namespace

std::vector<QueueLimits> plan_budget(BudgetRequest request) {
  const std::vector<double> sizes = sizes_of(request.stages, request.interrupt);
  double held = 0;
  std::string holders;
  std::vector<double> largest, leaving;  // bytes of an item within a segment, and after it
  for (size_t i = 0; i < sizes.size(); ++i) {
    const BudgetStage& stage = request.stages[i];
    if (!map_of(stage.stage)) {
      largest.push_back(0);
      leaving.push_back(0);
    }
    largest.back() = std::max(largest.back(), std::max(sizes[i], 64.0));
    leaving.back() = std::max(sizes[i], 64.0);
    double holds = 0;
    if (Source* source = source_of(stage.stage))
      holds = source->holds_bytes(sizes[i]);
    else if (const SerialStage* serial = serial_of(stage.stage))
      holds = serial->holds_bytes(sizes[i - 1]);
    else if (const MapStage* map = map_of(stage.stage))
      holds = map->holds_bytes();
    if (holds <= 0) continue;
    held += holds;
    holders += cat(holders.empty() ? "" : ", ", "'", stage.name, "' holds ", bytes_text(holds));
  }
  // The minimum: one message of one item in the maps and one in the queue per segment, plus the
  // consumer's items.
  double least = 0, weights = 0;
  const double waiting = leaving.back() * static_cast<double>(request.prefetch + 1);
  for (size_t s = 0; s < largest.size(); ++s) {
    least += 2 * largest[s];
    weights += largest[s];
  }
  least += leaving.back() * 2;
  const double budget = static_cast<double>(request.bytes);
  const double usable = kShare * budget - held;
  if (usable < least) refuse(budget, held, holders, least);
  limit_kept_memory(static_cast<size_t>(kKeptShare * budget),
                    static_cast<size_t>(kPlanned * budget / 2));

  const double for_consumer = std::min(waiting, std::max(2 * leaving.back(), usable / 3));
  const double shared = std::max(usable - for_consumer, least - 2 * leaving.back());
  for (size_t s = 0; s < largest.size(); ++s) {
    QueueLimits& limits = request.limits[s];
    limits.budgeted = true;
    const double share = shared * largest[s] / weights, item = largest[s];
    limits.chunk =
        static_cast<size_t>(std::clamp(share / 4 / item, 1.0, static_cast<double>(limits.chunk)));
    const double message = static_cast<double>(limits.chunk) * item;
    limits.messages = static_cast<int64_t>(
        std::clamp(share / 2 / message, 1.0, static_cast<double>(limits.messages)));
    limits.bytes = static_cast<int64_t>(
        std::min(static_cast<double>(limits.bytes), std::max(share - message, 1.0)));
  }
  QueueLimits& last = request.limits.back();
  last.items = std::max<int64_t>(
      1, std::min(last.items, static_cast<int64_t>(for_consumer / leaving.back()) - 1));
  return request.limits;
}

}  // namespace etr::pipeline
