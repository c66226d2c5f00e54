#include "pipeline/budget.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

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

// Most errors of a trial are left to the run, which reports bad records. But without memory, what a
// trial has measured is worth nothing.
bool ends_planning(const Error& error) {
  return error.code() == Code::cancelled || error.code() == Code::out_of_memory;
}

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
      if (ends_planning(error) || error.code() == Code::state) throw;
    }
  }
  for (size_t i = 1; i < sizes.size(); ++i)
    if (sizes[i] == 0) sizes[i] = sizes[i - 1];
  return sizes;
}

// What the stages need under a budget.
struct Needs {
  double held = 0;                       // by buffers and sources
  std::string holders;                   // "'shuffle' holds 3.1 MB, ..."
  double least = 0;                      // of the queues
  std::vector<double> largest, leaving;  // bytes of an item within a segment, and after it

  double sum() const { return held + least; }
};

Needs needs_of(std::vector<BudgetStage> stages, const Interrupt* interrupt) {
  Needs needs;
  const std::vector<double> sizes = sizes_of(stages, interrupt);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const BudgetStage& stage = stages[i];
    if (!map_of(stage.stage)) {
      needs.largest.push_back(0);
      needs.leaving.push_back(0);
    }
    needs.largest.back() = std::max(needs.largest.back(), std::max(sizes[i], 64.0));
    needs.leaving.back() = std::max(sizes[i], 64.0);
    double holds = 0;
    if (Source* source = source_of(stage.stage))
      holds = source->holds_bytes(sizes[i]);
    else if (const SerialStage* serial = serial_of(stage.stage))
      holds = serial->holds_bytes(sizes[i - 1]);
    else if (const MapStage* map = map_of(stage.stage))
      holds = map->holds_bytes();
    if (holds <= 0) continue;
    needs.held += holds;
    needs.holders +=
        cat(needs.holders.empty() ? "" : ", ", "'", stage.name, "' holds ", bytes_text(holds));
  }
  // The minimum: one message of one item in the maps and one in the queue per segment, plus the
  // consumer's items.
  for (const double largest : needs.largest) needs.least += 2 * largest;
  needs.least += 2 * needs.leaving.back();
  return needs;
}

// The least budget of which `bytes` may be used. A byte more, as the share is rounded.
double budget_for(double bytes) { return std::ceil((bytes / kShare + 1) / 1e3) * 1e3; }

// The least budget that is enough. What sources keep and read ahead may be a part of the budget, so
// each is tried. `needed` is what was found under the request's own, which is too little.
double enough_of(const BudgetRequest& request, double needed) {
  constexpr double kMost = 1e15;  // of the option
  double budget = static_cast<double>(request.bytes), next = budget_for(needed);
  while (next < kMost) {
    const double then = needs_of(request.make(static_cast<int64_t>(next)), request.interrupt).sum();
    if (then <= kShare * next) return std::min(next, budget_for(then));
    // Goes on along the line through both, or further if that does not lead there.
    const double slope = std::max((then - needed) / (next - budget), 0.0);
    const double ahead = slope < 0.9 * kShare
                             ? budget_for(kShare * (then - slope * next) / (kShare - slope))
                             : 2 * next;
    budget = std::exchange(next, std::max(ahead, next + 1e3));
    needed = then;
  }
  return kMost;
}

[[noreturn]] void refuse(const BudgetRequest& request, const Needs& needs) {
  double enough = budget_for(needs.sum());
  try {
    enough = enough_of(request, needs.sum());
  } catch (const Error& error) {  // of a trial, which must not hide that the budget is too small
    if (ends_planning(error)) throw;
  }
  const bool holds = !needs.holders.empty(), grows = enough > budget_for(needs.sum());
  fail(Code::invalid_argument, "pipeline: budget_bytes is ",
       bytes_text(static_cast<double>(request.bytes)), ", which is too little: ", needs.holders,
       holds ? ", and " : "", "the queues need at least ", bytes_text(needs.least),
       holds ? ", together " + bytes_text(needs.sum()) : "", "; they may take ",
       std::lround(100 * kShare), " % of the budget",
       grows ? ", and with a larger budget the source holds more" : "",
       ": set budget_bytes to at least ", static_cast<int64_t>(enough), " (", bytes_text(enough),
       ")", holds ? ", or make the buffers smaller" : "");
}

}  // namespace

std::vector<QueueLimits> plan_budget(BudgetRequest request) {
  const Needs needs = needs_of(request.make(request.bytes), request.interrupt);
  const double budget = static_cast<double>(request.bytes);
  const double usable = kShare * budget - needs.held;
  if (usable < needs.least) refuse(request, needs);
  limit_kept_memory(static_cast<size_t>(kKeptShare * budget),
                    static_cast<size_t>(kPlanned * budget / 2));

  const std::vector<double>& largest = needs.largest;
  const double last_item = needs.leaving.back();
  const double waiting = last_item * static_cast<double>(request.prefetch + 1);
  const double weights = std::accumulate(largest.begin(), largest.end(), 0.0);
  const double for_consumer = std::min(waiting, std::max(2 * last_item, usable / 3));
  const double shared = std::max(usable - for_consumer, needs.least - 2 * last_item);
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
      1, std::min(last.items, static_cast<int64_t>(for_consumer / last_item) - 1));
  return request.limits;
}

}  // namespace etr::pipeline
