#include "study/report_tables.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/error.h"
#include "core/format_text.h"
#include "core/json.h"
#include "core/label_text.h"
#include "core/markup.h"
#include "core/number_text.h"
#include "core/text.h"
#include "study/figure_kinds.h"

namespace etr::study {
namespace {

constexpr const char* kDash = "–";
constexpr const char* kGainHead = "Speed-up over baseline";
constexpr size_t kMostOpen = 24;  // rows up to which a table is not collapsed

std::string metric_value(const Objective& objective, double value) {
  if (!std::isfinite(value)) return kDash;
  return objective.accuracy ? number_text(100 * value, 2) + "\u00a0%" : number_text(value, 4);
}

// "30,100", and below it "28,000 – 33,000"
template <typename Text>
std::string spread_cell(const Spread& spread, const Text& text) {
  if (spread.count == 0) return kDash;
  std::string out = escape_markup(text(spread.median));
  if (spread.count > 1 && spread.low != spread.high)
    out += cat("<small>", escape_markup(text(spread.low)), " – ", escape_markup(text(spread.high)),
               "</small>");
  return out;
}

// For estimates that are hardly known better.
std::string two_digits(double value) {
  const double unit = value > 0 ? std::pow(10, std::floor(std::log10(value)) - 1) : 1;
  return number_text(std::round(value / unit) * unit, unit < 1 ? 1 : 0);
}

std::string head_cell(const std::string& text) {
  return cat("<th scope='col'>", escape_markup(text), "</th>");
}

std::string cell(const std::string& head, const std::string& html) {
  return cat("<td role='cell' data-label='", escape_markup(head), "'><span>", html, "</span></td>");
}

std::string point_text(const Record& record) {
  std::string out;
  if (!record.point.is_object()) return kDash;
  for (const auto& [key, value] : record.point.items()) {
    const size_t dot = key.rfind('.');
    const std::string shown =
        value.is_number_float() ? format_text("%.3g", value.get<double>()) : label_text(value);
    out += cat("<span class='key'>",
               escape_markup(dot == std::string::npos ? key : key.substr(dot + 1)), " ",
               escape_markup(shown), "</span> ");
  }
  return out.empty() ? kDash : out;
}

class ConditionTable {
 public:
  ConditionTable(const Summary& summary, const std::vector<Record>& records, size_t workload)
      : summary_(summary),
        records_(records),
        workload_(workload),
        objective_(summary.objectives[workload]),
        varying_(varying_labels(summary, workload)) {}

  std::string html() const {
    std::string out =
        "<table role='table'><caption>Results by condition</caption><thead><tr role='row'>";
    for (const std::string& head : heads()) out += head_cell(head);
    out += "</tr></thead><tbody>";
    const std::vector<size_t> conditions = conditions_of_workload(summary_, workload_);
    for (const size_t condition : conditions) out += row(summary_.conditions[condition]);
    return out + "</tbody></table>";
  }

 private:
  bool compares() const {
    return std::any_of(summary_.conditions.begin(), summary_.conditions.end(), [&](const auto& c) {
      return c.workload == workload_ && c.baseline && c.gain[objective_.clock].count > 0;
    });
  }
  std::string clock_head() const { return upper(clock_text(objective_.clock)) + " to target"; }
  static std::string upper(std::string text) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    return text;
  }

  std::vector<std::string> heads() const {
    std::vector<std::string> out = {"Condition"};
    if (objective_.target) {
      out.push_back(clock_head());
      if (compares()) out.push_back(kGainHead);
    }
    out.push_back(cat("Best ", objective_.metric()));
    out.insert(out.end(), {"Trials", "Best point"});
    return out;
  }

  std::string row(const ConditionResult& condition) const {
    const std::string name = short_name(condition.labels, varying_);
    std::string out = cat("<tr role='row'><th scope='row' role='rowheader'>",
                          escape_markup(name.empty() ? "all trials" : name), "</th>");
    const size_t clock = objective_.clock;
    if (objective_.target) {
      out += cell(clock_head(), spread_cell(condition.to_target[clock], [&](double value) {
                    return clock_value(clock, value);
                  }));
      if (compares()) out += cell(kGainHead, gain(condition));
    }
    out += cell(cat("Best ", objective_.metric()),
                spread_cell(condition.best_metric,
                            [&](double value) { return metric_value(objective_, value); }));
    out += cell("Trials", cat(condition.records.size(), "<small class='free'>",
                              escape_markup(outcomes(condition.counts)), "</small>"));
    out += cell("Best point", condition.best ? point_text(records_[*condition.best]) : kDash);
    return out + "</tr>";
  }

  std::string gain(const ConditionResult& condition) const {
    if (!condition.baseline) return "baseline";
    const Spread& gain = condition.gain[objective_.clock];
    if (gain.count == 0) return kDash;  // neither reached the target
    std::string out = spread_cell(gain, gain_text);
    if (condition.gain_reached < gain.count)
      out += cat("<small>reached in ", condition.gain_reached, " of ", gain.count, "</small>");
    return out;
  }

  const Summary& summary_;
  const std::vector<Record>& records_;
  const size_t workload_;
  const Objective& objective_;
  const std::vector<std::string> varying_;
};

}  // namespace

std::string duration(double seconds) {
  if (seconds < 10) return format_text("%.3g", seconds) + "\u00a0s";
  if (seconds < 300) return number_text(seconds, 1) + "\u00a0s";
  if (seconds < 3 * 3600) return number_text(seconds / 60, 1) + "\u00a0min";
  return number_text(seconds / 3600, 1) + "\u00a0h";
}

std::string clock_value(size_t clock, double value) {
  if (std::isnan(value)) return kDash;
  if (std::isinf(value)) return "not reached";
  return clock == 3 ? duration(value) : number_text(value);
}

std::string gain_text(double gain) {
  return std::isinf(gain) ? "∞" : number_text(gain, 2) + "\u00a0×";
}

std::string outcomes(const std::array<size_t, kStatusCount>& counts) {
  std::string out;
  for (size_t i = 0; i < kStatusCount; ++i)
    if (counts[i] > 0)
      out += cat(out.empty() ? "" : ", ", number_text(static_cast<double>(counts[i])), "\u00a0",
                 status_name(static_cast<Status>(i)));
  return out;
}

std::string full_name(const Summary& summary, const ConditionResult& condition) {
  std::string name = short_name(condition.labels, varying_labels(summary, condition.workload));
  if (name.empty()) name = condition.name.empty() ? "all trials" : condition.name;
  if (summary.objectives.size() == 1) return name;
  return summary.objectives[condition.workload].workload + ": " + name;
}

std::string condition_table(const Summary& summary, const std::vector<Record>& records,
                            size_t workload) {
  const size_t conditions = conditions_of_workload(summary, workload).size();
  return cat("<details", conditions <= kMostOpen ? " open=''" : "", "><summary>Results of ",
             counted(static_cast<int64_t>(conditions), "condition"), "</summary>",
             ConditionTable(summary, records, workload).html(), "</details>");
}

std::string scaling_table(const Summary& summary, size_t workload) {
  std::string rows;
  for (const ScalingResult& scaling : summary.scaling) {
    if (scaling.workload != workload) continue;
    const std::string name = short_name(scaling.labels, varying_labels(summary, workload));
    const auto size = [](const std::optional<double>& value) {
      return value ? number_text(*value) : std::string(kDash);
    };
    rows += cat("<tr role='row'><th scope='row' role='rowheader'>",
                escape_markup(name.empty() ? "all" : name), "</th>",
                cell("Batch sizes",
                     cat(size(scaling.batches.front()), " – ", size(scaling.batches.back()))),
                cell("Perfect scaling up to", size(scaling.perfect_until)),
                cell("Largest useful batch", size(scaling.largest_useful)),
                cell("Critical batch", scaling.critical_batch ? two_digits(*scaling.critical_batch)
                                                              : std::string(kDash)),
                cell("Noise scale", spread_cell(scaling.noise_scale, two_digits)), "</tr>");
  }
  if (rows.empty()) return "";
  return cat("<table role='table'><caption>Where scaling ends</caption><thead><tr role='row'>",
             head_cell("Scaling with the batch"), head_cell("Batch sizes"),
             head_cell("Perfect scaling up to"), head_cell("Largest useful batch"),
             head_cell("Critical batch"), head_cell("Noise scale"), "</tr></thead><tbody>", rows,
             "</tbody></table>");
}

}  // namespace etr::study
