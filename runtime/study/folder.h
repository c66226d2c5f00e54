// The folder of a study: who may write there, the results of earlier parts, and each finished trial
// as a line.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "study/outline.h"
#include "study/records.h"
#include "study/study.h"
#include "study/trial_job.h"
#include "train/folder_claim.h"
#include "train/metrics.h"

namespace etr::study {

constexpr const char* kRecordsFile = "trials.jsonl";
constexpr const char* kStudyFile = "study.json";
constexpr const char* kResultsFile = "results.json";
constexpr const char* kFiguresFolder = "figures";

// Error(state) unless the folder is new, empty or this study's. A folder with trials or a study
// file is this study's if a condition matches, as one of an earlier version of the study does.
void check_folder(const std::string& path, const Outline& study);

// Error(state) if the folder's study defined this trial differently from `study`; the message names
// the key. Does not check trials that failed, which run again, and those with keys scaled from the
// best of others.
void check_unchanged(const Study& study, const std::string& path, const Place& place,
                     const Record& record);

// Removes the files of the figures that the folder's results.json lists.
void remove_figures(const std::string& path);

class StudyFolder {
 public:
  // Claims the folder, and loads this study's earlier results; `overwrite` moves the results of any
  // study to its subfolder `replaced`, in place of those that were moved there before. Error(state)
  // if another process has the folder, if it holds something else or another study, or if a trial
  // was run differently from what the study says now; the message names the key that differs.
  StudyFolder(const std::string& path, const Study& study, bool overwrite);

  const std::string& path() const { return path_; }
  std::string file(const char* name) const;

  // Returns the record of an earlier part; nullptr: the trial has yet to run. A failed trial runs
  // again.
  const Record* earlier(const Place& place) const;

  // Error(io) if the file cannot be written. All later calls throw it, too. A partial line may
  // remain at the end of the file; the next part of the study cuts it off.
  void write(const Record& record);

 private:
  void replace_earlier();

  const std::string path_;
  std::optional<train::FolderClaim> claim_;
  std::map<Place, Record> earlier_;
  std::optional<train::JsonLines> lines_;
  std::string failure_;  // of an earlier write(); empty: none
};

}  // namespace etr::study
