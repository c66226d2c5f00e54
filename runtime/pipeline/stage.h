// The interface of stages.
//
// There are three kinds of stages. A stage throws Error for a bad record; the pipeline adds the
// stage, the shard and the key, and applies the error policy. (Not all errors of serial stages are
// about records, see SerialStage::process().) A new stage needs stages/NAME.cpp or sources/NAME.cpp
// with `extern const StageSpec NAME_stage`, a test, and a line in pipeline/stage_list.inc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/json_fwd.h"
#include "core/options.h"
#include "core/rng.h"
#include "pipeline/done_samples.h"
#include "pipeline/item.h"

namespace etr::pipeline {

// Functions of the program that the stages `map` and `source` call by name. `map` calls them from
// many threads at once.
using MapFunction = std::function<void(Item& item, uint64_t epoch)>;
using MapFunctions = std::map<std::string, MapFunction>;

struct StageContext {
  uint64_t seed = 0;
  uint64_t position = 0;  // of the stage in the pipeline; seeds its random numbers
  Interrupt* interrupt = nullptr;
  const MapFunctions* functions = nullptr;
  const Options* pipeline = nullptr;  // its own options; nullptr in tests of single stages
  uint64_t part = 0, parts = 1;       // of a source: which of `parts` equal parts to read
  uint64_t sharers = 1;               // of a source: how many share what sources may read ahead
  bool defers = false;                // the consumer performs the last image operations
  bool is_last = false;               // its output goes to the consumer
  bool trial = false;                 // a copy for trials, on samples that the run will read again
};

class SampleCache;

// The pipeline's memory budget; 0: none.
inline uint64_t budget_bytes(const StageContext& context) {
  return context.pipeline ? static_cast<uint64_t>(context.pipeline->integer("budget_bytes")) : 0;
}
inline bool has_budget(const StageContext& context) { return budget_bytes(context) > 0; }

class MapStage;

// Produces samples on its own thread: it may block on files and networks.
class Source {
 public:
  virtual ~Source() = default;

  // Begins pass `pass` of epoch `epoch` over the data.
  virtual void start_pass(uint64_t epoch, uint64_t pass) = 0;

  // Identifies the data, wherever it is stored; saved positions belong to it. Lists the data if
  // start_pass() has not done so yet. Returns {"count": number of files, "bytes", "digest"}, plus
  // {"files": [[NAME, BYTES], ...]} if they are few, {"records"} if known and {"classes": {"count",
  // "digest"}} if folders are classes. A source with inner sources returns a list of such objects;
  // one that calls the program's functions returns null.
  virtual Json data() = 0;

  // The number of samples in a pass, if known before it is read.
  virtual std::optional<uint64_t> samples() { return std::nullopt; }

  // Fills `item` (origin and fields). Returns false at the end of the pass. After an Error the next
  // call continues with what can still be read; `item.origin` should then name the bad record.
  virtual bool next(Item& item) = 0;

  // If many threads can read records at once: returns the map stage that reads them, and from then
  // on next() only names the record. The stage refers to the source. Called before the first pass.
  virtual std::unique_ptr<MapStage> reader() { return nullptr; }

  // For sources that number their records, the same in every epoch: the number of the record that
  // next() would return, if known, and of the one it returned last.
  virtual bool numbers_records() const { return false; }
  virtual std::optional<uint64_t> upcoming() { return std::nullopt; }
  virtual uint64_t record() const { return 0; }

  // When the files of data() were last modified, if each holds many records: [TIME, ...] in the
  // same order, or a digest for many files.
  virtual Json changed();
  // For a record that is a file of its own: a number that changes with the file. Otherwise 0.
  virtual uint64_t stamp(uint64_t /*record*/) { return 0; }

  // The maximum memory it holds besides the samples that it has returned, if they have
  // `sample_bytes`. Only asked of copies for trials, when they have returned their last sample.
  virtual double holds_bytes(double /*sample_bytes*/) { return 0; }

  // Skips a sample that nobody needs. Returns false at the end of the pass.
  virtual bool skip() {
    Item unused;
    return next(unused);
  }
};

// The part of an ImageView that a stage changes, in the order in which the parts apply to pixels.
// Each may occur once, except `place`. `any` may stand anywhere; `none` means that the stage works
// on pixels only.
enum class ViewStep { none, any, scale, place, adjust, jitter };

// Transforms one item at a time. Called from many threads at once, in any order. All randomness
// must come from item_rng().
class MapStage {
 public:
  virtual ~MapStage() = default;

  // Sets item.dropped to drop the sample.
  virtual void process(Item& item, uint64_t epoch) const = 0;
  virtual bool may_drop() const { return false; }   // by setting item.dropped
  virtual double holds_bytes() const { return 0; }  // memory besides the items passing through
  // The cache of the stage `cache`, else nullptr.
  virtual std::shared_ptr<SampleCache> sample_cache() const { return nullptr; }

  // The step that the stage can leave to the consumer, by changing Item::views instead of pixels.
  virtual ViewStep view_step() const { return ViewStep::none; }

  // The length of an image's shorter side, in pixels, beyond which more pixels are useless here.
  // Nothing: there is no such length.
  virtual std::optional<int64_t> sufficient_side() const { return std::nullopt; }
  // Announces the next map stage, if any. Called once, while the pipeline is built.
  virtual void followed_by(const MapStage& /*next*/) {}
};

// How a serial stage's neighbours perform, in seconds since the pipeline's start.
struct Pace {
  double elapsed_s = 0;
  double upstream_held_s = 0;     // waits of the head before it for a full output queue
  double consumer_starved_s = 0;  // waits of the pipeline's consumer for output
};

// Encodes pass `pass` of an epoch in one positive number.
constexpr uint64_t pass_id(uint64_t epoch, uint64_t pass) { return (epoch + 1) << 32 | pass; }

class Emitter {
 public:
  virtual ~Emitter() = default;
  virtual void emit(Item&& item) = 0;
  // Reports an item that the stage has taken before as a bad record. Only for stages that
  // reads_items(). Throws if that ends the run.
  virtual void reject(const Item& item, const Error& error);
};

// The properties of a serial stage. A pipeline asks for them once, when it is built.
struct SerialTraits {
  bool makes_batches = false;       // its output is counted in batches
  bool depends_on_content = false;  // what it emits depends on tensors, see SerialStage
  bool joins_samples = false;       // to samples of its own, whose examples are not counted
  bool may_block = false;           // needs its own thread
  // Repeats samples: from one with the replica number r it makes those from r * replica_stride to
  // r * replica_stride + copies - 1.
  bool repeats_samples = false;
  uint64_t replica_stride = 1, copies = 1;
  // Whether image operations after it are left to a consumer that accepts them: pixels become
  // Item::views. And whether it may follow such a stage though it reads items.
  bool makes_views = false, carries_views = false;
  uint64_t passes = 1;      // that it wants from the source in an epoch (`repeat`); 0: endless
  int64_t queue_items = 0;  // size of the next queue (`prefetch`); 0: default

  bool reads_items() const { return makes_batches || depends_on_content; }
};

// Implemented by stages that decide themselves when a pass ends: `repeat` and `take`.
class PassControl {
 public:
  // Whether the end of a pass is forwarded downstream; `repeat` swallows all but the last.
  virtual bool forwards_end(bool /*epoch_ends*/) { return true; }
  // pass_id() of a pass from which the stage needs no more samples; 0: none. Thread safe.
  virtual uint64_t satisfied_pass() const { return 0; }
  virtual bool ends_passes() const { return false; }  // satisfied_pass() is not always 0

 protected:
  ~PassControl() = default;
};

// Implemented by stages that emit more when the consumer is about to wait: adaptive echo nodes.
class OnDemand {
 public:
  // Called when the consumer is about to wait and there is no input. Emits up to `most` items and
  // returns how many, 0 if it has none to give.
  virtual size_t echo(size_t most, Emitter& out) = 0;
  // Called now and then, between items, but not during a replay, if adapts().
  virtual bool adapts() const { return false; }
  virtual void observe(const Pace&) {}

 protected:
  ~OnDemand() = default;
};

// Implemented by stages whose decisions depend on the clock: `overtake` and adaptive echo nodes.
// They keep their decisions, so that a restored run can repeat them.
class TimeDependent {
 public:
  // Called once, in the first epoch of the pipeline's run, after the replay to a restored position,
  // if any. Not called for copies that only replay, or that only measure memory.
  virtual void begin_run() = 0;
  virtual Json save_decisions(uint64_t epoch) const = 0;
  virtual void load_decisions(uint64_t epoch, const Json& decisions) = 0;
  virtual void forget_before(uint64_t epoch) = 0;  // the consumer has left those epochs

 protected:
  ~TimeDependent() = default;
};

// Implemented by `overtake`: samples may leave the maps that precede it ahead of earlier samples.
class Overtaking {
 public:
  virtual uint64_t window() const = 0;  // how many may overtake one
  // While this is false for their epoch, samples come in order. Thread safe.
  virtual bool lets_overtake(uint64_t epoch) const = 0;

 protected:
  ~Overtaking() = default;
};

// Sees all items in order, one call at a time. May hold, repeat, reorder or drop them. What it
// emits may depend only on the options, the seed and the sequence of items, never on time, tensors
// or threads: restoring a position replays the sequence without payloads. A stage whose output
// depends on tensors declares that (depends_on_content); restoring then reads and maps everything
// again. One that decides by the clock is TimeDependent.
class SerialStage {
 public:
  virtual ~SerialStage() = default;

  virtual SerialTraits traits() const { return {}; }

  virtual void start_epoch(uint64_t /*epoch*/) {}
  // Like start_epoch(), for the rest of an epoch that the ranks of another world have begun: the
  // first passes yield only samples that those ranks have not delivered, perhaps none. Throws
  // Error(unsupported) if the stage's output depends on the samples already delivered.
  virtual void start_rest(uint64_t epoch, const DoneSamples& /*done*/) { start_epoch(epoch); }
  // Called for each item with a payload, before process(). If it throws Error, this item is a bad
  // record.
  virtual void admit(Item& /*item*/) {}
  // An Error is attributed to the item only if the stage reads_items(). Otherwise it is about the
  // options, a log or the run, and ends the run whatever the error policy: dropping the item would
  // only hide the problem, item after item.
  virtual void process(Item&& item, Emitter& out) = 0;
  virtual void finish_pass(Emitter& /*out*/) {}  // the source's pass has ended: emit what is held
  // The maximum memory it holds if incoming items have `item_bytes`.
  virtual double holds_bytes(double /*item_bytes*/) const { return 0; }

  // Interfaces that only some stages implement; nullptr: this one does not.
  virtual PassControl* pass_control() { return nullptr; }
  virtual OnDemand* on_demand() { return nullptr; }
  virtual TimeDependent* time_dependent() { return nullptr; }
  virtual const Overtaking* overtaking() const { return nullptr; }
};

// A stage of one of the three kinds, in the order of StageKind.
using AnyStage =
    std::variant<std::unique_ptr<Source>, std::unique_ptr<MapStage>, std::unique_ptr<SerialStage>>;

// Return the stage if it is of that kind, else nullptr.
inline Source* source_of(const AnyStage& stage) {
  const auto* found = std::get_if<std::unique_ptr<Source>>(&stage);
  return found ? found->get() : nullptr;
}
inline MapStage* map_of(const AnyStage& stage) {
  const auto* found = std::get_if<std::unique_ptr<MapStage>>(&stage);
  return found ? found->get() : nullptr;
}
inline SerialStage* serial_of(const AnyStage& stage) {
  const auto* found = std::get_if<std::unique_ptr<SerialStage>>(&stage);
  return found ? found->get() : nullptr;
}

enum class StageKind { source, map, serial };

struct StageSpec {
  const char* name;
  const char* doc;
  StageKind kind;
  Schema options;
  AnyStage (*make)(const Options&, const StageContext&);
  bool random = false;    // transforms a sample differently each time
  bool prepares = false;  // preprocesses images for the model, in training and in prediction
};

// Throws the Error(unsupported) that start_rest() of a stage that counts samples throws.
[[noreturn]] void refuse_rest(const char* stage);

std::span<const StageSpec* const> stage_table();
const StageSpec& find_stage(const std::string& name);  // Error(not_found) suggests the nearest name

// How much more of a pass the serial stages want.
enum class Demand { more, end_pass, end_epoch };

// Asks those serial stages that can tell; `stages` are in pipeline order.
class PassRules {
 public:
  PassRules() = default;
  explicit PassRules(std::span<SerialStage* const> stages);
  Demand demand(uint64_t epoch, uint64_t pass) const;

 private:
  struct Rule {
    const PassControl* control;
    bool repeated;  // it stands after a `repeat`: satisfaction ends the epoch, not the pass
  };
  std::vector<Rule> rules_;
};

// The random numbers for one replica of a sample or batch in one stage, independent of the thread.
inline Rng item_rng(const StageContext& context, uint64_t epoch, const Item& item) {
  // Batches that begin with copies of one sample have the same ordinal.
  const uint64_t batch = item.batch_number == 0 ? 0 : mix64(item.batch_number);
  return Rng(context.seed ^ batch, epoch, item.ordinal, context.position << 32 | item.replica);
}

template <typename T>
AnyStage make_stage(const Options& options, const StageContext& context) {
  return std::make_unique<T>(options, context);
}

// Returns the field, or throws Error(not_found) that lists the existing fields.
const Tensor& require_field(const Item& item, std::string_view name);

// Requires an image, which is u8, u16 or f32 [H, W, C]; throws Error(invalid_argument) otherwise.
const Tensor& require_image(const Item& item, std::string_view name);

}  // namespace etr::pipeline
