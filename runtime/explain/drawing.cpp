#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/format_text.h"
#include "core/json.h"
#include "explain/explain.h"
#include "plot/shapes.h"
#include "plot/text.h"

namespace etr::explain {
namespace {

constexpr int kBoxWidth = 168, kBoxHeight = 74, kGap = 44, kRowGap = 40, kMargin = 24, kTop = 74;
constexpr int kColumns = 5;
constexpr int kGauge = 30;    // width of a queue's gauge
constexpr int kPadding = 10;  // between a box and its texts
constexpr double kTitleSize = 17, kWhySize = 13, kNameSize = 13.5, kSmallNameSize = 12;
constexpr const char *kStrong = "font-weight='600' fill='#1d1d1f'", *kQuiet = "fill='#55555a'";
constexpr double kBold = 1.1;  // width of bold letters relative to others

std::string rate_text(double rate) {
  if (rate >= 1e9) return "no measurable work";
  if (rate >= 1e6) return format_text("%.1f M/s alone", rate * 1e-6);
  if (rate >= 1e4) return format_text("%.0f k/s alone", rate * 1e-3);
  return format_text("%.*f/s alone", rate < 100 ? 1 : 0, rate);
}

// From green over amber to red: hue 150 to 8. As red, green and blue, because some programs that
// show SVG do not know hsl().
std::string color_of(double load) {
  const double share = std::clamp(load, 0.0, 1.0);
  const double hue = 150 - 142 * share * share, light = 0.44 + 0.06 * share;
  const auto channel = [&](double offset) {  // CSS Color Module, 7.1
    const double k = std::fmod(offset + hue / 30, 12), most = 0.62 * std::min(light, 1 - light);
    return static_cast<unsigned>(
        255 * (light - most * std::clamp(std::min(k - 3, 9 - k), -1.0, 1.0)) + 0.5);
  };
  return format_text("#%02x%02x%02x", channel(0), channel(8), channel(4));
}

class Drawing {
 public:
  explicit Drawing(const Json& explained) : e_(explained) {}

  std::string text() {
    const size_t boxes = e_["stages"].size() + 1;
    const int rows = static_cast<int>((boxes + kColumns - 1) / kColumns);
    const int columns = static_cast<int>(std::min<size_t>(boxes, kColumns));
    const int boxes_width = columns * kBoxWidth + (columns - 1) * kGap;
    const int width = 2 * kMargin + std::max(boxes_width, heading_width());
    const int height = kTop + rows * kBoxHeight + (rows - 1) * kRowGap + kMargin;
    out_ += format_text(
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' "
        "font-family='system-ui, sans-serif'>\n<rect width='100%%' height='100%%' "
        "fill='#ffffff'/>\n",
        width, height, width, height);
    heading();
    for (size_t i = 0; i < boxes; ++i) {
      if (i > 0) arrow(i - 1, i);
      box(i);
    }
    return out_ + "</svg>\n";
  }

 private:
  static int x_of(size_t i) {
    return kMargin + static_cast<int>(i % kColumns) * (kBoxWidth + kGap);
  }
  static int y_of(size_t i) {
    return kTop + static_cast<int>(i / kColumns) * (kBoxHeight + kRowGap);
  }

  std::string title() const {
    return format_text("%.0f samples/s; the consumer waits %.0f %% of its time",
                       e_["samples_per_s"].get<double>(),
                       100 * e_["consumer"]["waiting_share"].get<double>());
  }
  std::string why() const { return e_["bottleneck"]["why"]; }

  int heading_width() const {
    return static_cast<int>(std::ceil(std::max(kBold * plot::text_width(title(), kTitleSize),
                                               plot::text_width(why(), kWhySize))));
  }

  void add(const std::string& shape) { out_ += shape + "\n"; }
  void text_at(double size, const char* look, plot::Spot at, const std::string& text) {
    add(plot::drawn_text(format_text("font-size='%g' %s", size, look), at, text));
  }

  void heading() {
    text_at(kTitleSize, kStrong, {kMargin, 30}, title());
    text_at(kWhySize, kQuiet, {kMargin, 52}, why());
  }

  void box(size_t i) {
    const bool consumer = i == e_["stages"].size();
    const Json& row = consumer ? e_["consumer"] : e_["stages"][i];
    const std::string name = consumer ? "consumer" : row["name"].get<std::string>();
    const double room = (kBoxWidth - 2 * kPadding) / kBold;
    const double size = plot::text_width(name, kNameSize) > room ? kSmallNameSize : kNameSize;
    const double load =
        consumer ? 1 - row["waiting_share"].get<double>() : row["load"].get<double>();
    const bool slowest = e_["bottleneck"]["stage"] == name;
    const double x = x_of(i), y = y_of(i), left = x + kPadding, full = kBoxWidth - 62;
    add(plot::drawn_box(slowest ? "rx='8' fill='#fafafa' stroke='#b3261e' stroke-width='2.5'"
                                : "rx='8' fill='#fafafa' stroke='#c9c9cf' stroke-width='1'",
                        {x, y, kBoxWidth, kBoxHeight}));
    text_at(size, kStrong, {left, y + 22}, plot::shortened(name, room, size));
    text_at(11.5, kQuiet, {left, y + 40}, rate_text(row["samples_per_s_alone"]));
    add(plot::drawn_box("rx='4' fill='#e6e6ea'", {left, y + 53, full, 8}));
    add(plot::drawn_box(cat("rx='4' fill='", color_of(load), "'"),
                        {left, y + 53, std::max(4.0, full * std::clamp(load, 0.0, 1.0)), 8}));
    text_at(11, "text-anchor='end' fill='#1d1d1f'", {x + kBoxWidth - kPadding, y + 61},
            format_text("%.0f %%", 100 * load));
  }

  // Draws an arrow, with the fill level of the queue between two segments, if there is one.
  void arrow(size_t from, size_t to) {
    const int y = y_of(from) + kBoxHeight / 2;
    const int x1 = x_of(from) + kBoxWidth + 4;
    int gauge_x = x1 + 2, gauge_y = y + 10;  // below the arrow
    std::string path = format_text("M%d %d H%d m-6 -4 l6 4 l-6 4", x1, y, x_of(to) - 4);
    if (y_of(from) != y_of(to)) {
      const int turn = y_of(to) - kRowGap / 2, x2 = x_of(to) + kBoxWidth / 2;
      path = format_text("M%d %d h12 V%d H%d V%d m-4 -6 l4 6 l4 -6", x1, y, turn, x2, y_of(to) - 4);
      gauge_x = (x1 + x2 - kGauge) / 2;
      gauge_y = turn + 7;
    }
    add(plot::drawn_path("fill='none' stroke='#8e8e93' stroke-width='1.5'", path));
    const Json& row = e_["stages"][from];
    if (!row.contains("queue_limit_items")) return;
    const double fill = row["queue_items"].get<double>() / row["queue_limit_items"].get<double>();
    plot::Box gauge{static_cast<double>(gauge_x), static_cast<double>(gauge_y), kGauge, 6};
    add(plot::drawn_box("rx='3' fill='#e6e6ea'", gauge,
                        format_text("<title>queue: %.0f %% full</title>", 100 * fill)));
    gauge.width *= std::clamp(fill, 0.0, 1.0);
    add(plot::drawn_box("rx='3' fill='#6e6e73'", gauge));
  }

  const Json& e_;
  std::string out_;
};

}  // namespace

std::string to_svg(const Json& explained) { return Drawing(explained).text(); }

}  // namespace etr::explain
