// The folder of a study: who may write there, what earlier parts have left, and each finished trial as a line.
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

// Error(state) unless the folder is new, empty, or this study's: where it holds trials or the file of a study, that has a condition
// of this one, as an earlier version of it has.
void check_folder(const std::string& path, const Outline& study);

// Error(state) where the study in the folder said of this trial something else than `study` says now; the message names the key. Of
// trials that failed, which run again, and of those whose keys are scaled from the best of others, nothing is checked.
void check_unchanged(const Study& study, const std::string& path, const Place& place,
                     const Record& record);

// Removes the files of the figures that the results.json there lists.
void remove_figures(const std::string& path);

class StudyFolder {
 public:
  // Claims the folder, and takes up what it holds of this study; `overwrite` removes what it holds of any study. Error(state) where
  // another process has the folder, where it holds something else or another study, and where a trial of the study was run
  // otherwise than it says now: the message names the key that differs.
  StudyFolder(const std::string& path, const Study& study, bool overwrite);

  const std::string& path() const { return path_; }
  std::string file(const char* name) const;

  // Of an earlier part; nullptr: the trial is still to be run. One that failed is run again.
  const Record* earlier(const Place& place) const;

  // Error(io) where it cannot be written. All later ones have that error, too: what there is of its line ends the file, and
  // the next part of the study cuts it off.
  void write(const Record& record);

 private:
  void remove_earlier();

  const std::string path_;
  std::optional<train::FolderClaim> claim_;
  std::map<Place, Record> earlier_;
  std::optional<train::JsonLines> lines_;
  std::string failure_;  // of an earlier write()
};

}  // namespace etr::study
