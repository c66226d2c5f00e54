// A job's output folder: who may write into it, and what a run writes there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/store.h"
#include "core/json_fwd.h"
#include "train/metrics.h"

namespace etr::train {

// How a job's trainer begins. The values are those of ETR_START_*.
enum class Start : int32_t {
  fresh = 0,      // from the beginning, in a folder without an earlier run
  resume = 1,     // from the newest checkpoint
  overwrite = 2,  // from the beginning, in place of an earlier run
  evaluate = 3,   // with the newest checkpoint's weights; does not train, writes nothing
  trial = 4,      // from the beginning; writes nothing
};

class RunFolder {
 public:
  // Writes nothing yet but a missing folder: a run that fails before its first step leaves no file, and an earlier run as
  // it was. Error(state) where `start` is fresh and the folder holds an earlier run.
  RunFolder(std::string directory, Start start, bool tensorboard);
  ~RunFolder();  // removes the folders that it made, if nothing was written
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  void write_row(const Json& row);  // of metrics.jsonl
  void write_scalars(uint64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  std::string write_checkpoint(uint64_t step, const checkpoint::Files& files);  // its path

  // The checkpoint to go on from: none where this run has yet to take the place of an earlier one.
  std::optional<checkpoint::Loaded> newest() const;

 private:
  void check_unused() const;
  void make_folder();
  void begin();
  void remove_earlier_run() const;

  const std::string directory_, metrics_path_;
  const Start start_;
  const bool tensorboard_;
  const checkpoint::Store store_;
  std::vector<std::string> made_;       // folders, the innermost first
  std::unique_ptr<JsonLines> metrics_;  // opened by the first write
  std::unique_ptr<EventFile> events_;
};

}  // namespace etr::train
