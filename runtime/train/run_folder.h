// A job's output folder: who may write into it, and what a run writes there.
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

// How a job's trainer begins. The values are those of ETR_START_*.
enum class Start : int32_t {
  fresh = 0,      // from the beginning, in a folder without an earlier run
  resume = 1,     // from the newest checkpoint
  overwrite = 2,  // from the beginning, in place of an earlier run
  evaluate = 3,   // with the newest checkpoint's weights; does not train, writes nothing
  trial = 4,      // from the beginning; writes nothing, on the program's device alone
  study =
      5,  // from the beginning; writes nothing, on the devices that the job names, and never with other processes
};

class RunFolder {
 public:
  // Claims the folder where `start` writes: no second run can, here or in another process, until this one ends. Writes nothing
  // else yet: a run that fails before its first step leaves no file, and an earlier run as it was. Error(state) where another
  // run writes into the folder, where `start` is fresh and it holds an earlier run, and where `start` is overwrite and what
  // would have to go was not made by a run.
  RunFolder(std::string directory, Start start, bool tensorboard);

  void write_row(const Json& row);  // of metrics.jsonl
  void write_scalars(uint64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  std::string write_checkpoint(uint64_t step, const checkpoint::Files& files);  // its path

  // The checkpoint to go on from: none where this run has yet to take the place of an earlier one.
  std::optional<checkpoint::Loaded> newest() const;

  // The run goes on from that step's checkpoint: rows that it will write again are cut off before the next row. They are those
  // of later steps and, unless the checkpoint holds the step's evaluation (`evaluated`), that one's.
  void go_on_after(uint64_t step, bool evaluated);

  // Error(state) where the folder that the run has begun to write into was removed, renamed or replaced: what is written
  // now would be lost. Each of the writes above looks first.
  void check_in_place() const;

  // The run has ended, and another may begin. From now on each of the writes above claims the folder for its own time, also
  // where it fails; Error(state) where another run has the folder, or has been there.
  void let_go() noexcept;

 private:
  bool writes() const { return start_ != Start::evaluate; }
  uint64_t metrics_bytes() const noexcept;
  void check_unused() const;
  void check_removable() const;
  class Write;
  void begin();
  void claim_again();
  void remove_earlier_run() const;

  const std::string directory_;
  const std::filesystem::path metrics_path_;
  const Start start_;
  const bool tensorboard_;
  const checkpoint::Store store_;
  std::optional<FolderClaim> claim_;
  bool begun_ = false;  // something has been written
  bool over_ = false;   // let_go() was called
  std::optional<LastRow> cut_after_;
  uint64_t left_bytes_ = 0;             // of metrics.jsonl, when the claim ended
  std::unique_ptr<JsonLines> metrics_;  // opened by the first write
  std::unique_ptr<EventFile> events_;
};

}  // namespace etr::train
