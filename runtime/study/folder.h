// The folder of a study: who may write there, what earlier parts have left, and each finished trial as a line.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "study/records.h"
#include "study/study.h"
#include "study/trial_job.h"
#include "train/folder_claim.h"
#include "train/metrics.h"

namespace etr::study {

constexpr const char* kRecordsFile = "trials.jsonl";
constexpr const char* kStudyFile = "study.json";

class StudyFolder {
 public:
  // Claims the folder, and takes up what it holds of this study; `overwrite` removes that. Error(state) where another process
  // has the folder, where it holds something else, and where a trial of the study was run otherwise than it says now: the
  // message names the key that differs.
  StudyFolder(const std::string& path, const Study& study, bool overwrite);

  const std::string& path() const { return path_; }
  std::string file(const char* name) const;

  // Of an earlier part; nullptr: the trial is still to be run. One that failed is run again.
  const Record* earlier(const Place& place) const;

  void write(const Record& record);

 private:
  void check_contents() const;
  void remove_earlier();
  void check_records(const Study& study) const;
  [[noreturn]] void refuse(const Study& study, const TrialSpec& now) const;

  const std::string path_;
  std::optional<train::FolderClaim> claim_;
  std::map<Place, Record> earlier_;
  std::optional<train::JsonLines> lines_;
};

}  // namespace etr::study
