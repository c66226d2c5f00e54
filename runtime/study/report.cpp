#include "study/report.h"

#include <filesystem>
#include <set>
#include <span>

#include "core/error.h"
#include "core/json.h"
#include "core/platform_files.h"
#include "plot/svg.h"
#include "study/report_page.h"

namespace etr::study {
namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(Code::io, "cannot make the folder ", folder.string(), ": ", error.message());
}

void write(const fs::path& path, const std::string& text) {
  platform::write_file_atomic(path.string(), std::as_bytes(std::span(text)));
}

// Pictures of another study, or of other labels, would be taken for this one's.
void remove_others(const fs::path& folder, const std::set<std::string>& names) {
  std::error_code error;
  std::vector<fs::path> others;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    const bool ours = path.extension() == ".svg" || path.extension() == ".csv";
    if (ours && !names.contains(path.stem().string())) others.push_back(path);
  }
  for (const fs::path& path : others) fs::remove(path, error);
}

}  // namespace

void write_study_report(const Json& study, const std::vector<Record>& records,
                        const std::string& folder) {
  const Summary summary = summarize(study, records);
  const std::vector<StudyFigure> figures = study_figures(study, summary, records);
  const std::string page = study_page(study, summary, records, figures);
  const fs::path root(folder), pictures = root / "figures";
  make_folder(pictures);
  std::set<std::string> names;
  for (const StudyFigure& figure : figures) {
    names.insert(figure.name);
    write(pictures / (figure.name + ".svg"), plot::svg_file(figure.figure));
    write(pictures / (figure.name + ".csv"), plot::csv(figure.figure));
  }
  remove_others(pictures, names);
  write(root / "results.json", to_json(summary, records).dump(2) + "\n");
  write(root / "conditions.csv", conditions_csv(summary, records));
  write(root / "trials.csv", trials_csv(records));
  write(root / "report.html", page);
}

}  // namespace etr::study
