// A job's output folder: which run may write there, and what it writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/store.h"
#include "core/json_fwd.h"
#include "train/folder_claim.h"
#include "train/metrics.h"

namespace etr::train {

// How a job's trainer begins. The values are those of ETR_START_*, but for `study`.
enum class Start : int32_t {
  new_run = 0,    // from the beginning, in a folder without an earlier run
  resume = 1,     // from the newest checkpoint
  overwrite = 2,  // from the beginning, in place of an earlier run
  evaluate = 3,   // loads the newest checkpoint's weights; does not train, writes nothing
  trial = 4,      // from the beginning; writes nothing, uses only the program's device
  // From the beginning; writes nothing, uses the devices that the job names, never other processes.
  study = 5,
};

// The file that checkpoints of runs have, and those of etr_trainer_save do not.
constexpr const char* kTrainerState = "trainer.json";

class RunFolder {
 public:
  // Claims the folder if `start` writes: no other run, in this or another process, can use it until
  // this object is destroyed. Writes nothing else yet, so that a run that fails before its first
  // step leaves no file, and any earlier run intact. Error(state) if another run writes into the
  // folder; if `start` is fresh and it holds an earlier run; or if `start` is overwrite and
  // something that would be removed was not made by a run.
  RunFolder(std::string directory, Start start, bool tensorboard);

  void write_row(const Json& row);  // to metrics.jsonl
  void write_scalars(uint64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  std::string write_checkpoint(uint64_t step, const checkpoint::Files& files);  // returns its path

  // Returns the checkpoint to continue from; none if this run will replace an earlier one and has
  // not yet.
  std::optional<checkpoint::Loaded> newest() const;

  // The run continues from that step's checkpoint: before the next row, cuts off the rows that it
  // will write again. They are the rows of later steps and, unless the checkpoint includes the
  // step's evaluation (`evaluated`), the row of that evaluation.
  void go_on_after(uint64_t step, bool evaluated);

  // Error(state) if the folder into which the run writes was removed, renamed or replaced, so that
  // writes would be lost. Each of the writes above checks this first.
  void check_in_place() const;

 private:
  bool writes() const { return start_ != Start::evaluate; }
  uint64_t metrics_bytes() const noexcept;
  void check_unused() const;
  void check_removable() const;
  void begin();
  void remove_earlier_run() const;

  const std::string directory_;
  const std::filesystem::path metrics_path_;
  const Start start_;
  const bool tensorboard_;
  const checkpoint::Store store_;
  std::optional<FolderClaim> claim_;
  bool begun_ = false;  // whether something has been written
  std::optional<LastRow> cut_after_;
  std::unique_ptr<JsonLines> metrics_;  // opened by the first write
  std::unique_ptr<EventFile> events_;
};

}  // namespace etr::train
