// The stage contract.
//
// A stage is one of three kinds. Stages throw Error for a bad record; the pipeline adds the stage,
// the shard and the key, and applies the error policy. A new stage is stages/NAME.cpp, or
// sources/NAME.cpp, with `extern const StageSpec NAME_stage`, a test, and one line in
// pipeline/stage_list.inc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/interrupt.h"
#include "core/json_fwd.h"
#include "core/options.h"
#include "core/rng.h"
#include "pipeline/done_samples.h"
#include "pipeline/item.h"

namespace etr::pipeline {

// Functions of the program, which the stages `map` and `source` call by name; map from many threads
// at once.
using MapFunction = std::function<void(Item& item, uint64_t epoch)>;
using MapFunctions = std::map<std::string, MapFunction>;

struct StageContext {
  uint64_t seed = 0;
  uint64_t position = 0;  // of the stage in the pipeline; names its random numbers
  Interrupt* interrupt = nullptr;
  const MapFunctions* functions = nullptr;
  const Options* pipeline =
      nullptr;                   // the pipeline's own options; absent in tests of single stages
  uint64_t part = 0, parts = 1;  // of a source: which of equal parts of its data it gives
  bool defers = false;           // the consumer takes the last steps of images
  bool is_last = false;          // what the stage gives goes to the consumer
  bool trial = false;  // a copy of the stage, which looks at samples that the run will read again
};

class SampleCache;

inline bool has_budget(const StageContext& context) {
  return context.pipeline && context.pipeline->integer("budget_bytes") > 0;
}

class Stage {
 public:
  virtual ~Stage() = default;
};

class MapStage;

// Produces samples on a thread of its own: it may block on files and networks.
class Source : public Stage {
 public:
  // Begins pass `pass` of epoch `epoch` over the data.
  virtual void start_pass(uint64_t epoch, uint64_t pass) = 0;

  // What data it reads, wherever that lies: lists the data where start_pass() has not yet. Saved positions belong to it.
  // {"count": files, "bytes", "digest"} and where they are few {"files": [[NAME, BYTES], ...]}, {"records"} where that is
  // known; a list of such where there are sources within; null for a program's own functions.
  virtual Json data() = 0;

  // Samples in a pass, where that is known before it is read.
  virtual std::optional<uint64_t> samples() { return std::nullopt; }

  // Fills `item` (origin and fields); false at the end of the pass. After an Error the next call
  // goes on with what can still be read; `item.origin` should name what was bad.
  virtual bool next(Item& item) = 0;

  // Where records can be read from many threads at once: the map that does. From then on next() only names
  // the record. It refers to the source, and is asked for before the first pass.
  virtual std::unique_ptr<MapStage> reader() { return nullptr; }

  // Sources that number their records, each the same in every epoch: the number of the record that next()
  // would give, if that is known, and of the one that it gave last.
  virtual bool numbers_records() const { return false; }
  virtual std::optional<uint64_t> upcoming() { return std::nullopt; }
  virtual uint64_t record() const { return 0; }

  // When the files of data() were last changed, where each holds many records: [TIME, ...] in their order, or of many a digest.
  virtual Json changed();
  // Of a record that is a file by itself: another number when the file has changed. Else 0.
  virtual uint64_t stamp(uint64_t /*record*/) { return 0; }

  // Goes past a sample that nobody needs; false at the end of the pass.
  virtual bool skip() {
    Item unused;
    return next(unused);
  }
};

// What of an ImageView a stage changes, in the order in which these are applied to pixels; all but `place` once. `any`
// stands anywhere; `none` works on pixels only.
enum class ViewStep { none, any, scale, place, adjust, jitter };

// Transforms one item at a time; called from many threads at once, in any order. Everything random
// comes from item_rng().
class MapStage : public Stage {
 public:
  // Sets item.dropped where the sample shall go no further.
  virtual void process(Item& item, uint64_t epoch) const = 0;
  virtual bool may_drop() const { return false; }   // by way of item.dropped
  virtual double holds_bytes() const { return 0; }  // memory beside the items that pass
  virtual std::shared_ptr<SampleCache> sample_cache() const { return nullptr; }  // `cache`

  // What it can leave to the consumer, by changing Item::views instead of pixels.
  virtual ViewStep view_step() const { return ViewStep::none; }

  // Pixels of an image's shorter side beyond which more are of no use here; none: all are.
  virtual std::optional<int64_t> sufficient_side() const { return std::nullopt; }
  // Which map stage comes next, if one does; told once, while the pipeline is built.
  virtual void followed_by(const MapStage& /*next*/) {}
};

// How the stages around a serial stage get on, in seconds since the pipeline's start.
struct Pace {
  double elapsed_s = 0;
  double upstream_held_s = 0;     // the head before it waited because its output queue was full
  double consumer_starved_s = 0;  // the pipeline's consumer waited for output
};

// Names pass `pass` of an epoch in one number above 0.
constexpr uint64_t pass_id(uint64_t epoch, uint64_t pass) { return (epoch + 1) << 32 | pass; }

class Emitter {
 public:
  virtual ~Emitter() = default;
  virtual void emit(Item&& item) = 0;
};

// Sees all items in order, one call at a time; may hold, repeat, reorder or drop them.
// Its emissions may depend only on the options, the seed and the sequence of items, never on time,
// tensors or threads: restoring a position replays the sequence without payloads. A stage whose emissions
// depend on tensors says so; restoring then reads and maps everything again.
class SerialStage : public Stage {
 public:
  virtual void start_epoch(uint64_t /*epoch*/) {}
  // The same for the rest of an epoch that the ranks of another world have begun: of its first passes come only samples that
  // those have not had, and perhaps none. Throws Error(unsupported) where what the stage emits depends on those before.
  virtual void start_rest(uint64_t epoch, const DoneSamples& /*done*/) { start_epoch(epoch); }
  // The pipeline runs from here on: called once, in its first epoch, after the way to a restored position that takes no samples.
  // Copies that only find such a way, or try what fits into memory, are never told.
  virtual void begin_run() {}
  virtual void process(Item&& item, Emitter& out) = 0;
  virtual void finish_pass(Emitter& /*out*/) {}  // the source's pass has ended: emit what is held

  // Whether the end of a pass goes on downstream; `repeat` swallows all but the last.
  virtual bool forwards_end(bool /*epoch_ends*/) { return true; }
  virtual uint64_t passes() const {
    return 1;
  }  // repeat: how often it wants the source; 0: forever
  // take: pass_id() of the pass of which it needs no more; 0: none. Any thread.
  virtual uint64_t satisfied_pass() const { return 0; }
  virtual bool repeats_samples() const { return false; }  // with replica numbers of their own
  virtual bool may_block() const { return false; }        // runs on a thread of its own
  virtual bool makes_batches() const { return false; }    // its output is counted in batches
  virtual bool depends_on_content() const { return false; }
  // Behind it the steps of images are left to the consumer, where it takes them: pixels become Item::views.
  virtual bool makes_views() const { return false; }
  // Whether it can stand after such a stage.
  virtual bool carries_views() const { return !makes_batches() && !depends_on_content(); }
  // What it will hold at most, where an item that comes in has `item_bytes`.
  virtual double holds_bytes(double /*item_bytes*/) const { return 0; }
  virtual int64_t queue_items() const { return 0; }  // prefetch: of the queue after it; 0: as usual

  // Echo on demand: called when the consumer is about to wait and no input is there. Emits up to `most` items; returns how
  // many, 0 where it has none to give.
  virtual bool echoes_on_demand() const { return false; }
  virtual size_t echo(size_t /*most*/, Emitter& /*out*/) { return 0; }

  // overtake: how many samples may leave the maps in front of it before one that comes before them; 0: none. While
  // lets_overtake() says no for their epoch all come in order. The latter is called on any thread.
  virtual uint64_t overtaking_window() const { return 0; }
  virtual bool lets_overtake(uint64_t /*epoch*/) const { return false; }

  // Stages that adapt to the pace are told it now and then, between items; not while a position is
  // replayed.
  virtual bool adapts() const { return false; }
  virtual void observe(const Pace&) {}

  // Decisions that depended on time, so that a restored run can repeat them.
  virtual Json save_decisions(uint64_t epoch) const;
  virtual void load_decisions(uint64_t /*epoch*/, const Json& /*decisions*/) {}
  virtual void forget_before(uint64_t /*epoch*/) {}  // the consumer has left those epochs
};

enum class StageKind { source, map, serial };

struct StageSpec {
  const char* name;
  const char* doc;
  StageKind kind;
  Schema options;
  std::unique_ptr<Stage> (*make)(const Options&, const StageContext&);
  bool random = false;    // gives the same sample another look each time
  bool prepares = false;  // brings images into the model's form, in training as in predictions
};

// For start_rest() of a stage that counts what comes.
[[noreturn]] void refuse_rest(const char* stage);

std::span<const StageSpec* const> stage_table();
const StageSpec& find_stage(const std::string& name);  // Error(not_found) names the nearest

// How much of a pass the serial stages still want. `stages` in pipeline order.
enum class Demand { more, end_pass, end_epoch };
Demand demand_of(std::span<SerialStage* const> stages, uint64_t epoch, uint64_t pass);

// The random numbers of one replica of one sample in one stage: the same on any thread.
inline Rng item_rng(const StageContext& context, uint64_t epoch, const Item& item) {
  return Rng(context.seed, epoch, item.ordinal, context.position << 32 | item.replica);
}

template <typename T>
std::unique_ptr<Stage> make_stage(const Options& options, const StageContext& context) {
  return std::make_unique<T>(options, context);
}

// The field, or Error(not_found) that lists the fields there are.
const Tensor& require_field(const Item& item, const std::string& name);

// An image is u8, u16 or f32 [H, W, C]; Error(invalid_argument) otherwise.
const Tensor& require_image(const Item& item, const std::string& name);

}  // namespace etr::pipeline
