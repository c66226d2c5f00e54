#include "study/folder.h"

#include <filesystem>
#include <span>
#include <tuple>

#include "core/error.h"
#include "core/parse_json.h"
#include "core/platform_files.h"
#include "core/platform_lock.h"
#include "study/labels.h"

namespace etr::study {
namespace {

namespace fs = std::filesystem;

// What a study writes.
constexpr const char* kFiles[] = {kStudyFile,       kRecordsFile, "results.json",
                                  "conditions.csv", "trials.csv", "report.html"};
constexpr const char* kFigures = "figures";

using Name = std::tuple<std::string, std::string, uint64_t, uint64_t>;

Name name_of(const Study& study, const Place& place) {
  const Workload& workload = study.workloads()[place.workload];
  return {workload.name, label_key(workload.conditions[place.condition].labels), place.search,
          place.trial};
}

std::map<Name, Place> places_of(const Study& study) {
  std::map<Name, Place> out;
  for (const Place& place : all_places(study)) out.emplace(name_of(study, place), place);
  return out;
}

std::string trial_name(const Study& study, const Place& at) {
  const Workload& workload = study.workloads()[at.workload];
  const std::string& condition = workload.conditions[at.condition].name;
  return cat("trial ", at.trial, " of search ", at.search, " of ", workload.name,
             condition.empty() ? "" : cat(" (", condition, ")"));
}

// How the study that is in the folder has run the same trial; null where that cannot be told.
Json identity_there(const std::string& file, const Name& name) try {
  const Study study = Study::parse(parse_json(platform::read_document(file), file), file,
                                   fs::path(file).parent_path());
  const auto places = places_of(study);
  const auto found = places.find(name);
  return found == places.end() ? Json() : trial_spec(study, found->second, Json()).identity;
} catch (const Error&) {
  return {};
}

}  // namespace

StudyFolder::StudyFolder(const std::string& path, const Study& study, bool overwrite)
    : path_(path) {
  if (path.empty()) fail(Code::invalid_argument, "a study needs a folder to write into");
  claim_.emplace(path, "study", "give the study another folder (--out FOLDER)");
  check_contents();
  if (overwrite) remove_earlier();
  const auto places = places_of(study);
  for (Record& record : read_records(file(kRecordsFile))) {
    const auto found =
        places.find({record.workload, label_key(record.condition), record.search, record.trial});
    if (found != places.end()) earlier_.emplace(found->second, std::move(record));
  }
  check_records(study);
  const std::string text = study.json().dump(2) + "\n";
  platform::write_file_atomic(file(kStudyFile), std::as_bytes(std::span(text)));
  lines_.emplace(file(kRecordsFile));
}

std::string StudyFolder::file(const char* name) const { return (fs::path(path_) / name).string(); }

// A folder that is not empty must be a study's: nothing of others is mixed with a study, or removed.
void StudyFolder::check_contents() const {
  std::error_code error;
  if (fs::exists(file(kStudyFile), error) || fs::exists(file(kRecordsFile), error)) return;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error))
    if (it->path().filename() != platform::kFolderLock)
      fail(Code::state, "'", path_, "' holds no study, but '", it->path().filename().string(),
           "': give the study a folder of its own (--out FOLDER)");
}

void StudyFolder::remove_earlier() {
  std::error_code error;
  for (const char* name : kFiles) {
    fs::remove(file(name), error);
    if (error) fail(Code::io, "cannot remove '", file(name), "': ", error.message());
  }
  for (fs::directory_iterator it(file(kFigures), error), end; !error && it != end;
       it.increment(error))
    if (it->path().extension() == ".svg" || it->path().extension() == ".csv") {
      std::error_code kept;
      fs::remove(it->path(), kept);
    }
}

// Trials whose keys come from the best of others are looked at when those are there: a better one may have been found.
void StudyFolder::check_records(const Study& study) const {
  for (const auto& [place, record] : earlier_) {
    if (study.workloads()[place.workload].conditions[place.condition].base) continue;
    const TrialSpec now = trial_spec(study, place, Json());
    if (now.digest != record.digest) refuse(study, now);
  }
}

void StudyFolder::refuse(const Study& study, const TrialSpec& now) const {
  const Json before = identity_there(file(kStudyFile), name_of(study, now.place));
  const std::string found = before.is_null() ? "" : difference(before, now.identity);
  fail(Code::state, "'", path_, "' holds ", trial_name(study, now.place),
       " as an earlier version of the study has run it: ",
       found.empty() ? "the resolved job differs" : found,
       "; write into another folder (--out FOLDER), or run all trials again (--overwrite)");
}

const Record* StudyFolder::earlier(const Place& place) const {
  const auto found = earlier_.find(place);
  if (found == earlier_.end() || found->second.status == Status::failed) return nullptr;
  return &found->second;
}

void StudyFolder::write(const Record& record) {
  if (!lines_->is_in_place())
    fail(Code::state, "the study's folder '", path_,
         "' was removed, renamed or replaced while it ran");
  lines_->write(to_json(record));
}

}  // namespace etr::study
