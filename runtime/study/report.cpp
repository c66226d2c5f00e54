#include "study/report.h"

#include <filesystem>
#include <span>

#include "core/error.h"
#include "core/json.h"
#include "core/platform_files.h"
#include "plot/svg.h"
#include "study/folder.h"
#include "study/report_page.h"

namespace etr::study {
namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(Code::io, "cannot make the folder ", folder.string(), ": ", error.message());
}

// Rejects a misspelt folder instead of writing an empty report. Records may come from elsewhere.
void check_is_there(const std::string& folder, const std::vector<Record>& records) {
  std::error_code error;
  const auto has = [&](const char* name) { return fs::exists(fs::path(folder) / name, error); };
  if (records.empty() && !has(kStudyFile) && !has(kRecordsFile))
    fail(Code::not_found, "there is no study in '", folder,
         "': name the folder that the study has written (--out FOLDER)");
}

void write(const fs::path& path, const std::string& text) {
  platform::write_file_atomic(path.string(), std::as_bytes(std::span(text)));
}

}  // namespace

void write_study_report(const Outline& study, const std::vector<Record>& records,
                        const std::string& folder) {
  check_folder(folder, study);
  check_is_there(folder, records);
  const Summary summary = summarize(study, records);
  const std::vector<StudyFigure> figures = study_figures(study, summary, records);
  const std::string page = study_page(study, summary, records, figures);
  Json results = to_json(summary, records);
  results["figures"] = Json::array();
  for (const StudyFigure& figure : figures) results["figures"].push_back(figure.name);
  const fs::path root(folder), pictures = root / kFiguresFolder;
  make_folder(pictures);
  remove_figures(folder);  // leftovers with other labels would seem to be part of this report
  write(root / kResultsFile, results.dump(2) + "\n");
  for (const StudyFigure& figure : figures) {
    write(pictures / (figure.name + ".svg"), plot::svg_file(figure.figure));
    write(pictures / (figure.name + ".csv"), plot::csv(figure.figure));
  }
  write(root / "conditions.csv", conditions_csv(summary, records));
  write(root / "trials.csv", trials_csv(records));
  write(root / "report.html", page);
}

}  // namespace etr::study
