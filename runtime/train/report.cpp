#include "train/report.h"

#include <span>

#include "core/error.h"
#include "core/json.h"
#include "core/platform.h"
#include "train/report_page.h"
#include "train/report_runs.h"

namespace etr::train {

Json write_report(const std::string& title, const std::vector<ReportRun>& specs,
                  double target_accuracy, const std::string& html_path) {
  if (specs.empty()) fail(Code::invalid_argument, "a report needs at least one run");
  std::vector<ReportedRun> runs;
  for (const ReportRun& spec : specs) runs.push_back(load_run(spec));
  const Json table = table_of(runs, target_accuracy);
  const std::string html = report_page(title, runs, table, target_accuracy);
  platform::write_file_atomic(html_path, std::as_bytes(std::span(html)));
  return table;
}

}  // namespace etr::train
