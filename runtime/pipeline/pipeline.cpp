#include "pipeline/pipeline.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "core/platform.h"
#include "core/start_thread.h"
#include "pipeline/budget.h"
#include "pipeline/tune.h"

namespace etr::pipeline {
namespace {

constexpr size_t kChunk = 64;  // samples per message

// Tells each map which one comes next: a decoder need not make more pixels than that needs.
void introduce(std::vector<AnyStage>& stages) {
  for (size_t i = 1; i + 1 < stages.size(); ++i)
    if (MapStage* map = map_of(stages[i]), *next = map_of(stages[i + 1]); map && next)
      map->followed_by(*next);
}

}  // namespace

Pipeline::Pipeline(const Json& spec, MapFunctions functions, bool defers, Budget budget)
    : functions_(std::move(functions)), defers_(defers) {
  const bool looks = spec.is_object() && spec.value("write_files", Json()) == false;
  parse(looks ? without_side_files(spec) : spec);
  build();
  // Functions of the program are not called before the program asks for output.
  if (functions_.empty() && budget == Budget::now) set_limits(planned_limits());
}

void Pipeline::parse(const Json& spec) {
  if (!spec.is_object() || !spec.contains("stages") || !spec["stages"].is_array() ||
      spec["stages"].empty())
    fail(Code::invalid_argument, "pipeline: 'stages' must be a list with at least one stage");
  Json rest = with_tuned(spec);
  remove_member(rest, "stages");
  options_ = std::make_unique<Options>(pipeline_schema(), "pipeline", rest);
  if (options_->integer("rank") >= options_->integer("world_size"))
    fail(Code::invalid_argument, "pipeline: rank ", options_->integer("rank"), " of a world of ",
         options_->integer("world_size"), "; ranks count from 0");
  canonical_ = {{"seed", options_->integer("seed")}, {"stages", Json::array()}};
  for (Json stage : spec["stages"]) {
    const std::string where = cat("pipeline stage ", entries_.size() + 1);
    if (!stage.is_object() || !stage.contains("stage") || !stage["stage"].is_string())
      fail(Code::invalid_argument, where,
           " needs a key 'stage' with a stage's name: ", stage.dump());
    const auto name = stage["stage"].get<std::string>();
    remove_member(stage, "stage");
    const StageSpec& found = find_stage(name);
    if ((found.kind == StageKind::source) != entries_.empty())
      fail(Code::invalid_argument, where, " ('", name,
           "'): a pipeline has one source, its first stage");
    entries_.push_back(
        {&found, Options(found.options, cat(where, " ('", name, "')"), stage), name});
    canonical_["stages"].push_back({{name, entries_.back().options.json()}});
  }
  bad_records_ = std::make_unique<BadRecords>(error_rules());
  trace_ = std::make_unique<Trace>(static_cast<size_t>(options_->integer("trace_events")));
}

StageContext Pipeline::context_of(size_t position, bool trial) const {
  StageContext context{static_cast<uint64_t>(options_->integer("seed")), position, &interrupt_,
                       &functions_, options_.get()};
  context.defers = defers_;
  context.is_last = position + 1 == entries_.size();
  context.trial = trial;
  return context;
}

int Pipeline::threads() const {
  const auto asked = static_cast<int>(options_->integer("threads"));
  return asked > 0 ? asked : static_cast<int>(platform::usable_threads());
}

QueueLimits Pipeline::limits_after(bool batches) const {
  QueueLimits limits{options_->integer("prefetch"), options_->integer("queue_bytes"), 1,
                     2 * threads()};
  if (batches) return limits;
  limits.items = options_->integer("queue_items");
  limits.chunk = std::clamp<size_t>(static_cast<size_t>(limits.items / 4), 1, kChunk);
  return limits;
}

// A cache stores the result of reading and mapping a record. The result must be the same each time,
// and still belong to a single record.
void Pipeline::check_cache(const std::vector<AnyStage>& stages) const {
  size_t cache = 0;
  for (size_t i = 1; i < stages.size(); ++i) {
    const MapStage* map = map_of(stages[i]);
    if (!map || !map->sample_cache()) continue;
    if (cache != 0) fail(Code::invalid_argument, "a pipeline has one cache, not two");
    cache = i;
  }
  if (cache != 0) map_of(stages[cache])->sample_cache()->check_stages(stages_before(cache));
  for (size_t i = 0; i < cache; ++i) {
    const std::string before = cat("the cache stands after '", entries_[i].name, "', ");
    if (entries_[i].spec->random)
      fail(Code::invalid_argument, before,
           "which is random: its first picture of a sample would be the only one; put the cache in "
           "front");
    if (const Source* source = source_of(stages[i]); source && !source->numbers_records())
      fail(Code::invalid_argument, before,
           "whose records have no numbers to find them by, or are changed at random");
    const SerialStage* serial = serial_of(stages[i]);
    if (serial && serial->traits().reads_items())
      fail(Code::invalid_argument, before,
           "which puts samples together; put the cache in front of it");
  }
}

Json Pipeline::stages_before(size_t position) const {
  Json out = Json::array();
  for (size_t i = 0; i < position; ++i) out.push_back(canonical_["stages"][i]);
  return out;
}

// The decisions of `overtake` identify samples by their ordinals.
void Pipeline::check_overtaking(const std::vector<AnyStage>& stages) const {
  std::string joins;  // the stage after which ordinals do not identify samples
  for (size_t i = 1; i < stages.size(); ++i) {
    const SerialStage* stage = serial_of(stages[i]);
    if (!stage) continue;
    const SerialTraits traits = stage->traits();
    if (traits.reads_items() || traits.repeats_samples) joins = entries_[i].name;
    if (!stage->overtaking()) continue;
    const std::string where = cat("pipeline stage ", i + 1, " ('", entries_[i].name, "')");
    if (!joins.empty())
      fail(Code::invalid_argument, where, " stands behind '", joins,
           "', which repeats samples or puts them together; put it in front of that");
    if (bad_records_->uses(ErrorPolicy::substitute))
      fail(Code::unsupported, where,
           " does not go with the error policy 'substitute': which sample stands in for a bad one "
           "would depend on the clock; take 'skip'");
  }
}

// A row of `pack_sequences` may hold fresh sequences and repeats, and counts as its first one.
void Pipeline::check_joining(const std::vector<AnyStage>& stages) const {
  size_t repeats = 0;
  for (size_t i = 1; i < stages.size(); ++i) {
    const SerialStage* stage = serial_of(stages[i]);
    if (!stage) continue;
    const SerialTraits traits = stage->traits();
    if (traits.repeats_samples) repeats = i;
    if (traits.joins_samples && repeats != 0)
      fail(Code::invalid_argument, "pipeline stage ", i + 1, " ('", entries_[i].name,
           "') would put fresh sequences and repeats of stage ", repeats + 1, " ('",
           entries_[repeats].name, "') into one row: put '", entries_[repeats].name,
           "' behind it, where it repeats rows");
  }
}

// A `take` behind a `repeat` ends the epoch in the source as soon as it is satisfied, whichever
// pass the source is in. A `repeat` behind both would want the passes that are then missing.
void Pipeline::check_passes(const std::vector<AnyStage>& stages) const {
  size_t repeat = 0, take = 0;
  for (size_t i = 1; i < stages.size(); ++i) {
    SerialStage* const stage = serial_of(stages[i]);
    if (!stage) continue;
    const bool repeats = stage->traits().passes != 1;
    if (repeats && take != 0)
      fail(Code::invalid_argument, "pipeline stage ", i + 1, " ('", entries_[i].name,
           "') cannot repeat what stage ", take + 1, " ('", entries_[take].name,
           "') takes from the passes of stage ", repeat + 1, " ('", entries_[repeat].name,
           "'): leave one of the three out");
    if (repeats) repeat = i;
    const PassControl* const control = stage->pass_control();
    if (repeat != 0 && control && control->ends_passes()) take = i;
  }
}

// Copies of a sample are told apart by the 32 bits of Item::replica. Batches start from 0 again.
void Pipeline::check_replicas(const std::vector<AnyStage>& stages) const {
  uint64_t last = 0;
  std::string before;  // the earlier stages that repeat samples
  for (size_t i = 1; i < stages.size(); ++i) {
    const SerialStage* stage = serial_of(stages[i]);
    if (!stage) continue;
    const SerialTraits traits = stage->traits();
    if (traits.makes_batches) {
      last = 0;
      before.clear();
    }
    if (!traits.repeats_samples) continue;
    last = last * traits.replica_stride + traits.copies - 1;
    if (last > std::numeric_limits<uint32_t>::max())
      fail(Code::invalid_argument, "pipeline stage ", i + 1, " ('", entries_[i].name,
           "') repeats what is repeated by ", before,
           ", and together they may make more copies of a sample than can be numbered: leave one "
           "of them out, or lower 'factor' in the first ones");
    before += cat(before.empty() ? "stage " : ", stage ", i + 1, " ('", entries_[i].name, "')");
  }
}

// Checks even if the consumer does not perform these steps, so that a spec is valid everywhere or
// nowhere.
void Pipeline::check_views(const std::vector<AnyStage>& stages) const {
  size_t echo = 0, last = 0;
  ViewStep done = ViewStep::any;
  for (size_t i = 1; i < stages.size(); ++i) {
    const MapStage* map = map_of(stages[i]);
    const SerialTraits traits = map ? SerialTraits() : serial_of(stages[i])->traits();
    if (echo == 0) {
      if (traits.makes_views) echo = i;
      continue;
    }
    const bool carries = (!traits.reads_items() || traits.carries_views) && !traits.makes_views;
    const ViewStep step = map ? map->view_step() : carries ? ViewStep::any : ViewStep::none;
    if (step == ViewStep::none)
      fail(
          Code::invalid_argument, "pipeline stage ", i + 1, " ('", entries_[i].name,
          "') cannot stand after an echo with 'device': put it in front, or set 'device' of stage ",
          echo + 1, " to false");
    if (step == ViewStep::any) continue;
    if (step < done || (step == done && step != ViewStep::place))
      fail(Code::invalid_argument, "pipeline stage ", i + 1, " ('", entries_[i].name,
           "') cannot come after stage ", last + 1, " ('", entries_[last].name,
           "') on a device, which takes random_resized_crop, random_crop and flip, "
           "brightness_contrast, color_jitter in this order: reorder them, or set 'device' of "
           "stage ",
           echo + 1, " to false");
    done = step;
    last = i;
  }
}

void Pipeline::build() {
  uint64_t passes = 1;
  std::vector<AnyStage> stages;
  for (size_t i = 0; i < entries_.size(); ++i) {
    stages.push_back(entries_[i].spec->make(entries_[i].options, context_of(i)));
    if (const SerialStage* serial = serial_of(stages.back())) passes *= serial->traits().passes;
  }
  check_cache(stages);
  check_views(stages);
  check_overtaking(stages);
  check_joining(stages);
  check_passes(stages);
  check_replicas(stages);
  introduce(stages);
  bool batches = false;
  SegmentHost& host = *this;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const StageEntry& entry = entries_[i];
    if (auto* made = std::get_if<std::unique_ptr<MapStage>>(&stages[i])) {
      MapEntry map{std::move(*made), std::make_unique<StageStats>()};
      map.stats->name = entry.name;
      map.stats->position = i;
      if (auto cache = map.stage->sample_cache())
        source_->set_cache(std::move(cache), stages_before(i));
      segments_.back()->add_map(std::move(map));
    } else if (auto* first = std::get_if<std::unique_ptr<Source>>(&stages[i])) {
      MapEntry reader{(*first)->reader(), std::make_unique<StageStats>()};
      reader.stats->name = entry.name;
      auto source = std::make_unique<SourceSegment>(
          host, entry.name, limits_after(false), std::move(*first), passes,
          static_cast<uint64_t>(options_->integer("epochs")));
      source->set_shard(rank(), world(), options_->boolean("drop_remainder"));
      if (reader.stage) source->add_map(std::move(reader));
      source_ = source.get();
      segments_.push_back(std::move(source));
    } else {
      auto stage = std::get<std::unique_ptr<SerialStage>>(std::move(stages[i]));
      const SerialTraits traits = stage->traits();
      batches = batches || traits.makes_batches;
      QueueLimits limits = limits_after(batches);
      if (traits.queue_items > 0) limits.items = traits.queue_items;
      if (traits.may_block) limits.chunk = 1;  // items that took long should proceed at once
      const Overtaking* overtaking = stage->overtaking();
      if (overtaking && segments_.back()->maps().empty())
        fail(Code::invalid_argument, "pipeline stage ", i + 1, " ('", entry.name,
             "') stands behind the stages whose samples take different times, such as decode, and "
             "there is none between it and '",
             segments_.back()->head_stats().name, "'");
      auto serial = std::make_unique<SerialSegment>(host, entry.name, i, limits, std::move(stage));
      if (overtaking) segments_.back()->loosen(*overtaking);
      serial_.push_back(serial.get());
      serial_stages_.push_back(&serial->stage());
      segments_.push_back(std::move(serial));
    }
  }
  for (size_t i = 0; i < segments_.size(); ++i)
    segments_[i]->connect(i > 0 ? segments_[i - 1].get() : nullptr,
                          i + 1 < segments_.size() ? segments_[i + 1].get() : nullptr);
  pass_rules_ = PassRules(serial_stages_);
  source_->set_demand([this](uint64_t epoch, uint64_t pass) {
    return wants(epoch) ? pass_rules_.demand(epoch, pass) : Demand::end_epoch;
  });
}

void Pipeline::start() {
  started_ = true;
  started_ns_ = now_ns();
  process_ = platform::process_id();
  try {
    keep_no_memory_error();
    if (options_->integer("budget_bytes") == 0 || budget_applied_)
      run();
    else
      planner_ = start_thread("the thread that divides the budget", "threads",
                              [this] { divide_budget(); });
  } catch (...) {  // a stage failed to begin
    failure_ = current_error();
  }
}

void Pipeline::divide_budget() noexcept {
  std::shared_ptr<const Error> failure;
  std::vector<QueueLimits> planned;
  try {
    planned = planned_limits();
  } catch (...) {
    failure = current_error();
  }
  std::scoped_lock lock(mutex_);
  try {
    failure_ = std::move(failure);
    set_limits(planned);
    if (!failure_) run();
  } catch (...) {
    failure_ = current_error();
  }
  ready_changed_.notify_all();
}

// The limits of each segment if there is a budget that has not been divided yet, otherwise none.
std::vector<QueueLimits> Pipeline::planned_limits() {
  const int64_t budget = options_->integer("budget_bytes");
  if (budget == 0 || std::exchange(budget_applied_, true)) return {};
  BudgetRequest request;
  request.bytes = budget;
  request.interrupt = &interrupt_;
  request.prefetch = options_->integer("prefetch");
  std::vector<std::unique_ptr<const Options>> tried;  // the stages refer to them
  request.make = [this, &tried](int64_t bytes) {
    Json options = options_->json();
    options["budget_bytes"] = bytes;
    tried.push_back(std::make_unique<const Options>(pipeline_schema(), "pipeline", options));
    std::vector<AnyStage> stages;
    for (size_t i = 0; i < entries_.size(); ++i) {
      StageContext context = context_of(i, true);
      context.pipeline = tried.back().get();
      stages.push_back(entries_[i].spec->make(entries_[i].options, context));
    }
    introduce(stages);
    std::vector<BudgetStage> named;
    for (size_t i = 0; i < entries_.size(); ++i)
      named.push_back({entries_[i].name, std::move(stages[i])});
    return named;
  };
  for (const auto& segment : segments_) request.limits.push_back(segment->limits());
  return plan_budget(std::move(request));
}

// Requires mutex_, because the statistics read the limits.
void Pipeline::set_limits(const std::vector<QueueLimits>& planned) {
  for (size_t i = 0; i < planned.size(); ++i) segments_[i]->set_limits(planned[i]);
}

void Pipeline::run() {
  // While the maps before an echo node on demand are slow, it and what follows must get their turn:
  // they have a thread that those maps never take.
  size_t slow = 0;  // segments before the last such node
  for (size_t i = 0; i < serial_.size(); ++i)
    if (serial_[i]->stage().on_demand()) slow = i + 1;
  graph_ = std::make_unique<FlowGraph>(threads() + (slow > 0 ? 1 : 0));
  for (size_t i = 0; i < slow; ++i) segments_[i]->limit_threads(threads());
  source_->start_at(restored_epoch_);
  for (SerialSegment* segment : serial_) {
    segment->start_at(restored_epoch_, walked_);
    if (TimeDependent* decides = segment->stage().time_dependent()) decides->begin_run();
  }
  for (const auto& segment : segments_) segment->start(*graph_);
  source_->trigger();
}

// A pipeline's threads do not survive fork().
bool Pipeline::forked() const { return started_ && process_ != platform::process_id(); }

void Pipeline::check_process() const {
  if (forked())
    fail(Code::state,
         "this pipeline was started before the process was forked, and its threads stayed in the "
         "parent; make "
         "pipelines after fork(), or let new processes start afresh (Python: the start method "
         "'spawn')");
}

Pipeline::~Pipeline() {
  if (forked()) {  // no threads to finish the work: leak what belongs to it
    for (auto& segment : segments_) (void)segment.release();
    (void)graph_.release();
    if (planner_.joinable()) planner_.detach();
    // A thread of the parent may have held the locks of their memory.
    (void)new std::deque<Chunk>(std::move(ready_));
    (void)new Chunk(std::move(current_));
    // Threads of the parent may wait for these, and would be waited for.
    new (&ready_changed_) std::condition_variable;
    new (&interrupt_) Interrupt;
    return;
  }
  cancel();
  if (planner_.joinable()) planner_.join();
  if (!graph_) return;
  for (const auto& segment : segments_) segment->stop();
  graph_->finish();
}

void Pipeline::cancel() {
  interrupt_.stop();
  std::scoped_lock lock(mutex_);
  cancelled_ = true;
  ready_changed_.notify_all();
}

bool Pipeline::consumer_starves() const {
  std::scoped_lock lock(mutex_);
  // A queue that is shorter than the low-water mark never holds that many.
  return ready_items_ < std::min(options_->integer("low_water"), segments_.back()->limits().items);
}

double Pipeline::elapsed_seconds() const {
  std::scoped_lock lock(mutex_);
  return started_ ? seconds_between(started_ns_, now_ns()) : 0;
}

double Pipeline::consumer_starved_seconds() const {
  std::scoped_lock lock(mutex_);
  const int64_t now = waiting_since_ns_ ? now_ns() - waiting_since_ns_ : 0;
  return static_cast<double>(wait_ns_ + now) * 1e-9;
}

bool Pipeline::was_dropped(uint64_t stage, const Item& item, uint64_t epoch) const {
  return epoch == restored_epoch_ && replay_drops_.contains(stage, item);
}

void Pipeline::deliver(Chunk&& chunk) {
  {
    std::scoped_lock lock(mutex_);
    if (!drop_unwanted(chunk)) {
      ready_items_ += static_cast<int64_t>(chunk.items.size());
      ready_.push_back(std::move(chunk));
      ready_changed_.notify_one();
      return;
    }
    if (failure_) ready_changed_.notify_one();
  }
  release(chunk);
}

void Pipeline::abandon(std::shared_ptr<const Error> error) noexcept {
  interrupt_.stop();
  std::scoped_lock lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  ready_changed_.notify_all();
}

bool Pipeline::epochs_over() const {
  const auto epochs = static_cast<uint64_t>(options_->integer("epochs"));
  return epochs != 0 && epoch_ >= epochs;
}

// Waits for a message from the last segment. Returns false if none has come by `due`.
bool Pipeline::receive(std::unique_lock<std::mutex>& lock, const Due& due) {
  const int64_t since = waiting_since_ns_ = now_ns();
  const bool answered =
      wait_until(lock, due, [this] { return !ready_.empty() || cancelled_ || failure_; });
  waiting_since_ns_ = 0;
  const int64_t now = now_ns();
  wait_ns_ += now - since;
  if (!answered) return false;
  static const std::string kWaiting = "the consumer waits";
  trace_->add(kWaiting, since, now, 0);
  if (cancelled_ || failure_) return true;
  current_ = std::move(ready_.front());
  ready_.pop_front();
  position_in_chunk_ = 0;
  has_current_ = true;
  return true;
}

// Makes room in the queue for a message in place of the current one.
void Pipeline::release_current(std::unique_lock<std::mutex>& lock) {
  has_current_ = false;
  const Chunk done = std::move(current_);
  lock.unlock();
  release(done);
  lock.lock();
}

// Without mutex_.
void Pipeline::release(const Chunk& chunk) {
  segments_.back()->release(chunk);
  for (SerialSegment* segment : serial_)
    if (segment->stage().on_demand()) segment->trigger();
}

Item Pipeline::take_item() {
  --ready_items_;
  ++delivered_;
  return std::move(current_.items[position_in_chunk_++]);
}

// What is wrong about the end of the current message, if anything.
std::shared_ptr<const Error> Pipeline::failure_at_end() const {
  if (current_.end != End::epoch) return current_.failure;
  if (auto too_many = bad_records_->too_many(epoch_)) return too_many;
  if (skip_ == 0) return nullptr;
  return std::make_shared<const Error>(  // of a restored run
      Code::corrupt_data,
      cat("the saved position lies ", skip_, " items after the end of epoch ", epoch_ + 1));
}

// Goes to what next() returns, past items that come before a restored position. That is the current
// item, or the end of an epoch if the current message has no more items, or if there is no current
// message. Returns false if there is none of this by `due`.
bool Pipeline::advance(std::unique_lock<std::mutex>& lock, const Due& due) {
  if (!started_ && !failure_) start();  // it may have failed on the way to a restored position
  if (!wait_until(lock, due, [this] { return begun(); })) return false;
  while (!cancelled_ && !failure_) {
    if (!has_current_) {
      if (ready_.empty() && epochs_over()) return true;
      if (!receive(lock, due)) return false;
      continue;
    }
    for (; skip_ > 0 && items_left(); --skip_) take_item();
    if (items_left()) return true;
    failure_ = failure_at_end();
    if (current_.end == End::epoch && !failure_) return true;
    release_current(lock);
  }
  return true;
}

Pipeline::Next Pipeline::next(Item& item) {
  check_process();
  std::unique_lock lock(mutex_);
  advance(lock, std::nullopt);
  if (cancelled_) fail(Code::cancelled, "the pipeline was cancelled");
  if (failure_) throw Error(*failure_);
  if (!has_current_) return Next::end_of_epoch;  // the last one
  restored_.reset();
  if (!items_left()) {
    leave_epoch();
    forget_before(epoch_);
    release_current(lock);
    return Next::end_of_epoch;
  }
  item = take_item();
  ++items_;
  fresh_ += item.batch.size ? item.batch.fresh : item.replica == 0;
  echoed_ += item.batch.size ? item.batch.echoed : item.replica != 0;
  // At once, so that the stages go on while the consumer works.
  if (!items_left() && current_.end == End::none && !current_.failure) release_current(lock);
  return Next::item;
}

void Pipeline::leave_epoch() {
  ++epoch_;
  delivered_ = 0;
  done_.reset();
}

// Call it when nothing of those epochs can come any more.
void Pipeline::forget_before(uint64_t epoch) {
  bad_records_->forget_before(epoch);
  source_->forget_before(epoch);
  for (SerialStage* stage : serial_stages_)
    if (TimeDependent* decides = stage->time_dependent()) decides->forget_before(epoch);
}

// Returns whether the message is of an epoch that end_epoch() has left, and should be released. A
// failure there still ends the run.
bool Pipeline::drop_unwanted(Chunk& chunk) {
  if (wants(chunk.epoch)) return false;
  if (chunk.failure) {
    chunk.items.clear();
    return false;
  }
  if (chunk.end == End::epoch) {
    if (auto too_many = bad_records_->too_many(chunk.epoch); too_many && !failure_)
      failure_ = std::move(too_many);
    forget_before(chunk.epoch + 1);
  }
  return true;
}

void Pipeline::end_epoch() {
  check_process();
  std::vector<Chunk> dropped;  // released, and their payload freed, without the lock
  std::unique_lock lock(mutex_);
  if (epochs_over()) return;
  leave_epoch();
  first_wanted_ = epoch_;
  skip_ = 0;
  restored_.reset();
  if (has_current_) {  // back to the others, less what was taken from it
    auto& items = current_.items;
    items.erase(items.begin(), items.begin() + static_cast<ptrdiff_t>(position_in_chunk_));
    ready_.push_front(std::move(current_));
    has_current_ = false;
  }
  std::deque<Chunk> kept;
  for (Chunk& chunk : ready_) {
    const auto items = static_cast<int64_t>(chunk.items.size());
    const bool drops = drop_unwanted(chunk);
    ready_items_ -= items;
    if (!drops) ready_items_ += static_cast<int64_t>(chunk.items.size());
    drops ? dropped.push_back(std::move(chunk)) : kept.push_back(std::move(chunk));
  }
  ready_ = std::move(kept);
  lock.unlock();
  for (const Chunk& chunk : dropped) release(chunk);
}

bool Pipeline::wait(double seconds) {
  check_process();
  std::unique_lock lock(mutex_);
  return advance(lock, deadline_after(seconds));
}

uint64_t Pipeline::view_samples() const {
  double samples = 0, in_item = 1;
  bool behind = false;
  for (SerialSegment* segment : serial_) {
    const SerialTraits& traits = segment->traits();
    behind = behind || traits.makes_views;
    if (!behind) continue;
    const double held = segment->stage().holds_bytes(1);
    samples += held;
    // Batching counts both what it takes and what it makes.
    if (traits.makes_batches) in_item = held / 2;
    samples += in_item * static_cast<double>(segment->limits().items);
  }
  return static_cast<uint64_t>(samples);
}

uint64_t Pipeline::epoch() const {
  std::scoped_lock lock(mutex_);
  return epoch_;
}

bool Pipeline::within_epoch() const {
  std::scoped_lock lock(mutex_);
  return delivered_ > 0 || skip_ > 0 || done_;
}

bool Pipeline::over() const {
  std::scoped_lock lock(mutex_);
  return epochs_over();
}

std::string Pipeline::why_empty() const {
  const std::string dropped = bad_records_->summary();
  if (dropped.empty()) return "there are fewer samples than a batch holds, or none";
  return dropped + "; the samples that are left, if any, are fewer than a batch holds";
}

int64_t Pipeline::items_out(size_t stage) const {
  int64_t out = 0;
  const auto take = [&](const StageStats& stats) {
    if (stats.position == stage) out = stats.items_out.load();  // a source's head, then its maps
  };
  for (const auto& segment : segments_) {
    take(segment->head_stats());
    for (const MapEntry& map : segment->maps()) take(*map.stats);
  }
  return out;
}

Json Pipeline::stats() const {
  const auto row = [this](const StageStats& s, bool head) {
    const StageSpec& spec = *entries_[s.position].spec;
    const bool reader = !head && spec.kind == StageKind::source;
    return Json{{"name", reader ? s.name + ", reading" : s.name},
                {"kind", !head                            ? "map"
                         : spec.kind == StageKind::source ? "source"
                                                          : "serial"},
                {"random", spec.random},
                {"items_in", s.items_in.load()},
                {"items_out", s.items_out.load()},
                {"busy_s", static_cast<double>(s.busy_ns.load()) * 1e-9}};
  };
  std::vector<QueueLimits> limits;
  {
    std::scoped_lock lock(mutex_);  // not held below, because segments call the host
    for (const auto& segment : segments_) limits.push_back(segment->limits());
  }
  Json stages = Json::array();
  for (size_t i = 0; i < segments_.size(); ++i) {
    const auto& segment = segments_[i];
    Json head = row(segment->head_stats(), true);
    head["own_thread"] = segment->head_blocks();
    head["starved_s"] = segment->idle_seconds(Segment::Idle::starved);
    head["blocked_s"] = segment->idle_seconds(Segment::Idle::blocked);
    head["maps_s"] = segment->idle_seconds(Segment::Idle::maps);
    stages.push_back(std::move(head));
    for (const MapEntry& map : segment->maps()) {
      stages.push_back(row(*map.stats, false));
      if (const auto cache = map.stage->sample_cache()) stages.back()["cache"] = cache->stats();
    }
    stages.back()["queue_items"] = segment->queued_items();
    stages.back()["queue_bytes"] = segment->queued_bytes();
    stages.back()["queue_limit_items"] = limits[i].items;
    stages.back()["queue_limit_bytes"] = limits[i].bytes;
  }
  std::scoped_lock lock(mutex_);
  return {{"stages", std::move(stages)},
          {"consumer",
           {{"items", items_},
            {"fresh", fresh_},
            {"echoed", echoed_},
            {"samples", fresh_ + echoed_},
            {"waiting_s", static_cast<double>(wait_ns_) * 1e-9},
            {"ready", ready_items_}}},
          {"threads", threads()},
          {"cores", platform::usable_threads()},
          {"elapsed_s", started_ ? seconds_between(started_ns_, now_ns()) : 0},
          {"epoch", epoch_},
          {"bad_records", bad_records_->count()},
          {"bad_record_times", bad_records_->times()}};
}

}  // namespace etr::pipeline
