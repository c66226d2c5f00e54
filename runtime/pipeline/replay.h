// Restores a position without repeating the work that led to it.
//
// The output of stages depends only on the sequence of items, never on their content. So the way to
// a saved position can be replayed with empty tokens, which takes a tenth of a microsecond per
// sample. The replay shows which samples the shuffle and echo buffers still hold at the position.
// The stages of the restored run are then advanced to the first of these samples, and the run
// starts there. It reads the samples from there on again, but decodes only those that are needed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/interrupt.h"
#include "pipeline/done_samples.h"
#include "pipeline/drop_set.h"
#include "pipeline/stage.h"

namespace etr::pipeline {

struct ReplayInput {
  std::vector<std::pair<uint64_t, SerialStage*>> stages;  // with their positions
  std::vector<uint64_t> map_positions;                    // of all map stages
  uint64_t epoch = 0;
  uint64_t outputs = 0;                     // delivered in the epoch before the position
  uint64_t rank = 0, world = 1;             // selects the source's samples to feed
  std::shared_ptr<const DoneSamples> done;  // samples to leave out; nullptr: none
  uint64_t passes = 1;                      // 0: endless
  std::vector<uint64_t> pass_lengths;       // of the passes that ended
  std::optional<uint64_t> pass_length;      // of each pass, if known in advance
  const DropSet* drops = nullptr;
  const SerialStage* repeats = nullptr;  // emits copies; those in done->copies() are discarded
  const Interrupt* interrupt = nullptr;  // ends the replay with Error(cancelled)
};

// Whether passes are repeated without end, and no `take` ends the epoch after that.
bool never_ends(const ReplayInput& input);

// The number of items that an epoch yields if each pass has `pass_length` own samples. Returns
// nothing if the epoch is endless or has more than kCountable samples.
constexpr uint64_t kCountable = uint64_t{1} << 26;
std::optional<uint64_t> count_outputs(const ReplayInput& input, uint64_t pass_length);

struct ReplayPlan {
  // Returns whether the run had read this sample and no longer held it at the position.
  std::function<bool(uint64_t ordinal)> ghost = [](uint64_t) { return false; };
  uint64_t unneeded = 0;  // samples at the start before the first that is needed again
};
// `copies` owns the stages that `input` refers to, which must be at the beginning of the epoch;
// they are destroyed here. Throws Error(corrupt_data) if the replay does not reach that many
// outputs.
ReplayPlan plan_replay(const ReplayInput& input, std::vector<AnyStage> copies);

// The samples of an epoch that the ranks of another world have delivered.
struct Delivered {
  DoneSamples done;
  uint64_t first_open = UINT64_MAX;  // all ranks are done with all samples of earlier passes
};
// Adds the samples that one rank is done with at its position. Parameters as in plan_replay().
void add_delivered(const ReplayInput& input, std::vector<AnyStage> copies, Delivered& delivered);

// Where a source continues, and the number of outputs before.
struct ReplayPlace {
  uint64_t pass = 0, index = 0, outputs = 0;
};
// Advances the stages, which must be at the beginning of the epoch, by `samples` samples.
ReplayPlace walk(const ReplayInput& input, uint64_t samples);

}  // namespace etr::pipeline
