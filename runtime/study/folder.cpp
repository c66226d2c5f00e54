#include "study/folder.h"

#include <algorithm>
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

// The files that a study writes. Those that say whose the folder is come last.
constexpr const char* kFiles[] = {kResultsFile,  "conditions.csv", "trials.csv",
                                  "report.html", kRecordsFile,     kStudyFile};
constexpr const char* kReplacedFolder = "replaced";  // by --overwrite

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

// Returns the identity of the same trial in the folder's study; null if unknown.
Json identity_there(const std::string& file, const Name& name) try {
  const Study study = Study::parse(parse_json(platform::read_document(file), file), file,
                                   fs::path(file).parent_path().string());
  const auto places = places_of(study);
  const auto found = places.find(name);
  return found == places.end() ? Json() : trial_spec(study, found->second, Json()).identity;
} catch (const Error&) {
  return {};
}

// Returns whether a study that was killed may have left only this file.
bool is_left_over(const std::string& name) {
  return name == platform::kFolderLock || name == kReplacedFolder ||
         platform::is_unfinished_file(name);
}

// Rejects a folder with other files, which a study must neither mix with nor remove.
void check_holds_study(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path / kStudyFile, error) || fs::exists(path / kRecordsFile, error)) return;
  for (const auto& [name, type] : platform::list_folder(path, error))
    if (!is_left_over(name))
      fail(Code::state, "'", path.string(), "' holds no study, but '", name,
           "': give the study a folder of its own (--out FOLDER)");
}

std::string file_text_of(const Study& study) { return study.json().dump(2) + "\n"; }

// Rejects a folder with a study file that no study wrote: it would be replaced.
void check_replaces_nothing(const fs::path& path) {
  const std::string file = (path / kStudyFile).string();
  std::error_code error;
  if (!fs::exists(file, error) || fs::exists(path / kRecordsFile, error)) return;
  const std::string text = platform::read_document(file);
  if (text == file_text_of(Study::parse(parse_json(text, file), file, path.string()))) return;
  fail(Code::state, "'", file,
       "' is a study file that no study has written here, and it would be replaced: give the "
       "study a folder of its own (--out FOLDER)");
}

bool has_condition(const Outline& study, const std::string& workload, const std::string& labels) {
  return std::any_of(study.objectives.begin(), study.objectives.end(), [&](const Objective& of) {
    return of.workload == workload && of.spaces.contains(labels);
  });
}

// Returns whether a condition of the folder's study.json belongs to this study.
bool has_condition_of(const Outline& study, const Outline& other) {
  for (const Objective& objective : other.objectives)
    for (const auto& [labels, space] : objective.spaces)
      if (has_condition(study, objective.workload, labels)) return true;
  return false;
}

Outline outline_in(const std::string& path, const std::string& file) try {
  return outline_of(Study::parse(parse_json(platform::read_document(file), file), file, path));
} catch (const Error& error) {
  fail(Code::state, "'", path, "' holds a study that cannot be read (", error.what(),
       "): give the study a folder of its own (--out FOLDER), or use --overwrite to move it "
       "aside");
}

// Figure names are made by this program, and are never paths.
bool is_figure_name(const Json& name) {
  return name.is_string() && !name.empty() &&
         name.get<std::string>().find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") ==
             std::string::npos;
}

}  // namespace

void check_folder(const std::string& path, const Outline& study) {
  check_holds_study(path);
  const std::string file = (fs::path(path) / kStudyFile).string();
  const std::vector<Record> records = read_records((fs::path(path) / kRecordsFile).string());
  const bool any = std::any_of(records.begin(), records.end(), [&](const Record& record) {
    return has_condition(study, record.workload, label_key(record.condition));
  });
  std::error_code error;
  if (any || (records.empty() && !fs::exists(file, error))) return;
  if (records.empty() && has_condition_of(study, outline_in(path, file))) return;
  fail(Code::state, "'", path, "' holds another study, which has no condition of '", study.name,
       "': give this one a folder of its own (--out FOLDER)");
}

void check_unchanged(const Study& study, const std::string& path, const Place& place,
                     const Record& record) {
  if (record.status == Status::failed ||
      study.workloads()[place.workload].conditions[place.condition].base)
    return;
  const TrialSpec now = trial_spec(study, place, Json());
  if (now.digest == record.digest) return;
  const std::string file = (fs::path(path) / kStudyFile).string();
  const Json before = identity_there(file, name_of(study, place));
  const std::string found = before.is_null() ? "" : difference(before, now.identity);
  fail(Code::state, "'", path, "' holds ", trial_name(study, place),
       " that was run with another version of the study (in '", file,
       "'): ", found.empty() ? "the resolved job differs" : found,
       "; write into another folder (--out FOLDER), or run all trials again (--overwrite)");
}

void remove_figures(const std::string& path) {
  const fs::path file = fs::path(path) / kResultsFile;
  std::error_code error;
  if (!fs::exists(file, error)) return;
  Json figures;
  try {
    const Json results = parse_json(platform::read_document(file.string()), file.string());
    if (results.is_object()) figures = results.value("figures", Json());
  } catch (const Error&) {  // damaged: it is unknown which figures are its own
    return;
  }
  for (const Json& name : figures)
    for (const char* ending : {".svg", ".csv"})
      if (is_figure_name(name))
        fs::remove(fs::path(path) / kFiguresFolder / (name.get<std::string>() + ending), error);
}

StudyFolder::StudyFolder(const std::string& path, const Study& study, bool overwrite)
    : path_(path) {
  if (path.empty()) fail(Code::invalid_argument, "a study needs a folder to write into");
  claim_.emplace(path, "study", "give the study another folder (--out FOLDER)");
  if (overwrite) {
    check_holds_study(path);
    replace_earlier();
  } else {
    check_folder(path, outline_of(study));
    check_replaces_nothing(path);
  }
  const auto places = places_of(study);
  for (Record& record : read_records(file(kRecordsFile))) {
    const auto found =
        places.find({record.workload, label_key(record.condition), record.search, record.trial});
    if (found != places.end()) earlier_.emplace(found->second, std::move(record));
  }
  for (const auto& [place, record] : earlier_) check_unchanged(study, path, place, record);
  const std::string text = file_text_of(study);
  platform::write_file_atomic(file(kStudyFile), std::as_bytes(std::span(text)));
  lines_.emplace(file(kRecordsFile));
}

std::string StudyFolder::file(const char* name) const { return (fs::path(path_) / name).string(); }

// Moves what earlier parts wrote into a subfolder, in place of what is there. Without any trial it
// is removed, since what is there is worth more. So are figures, which can be drawn again.
void StudyFolder::replace_earlier() {
  remove_figures(path_);
  const fs::path replaced = fs::path(path_) / kReplacedFolder;
  std::error_code error;
  const bool any = fs::file_size(file(kRecordsFile), error) > 0 && !error;
  for (const char* name : kFiles) {
    if (any) fs::remove(replaced / name, error);
    if (!fs::exists(file(name), error)) continue;
    if (!any) {
      fs::remove(file(name), error);
      continue;
    }
    fs::create_directory(replaced, error);
    fs::rename(file(name), replaced / name, error);
    if (error)
      fail(Code::io, "cannot move '", file(name), "' to '", replaced.string(),
           "': ", error.message());
  }
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
  if (!failure_.empty()) fail(Code::io, failure_);
  try {
    lines_->write(to_json(record));
  } catch (const Error& error) {
    failure_ = error.what();
    throw;
  }
}

}  // namespace etr::study
