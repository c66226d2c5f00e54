#include "plot/svg.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/markup.h"
#include "plot/dodge.h"
#include "plot/legend.h"
#include "plot/panel.h"
#include "plot/style.h"
#include "plot/text.h"

namespace etr::plot {
namespace {

// About the width of a phone's screen, half a printed page, and a third of a desktop's, so texts
// keep their size.
constexpr double kWidth = 344, kDodge = 5;
constexpr size_t kMostInRow = 3;

// A file needs the namespace, and a page does not.
constexpr const char *kInFile = "<svg xmlns='http://www.w3.org/2000/svg'", *kInPage = "<svg";

std::string opened(const char* element, const std::string& attributes, double width,
                   double height) {
  return cat(element, " class='plot' role='img' viewBox='0 0 ", coordinate(width), " ",
             coordinate(height), "' ", attributes, ">");
}

std::string titled(const std::string& id, const std::string& title, const std::string& text) {
  return cat("<title id='", id, "-t'>", markup_of(title), "</title><desc id='", id, "-d'>",
             escape_markup(text), "</desc>");
}

std::string labelled(const std::string& id) {
  return cat("aria-labelledby='", id, "-t ", id, "-d'");
}

// Measures that all panels of a figure share, so that their frames line up.
struct Measures {
  Margins margins;
  double frame_width = 0, frame_height = 0, never = 0;
};

Measures measures_of(const std::vector<Panel>& panels) {
  Measures out;
  double above = 0;
  for (const Panel& panel : panels) {
    out.frame_height = std::max(out.frame_height, frame_height_of(panel));
    if (has_never(panel)) out.never = never_room(panel);
    if (out.never > 0 && panel.y.scale != Scale::category) above = out.never;
  }
  out.frame_height += above;
  for (const Panel& panel : panels) {
    const Margins one = margins_of(panel, out.frame_height, out.never);
    out.margins.left = std::max(out.margins.left, one.left);
    out.margins.right = std::max(out.margins.right, one.right);
    out.margins.top = std::max(out.margins.top, one.top);
    out.margins.bottom = std::max(out.margins.bottom, one.bottom);
  }
  out.frame_width = kWidth - out.margins.left - out.margins.right;
  double title = 0;
  for (const Panel& panel : panels)
    title = std::max(title, title_height_of(panel, out.frame_width));
  out.margins.top += title;
  return out;
}

PanelPlace place_at(double x, double y, const Measures& measures, const Figure& figure,
                    size_t index) {
  PanelPlace out;
  out.frame = {x + measures.margins.left, y + measures.margins.top, measures.frame_width,
               measures.frame_height};
  out.left_edge = x;
  out.clip_id = cat(figure.id, "-c", index);
  out.dodge = figure.dodge ? kDodge : 0;
  out.stays = figure.dodge && markers_stay(figure);
  out.never = measures.never;
  return out;
}

std::string page_panel(const Figure& figure, const Measures& measures, size_t index) {
  const std::string id = cat(figure.id, "-", index);
  const std::string name = panel_name(figure, index);
  const std::string title = name.empty() ? figure.title : cat(figure.title, ": ", name);
  const double height = measures.margins.top + measures.frame_height + measures.margins.bottom;
  return opened(kInPage, labelled(id), kWidth, height) +
         titled(id, title, index == 0 ? figure.description : title) +

         draw_panel(figure.panels[index], place_at(0, 0, measures, figure, index)) + "</svg>";
}

}  // namespace

std::string html_figure(const Figure& given) {
  const Figure figure = with_fitted_axes(given);
  std::string out = "<div class='plot'><ul class='legend' aria-hidden='true'>";
  for (const LegendEntry& entry : legend_of(figure))
    out += cat("<li><svg class='plot swatch' viewBox='-1 -1 28 14' aria-hidden='true'>",
               entry.swatch, "</svg>", markup_of(entry.name), "</li>");
  const size_t count = figure.panels.size();
  out += cat("</ul><div class='panels", count == 2 || count == 4 ? " even" : "", "'>");
  const Measures measures = measures_of(figure.panels);
  for (size_t i = 0; i < figure.panels.size(); ++i) out += page_panel(figure, measures, i);
  return out + "</div></div>";
}

std::string svg_file(const Figure& given) {
  const Figure figure = with_fitted_axes(given);
  const Measures measures = measures_of(figure.panels);
  const size_t count = figure.panels.size();
  const size_t columns = count == 4 ? 2 : std::clamp<size_t>(count, 1, kMostInRow);
  const size_t rows = (count + columns - 1) / columns;
  // Panels that share their y axis show its texts in the first column only.
  const double next = figure.share_y ? measures.frame_width + 26 : kWidth;
  const double width = kWidth + next * static_cast<double>(columns - 1);
  const double height = measures.margins.top + measures.frame_height + measures.margins.bottom;
  double top = 0;
  const std::string legend = drawn_legend(legend_of(figure), 10, width - 20, top);
  std::string panels;
  for (size_t i = 0; i < count; ++i) {
    const size_t column = i % columns;
    PanelPlace place =
        place_at(next * static_cast<double>(column),
                 top + height * static_cast<double>(i / columns), measures, figure, i);
    place.y_texts = column == 0 || !figure.share_y;
    place.x_label = !figure.share_x || i + columns >= count;
    panels += draw_panel(figure.panels[i], place);
  }
  const double all = top + height * static_cast<double>(rows);
  return cat("<?xml version='1.0' encoding='UTF-8'?>\n",
             opened(kInFile,
                    cat(labelled(figure.id), " width='", coordinate(width), "' height='",
                        coordinate(all), "' font-family='Helvetica,Arial,sans-serif'"),
                    width, all),
             titled(figure.id, figure.title, figure.description), "<style>", plot_rules(false),
             "</style><rect width='100%' height='100%' fill='#fff'/>", legend, panels, "</svg>\n");
}

std::string page_style() {
  return plot_variables() + plot_rules(true) +
         ".plot .legend{display:flex;flex-wrap:wrap;gap:2px 18px;margin:0 0 "
         "6px;padding:0;list-style:"
         "none;font-size:13px;color:var(--p-text)}.plot .legend li{overflow-wrap:anywhere}"
         ".plot .swatch{width:28px;height:14px;margin-right:7px;vertical-align:-2px}"
         ".plot .panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),"
         "1fr));gap:16px}.plot .even{max-width:900px}.plot "
         ".panels>svg{width:100%;max-width:440px;height:auto;display:block;"
         "font-family:inherit}";
}

std::string html_swatch(const Series& series) {
  return cat("<svg class='plot swatch' viewBox='-1 -1 28 14' aria-hidden='true'>",
             swatch_of(series), "</svg>");
}

}  // namespace etr::plot
