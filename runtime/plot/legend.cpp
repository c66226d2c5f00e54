#include "plot/legend.h"

#include <algorithm>

#include "core/error.h"
#include "core/markup.h"
#include "plot/marks.h"
#include "plot/text.h"

namespace etr::plot {
namespace {

constexpr double kRow = 19, kSwatch = 26, kGap = 7, kBetween = 20;

void add(std::vector<LegendEntry>& entries, const std::string& name, const std::string& swatch) {
  const bool known = std::any_of(entries.begin(), entries.end(),
                                 [&](const LegendEntry& entry) { return entry.name == name; });
  if (!known && !name.empty()) entries.push_back({name, swatch});
}

}  // namespace

std::string swatch_of(const Series& series) {
  std::string drawn;
  if (series.mark == Mark::line) drawn = "<path class='line' d='M0 6L26 6'/>";
  if (series.mark == Mark::bars)
    drawn = cat("<rect class='bar' x='4' y='0' width='18' height='12'/><g class='tag'>",
                marker(series, {13, 6}), "</g>");
  else if (series.mark == Mark::ticks)
    drawn = "<line class='stroke' x1='13' y1='0' x2='13' y2='12'/>";
  else
    drawn += marker(series, {13, 6});
  return cat("<g class='", style_class(series), "'>", drawn, "</g>");
}

std::vector<LegendEntry> legend_of(const Figure& figure) {
  std::vector<LegendEntry> out;
  for (const Panel& panel : figure.panels)
    for (const Series& series : panel.series) add(out, series.name, swatch_of(series));
  const size_t series = out.size();
  for (const Panel& panel : figure.panels)
    for (const Reference& reference : panel.references)
      add(out, reference.name,
          cat("<path class='reference", reference.dots ? " dots" : "", "' d='M0 6L26 6'/>"));
  for (const Panel& panel : figure.panels)
    for (const Range& range : panel.ranges)
      add(out, range.name, "<rect class='range' x='0' y='0' width='26' height='12'/>");
  if (series == 1 && out.size() == 1) out.clear();
  return out;
}

std::string drawn_legend(const std::vector<LegendEntry>& entries, double left, double width,
                         double& height) {
  std::string out;
  double x = left, y = 4;
  for (const LegendEntry& entry : entries) {
    const std::string name = shortened(entry.name, width - kSwatch - kGap);
    const double needed = kSwatch + kGap + text_width(name);
    if (x > left && x + needed > left + width) x = left, y += kRow;
    out += cat("<g transform='translate(", coordinate(x), " ", coordinate(y), ")'>", entry.swatch,
               "<text class='label' x='", kSwatch + kGap, "' y='10'>", escape_markup(name),
               "</text></g>");
    x += needed + kBetween;
  }
  height = entries.empty() ? 0 : y + kRow + 2;
  return out;
}

}  // namespace etr::plot
