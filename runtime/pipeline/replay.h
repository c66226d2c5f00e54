// Restoring a position without redoing the work that led to it.
//
// Stages emit by the sequence of items alone, never by their content. So the way to a saved
// position can be repeated on empty tokens in microseconds: it tells which samples are still held
// in shuffle and echo buffers there. The stages of the restored run are then walked to the first of
// these, and the run begins there; it reads again, but decodes only those.
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
  uint64_t rank = 0, world = 1;             // which of the source's samples are fed
  std::shared_ptr<const DoneSamples> done;  // of all of them these are not; none: all are
  uint64_t passes = 1;                      // 0: without end
  std::vector<uint64_t> pass_lengths;       // of the passes that ended
  std::optional<uint64_t> pass_length;      // of each pass, where that is known beforehand
  const DropSet* drops = nullptr;
  const SerialStage* repeats = nullptr;  // what it emits of done->copies() goes no further
  const Interrupt* interrupt = nullptr;  // ends the way with Error(cancelled)
};

// Items that an epoch of passes of `pass_length` own samples gives; none where it has no end, or more
// than kCountable samples.
constexpr uint64_t kCountable = uint64_t{1} << 26;
std::optional<uint64_t> count_outputs(const ReplayInput& input, uint64_t pass_length);

struct ReplayPlan {
  // Ordinals that the run had read and no longer held at the position.
  std::function<bool(uint64_t ordinal)> ghost = [](uint64_t) { return false; };
  uint64_t unneeded = 0;  // samples at the beginning of which none is needed again
};
// Throws Error(corrupt_data) where the way does not lead to so many outputs. `copies` are the stages that `input` refers to, at the beginning of the epoch; they end here.
ReplayPlan plan_replay(const ReplayInput& input, std::vector<std::unique_ptr<Stage>> copies);

// What the ranks of another world leave of an epoch.
struct Delivered {
  DoneSamples done;
  uint64_t first_open = UINT64_MAX;  // of each pass before it all ranks have had all that is theirs
};
// Adds what one rank has had on its way, as above.
void add_delivered(const ReplayInput& input, std::vector<std::unique_ptr<Stage>> copies,
                   Delivered& delivered);

// Where a source goes on, and the outputs before that.
struct ReplayPlace {
  uint64_t pass = 0, index = 0, outputs = 0;
};
// Leads the stages, which are at the beginning of the epoch, past `samples` samples.
ReplayPlace walk(const ReplayInput& input, uint64_t samples);

}  // namespace etr::pipeline
