// Figures as SVG and HTML: well-formed, complete and readable.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 with the address sanitizer reports parts of std::regex as uninitialized.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "plot/svg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>

#include "core/error.h"
#include "plot/panel.h"
#include "plot/text.h"
#include "support/xml.h"

namespace etr {
namespace {

using plot::Figure;
using plot::Mark;
using plot::Panel;
using plot::Scale;
using plot::Series;
using test::xml_problem;

constexpr double kEndless = std::numeric_limits<double>::infinity();

// Returns two panels with everything that a figure can have.
Figure rich_figure() {
  Figure out;
  out.id = "rich";
  out.title = "Title & <more>";
  out.description = "\"quoted\" 'words'";
  for (int i = 0; i < 2; ++i) {
    Panel panel{cat("panel ", i)};
    panel.x = {"batch size", Scale::log2};
    panel.y = {"steps", Scale::log10};
    for (int s = 0; s < 10; ++s) {
      Series series{cat("series <", s, "> & \x01\xff"), s};
      for (double x = 16; x <= 1024; x *= 2)
        series.points.push_back({x, 90000 / x * (1 + s), 80000 / x * (1 + s), 99000 / x * (1 + s)});
      series.points.push_back({2048, kEndless, 100.0 + s, kEndless});
      series.points.push_back({4096, plot::kNone});
      panel.series.push_back(series);
    }
    panel.references.push_back({"ideal", {{16, 5000}, {1024, 78}}});
    panel.references.push_back({"other", {{16, 5000}, {1024, 400}}, true});
    panel.ranges.push_back({"range", 100, 200});
    panel.ranges.push_back({"across", 32, 64, true});
    panel.notes.push_back({64, 1400, "a note < here", 1});
    panel.notes.push_back({64, 1400, "another note", 2});
    out.panels.push_back(panel);
  }
  out.share_x = out.share_y = out.dodge = true;
  return out;
}

Figure simple_figure(Mark mark, Scale x, Scale y) {
  Figure out;
  out.id = "simple";
  Panel panel;
  panel.x = {"x", x};
  panel.y = {"y", y};
  if (x == Scale::category) panel.x.categories = {"one", "two", "three"};
  if (y == Scale::category) panel.y.categories = {"one", "two", "three"};
  Series series{"s", 1, mark};
  for (int i = 0; i < 3; ++i)
    series.points.push_back(
        {x == Scale::category ? i : i + 1.0, y == Scale::category ? i : i + 2.0});
  panel.series.push_back(series);
  out.panels.push_back(panel);
  return out;
}

size_t count_in(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

// A text in the drawing of a panel, with its left end and its baseline.
struct Placed {
  double x, y, width;
  std::string text;
};
std::vector<Placed> texts_of(const std::string& svg) {
  static const std::regex pattern(
      "<text class='([^']*)' text-anchor='([a-z]+)' x='([-0-9.]+)' y='([-0-9.]+)'>([^<]*)</text>");
  std::vector<Placed> out;
  for (std::sregex_iterator i(svg.begin(), svg.end(), pattern), end; i != end; ++i) {
    if ((*i)[1] == "halo") continue;  // lies under a note
    const std::string text = (*i)[5];
    const double width = plot::text_width(text, 11);
    double x = std::stod((*i)[3]);
    if ((*i)[2] == "middle") x -= width / 2;
    if ((*i)[2] == "end") x -= width;
    out.push_back({x, std::stod((*i)[4]), width, text});
  }
  return out;
}

void expect_no_overlaps(const std::string& svg) {
  const std::vector<Placed> texts = texts_of(svg);
  ASSERT_GT(texts.size(), 4u);
  for (size_t i = 0; i < texts.size(); ++i)
    for (size_t k = i + 1; k < texts.size(); ++k) {
      const Placed &a = texts[i], &b = texts[k];
      const bool apart = a.x + a.width <= b.x || b.x + b.width <= a.x || std::abs(a.y - b.y) >= 11;
      EXPECT_TRUE(apart) << "'" << a.text << "' and '" << b.text << "'";
    }
}

TEST(Plot, FilesAndPagesAreWellFormed) {
  EXPECT_EQ(xml_problem(plot::svg_file(rich_figure())), "");
  EXPECT_EQ(xml_problem(plot::html_figure(rich_figure())), "");
  for (const Mark mark : {Mark::line, Mark::points, Mark::bars, Mark::ticks})
    for (const Scale x : {Scale::linear, Scale::log2, Scale::log10, Scale::category})
      for (const Scale y : {Scale::linear, Scale::log2, Scale::log10, Scale::category}) {
        const std::string svg = plot::svg_file(simple_figure(mark, x, y));
        EXPECT_EQ(xml_problem(svg), "");
        EXPECT_EQ(svg.find("nan"), std::string::npos);
        EXPECT_EQ(svg.find("inf"), std::string::npos);
      }
}

TEST(Plot, TheCheckerFindsWhatIsWrong) {
  EXPECT_EQ(xml_problem("<a b='c'><d/>text &amp; more</a>"), "");
  for (const char* bad : {"<a>", "<a></b>", "<a b='1' b='2'/>", "<a>&nbsp;</a>", "<a b=c/>",
                          "<a/><b/>", "<a>\x01</a>", "<a b='<'/>"})
    EXPECT_NE(xml_problem(bad), "") << bad;
}

TEST(Plot, NothingToShowIsAnEmptyFrame) {
  Figure none;
  none.id = "none";
  EXPECT_EQ(xml_problem(plot::svg_file(none)), "");
  for (const Scale scale : {Scale::linear, Scale::log2, Scale::log10, Scale::category}) {
    Figure empty = simple_figure(Mark::line, scale, scale);
    empty.panels[0].series[0].points.clear();
    empty.panels[0].x.categories.clear();
    empty.panels[0].y.categories.clear();
    EXPECT_EQ(xml_problem(plot::svg_file(empty)), "");
    Figure bad = simple_figure(Mark::line, scale, scale);
    for (plot::Point& point : bad.panels[0].series[0].points)
      point = {plot::kNone, -kEndless, 0, -1};
    const std::string svg = plot::svg_file(bad);
    EXPECT_EQ(xml_problem(svg), "");
    EXPECT_EQ(svg.find("nan"), std::string::npos);
  }
}

TEST(Plot, ExtremeNumbersStayReadable) {
  for (const double size : {1e-300, 1e-12, 1.0, 1e12, 1e300}) {
    Figure figure = simple_figure(Mark::line, Scale::linear, Scale::log10);
    for (plot::Point& point : figure.panels[0].series[0].points) point.x *= size, point.y *= size;
    const std::string svg = plot::svg_file(figure);
    EXPECT_EQ(xml_problem(svg), "");
    EXPECT_LT(svg.size(), 60000u) << size;
    expect_no_overlaps(svg);
    EXPECT_EQ(xml_problem(plot::html_figure(figure)), "");  // with a text for each point
  }
}

TEST(Plot, NumbersFarApartAreDrawnInFiniteTime) {
  for (const Scale scale : {Scale::linear, Scale::log2, Scale::log10})
    for (const auto& [low, high] :
         {std::pair(1e-300, 1e300), {-1.7e308, 1.7e308}, {5e-324, 1.7e308}, {1e-310, 1.0}}) {
      Figure figure = simple_figure(Mark::line, scale, scale);
      figure.panels[0].notes.push_back({low, low, "a note"});
      for (plot::Series& series : figure.panels[0].series)
        series.points = {{low, low, low, high}, {high, high, low, high}};
      const std::string svg = plot::svg_file(figure);
      EXPECT_EQ(xml_problem(svg), "") << low;
      EXPECT_EQ(svg.find("nan"), std::string::npos) << low;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << low;
    }
}

TEST(Plot, NumbersThatHardlyDifferAreDrawnInFiniteTime) {
  for (const Scale scale : {Scale::linear, Scale::log2, Scale::log10})
    for (const double size : {0.8, -0.8, 3e-300, 2e300, 1e16}) {
      const double next = std::nextafter(size, 2 * size);
      Figure figure = simple_figure(Mark::line, scale, scale);
      figure.panels[0].series[0].points = {{size, size}, {next, next}};
      EXPECT_EQ(xml_problem(plot::svg_file(figure)), "") << size;
      if (scale != Scale::linear && size < 0) continue;
      figure.panels[0].y.from = size;
      figure.panels[0].y.to = next;
      const std::string svg = plot::svg_file(figure);
      EXPECT_EQ(xml_problem(svg), "") << size;
      EXPECT_LT(svg.size(), 60000u) << size;
    }
}

TEST(Plot, EveryPointIsDrawnAndInTheTable) {
  const Figure figure = rich_figure();
  const std::string svg = plot::svg_file(figure), csv = plot::csv(figure);
  size_t points = 0, drawn = 0;
  for (const Panel& panel : figure.panels)
    for (const Series& series : panel.series)
      for (const plot::Point& point : series.points) {
        ++points;
        drawn += std::isnan(point.y) ? 0 : 1;
      }
  EXPECT_EQ(count_in(csv, "\n"), points + 1);
  // Each point that is drawn has a group with a tooltip.
  EXPECT_EQ(count_in(svg, "</title></g>"), drawn);
  EXPECT_NE(csv.find("panel 0,series <0> & \x01\xff,16,5625,5000,6187.5\n"), std::string::npos);
  EXPECT_NE(csv.find(",2048,inf,100,inf\n"), std::string::npos);
}

TEST(Plot, TextsDoNotOverlap) {
  Figure figure = rich_figure();
  figure.panels.resize(1);
  figure.panels[0].series.resize(2);
  expect_no_overlaps(plot::svg_file(figure));
  Figure names = simple_figure(Mark::bars, Scale::category, Scale::linear);
  names.panels[0].x.categories = {"before augmentation", "after augmentation", "batch, unshuffled"};
  expect_no_overlaps(plot::svg_file(names));
  Figure rows = simple_figure(Mark::points, Scale::linear, Scale::category);
  rows.panels[0].y.categories.assign(
      40, "a name that is far too long for the room that it has got there");
  expect_no_overlaps(plot::svg_file(rows));
}

TEST(Plot, NotesAvoidEachOtherAndData) {
  plot::NotePlaces places({0, 0, 300, 200});
  places.avoid_line({0, 100}, {300, 100});
  std::vector<plot::Box> boxes;
  for (int i = 0; i < 5; ++i) boxes.push_back(places.place({150, 100}, "a note of some length"));
  for (size_t i = 0; i < boxes.size(); ++i) {
    EXPECT_TRUE(boxes[i].y >= 100 || boxes[i].y + boxes[i].height <= 100) << "it crosses the line";
    for (size_t k = i + 1; k < boxes.size(); ++k)
      EXPECT_TRUE(
          boxes[i].x + boxes[i].width <= boxes[k].x || boxes[k].x + boxes[k].width <= boxes[i].x ||
          boxes[i].y + boxes[i].height <= boxes[k].y || boxes[k].y + boxes[k].height <= boxes[i].y);
  }
}

TEST(Plot, FilesHaveColoursOfTheirOwnAndPagesVariables) {
  EXPECT_EQ(plot::svg_file(rich_figure()).find("var(--"), std::string::npos);
  EXPECT_NE(plot::page_style().find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(plot::html_figure(rich_figure()).find("style="), std::string::npos);
}

TEST(Plot, NoTextIsBelow11Pixels) {
  const std::string svg = plot::svg_file(rich_figure()) + plot::page_style();
  static const std::regex size("font-size:([0-9.]+)px");
  size_t sizes = 0;
  for (std::sregex_iterator i(svg.begin(), svg.end(), size), end; i != end; ++i, ++sizes)
    EXPECT_GE(std::stod((*i)[1]), 11);
  EXPECT_GT(sizes, 2u);
}

// Returns the relative luminance by the formula of WCAG 2.
double luminance(const std::string& colour) {
  double out = 0;
  const double weights[] = {0.2126, 0.7152, 0.0722};
  for (size_t i = 0; i < 3; ++i) {
    const double share = std::stoi(colour.substr(2 * i, 2), nullptr, 16) / 255.0;
    out += weights[i] * (share <= 0.04045 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4));
  }
  return out;
}

TEST(Plot, ColoursContrastWithTheBackground) {
  const std::string css = plot::page_style();
  const size_t dark = css.find("prefers-color-scheme:dark"), print = css.find("@media print");
  for (const std::string& part : {css.substr(0, dark), css.substr(dark, print - dark)}) {
    const auto colour = [&](const std::string& name) {
      return part.substr(part.find("--" + name + ":#") + name.size() + 4, 6);
    };
    const auto contrast = [&](const std::string& name) {
      const double a = luminance(colour(name)), b = luminance(colour("p-page"));
      return (std::max(a, b) + 0.05) / (std::min(a, b) + 0.05);
    };
    for (int i = 0; i < plot::kStyles; ++i) EXPECT_GE(contrast(cat("p", i)), 3.0) << i;
    EXPECT_GE(contrast("p-text"), 4.5);
    EXPECT_GE(contrast("p-quiet"), 4.5);
  }
}

TEST(Plot, SeriesDifferWithoutColours) {
  std::set<std::string> looks;
  for (int style = 0; style < 3 * plot::kStyles; ++style) {
    std::string look = plot::html_swatch({"", style});
    looks.insert(look);
  }
  EXPECT_EQ(looks.size(), 3u * plot::kStyles);
  std::set<std::string> shapes;
  const std::regex path("<(circle|path) class='mark'[^>]*>");
  for (int style = 0; style < plot::kStyles; ++style) {
    const std::string swatch = plot::html_swatch({"", style, Mark::points});
    std::smatch found;
    ASSERT_TRUE(std::regex_search(swatch, found, path));
    shapes.insert(found.str());
  }
  EXPECT_EQ(shapes.size(), size_t{plot::kStyles});
}

TEST(Plot, OneLegendNamesEachSeriesOnce) {
  Figure figure = rich_figure();
  const std::string html = plot::html_figure(figure);
  EXPECT_EQ(count_in(html, "<li>"), 10u + 2 + 2);
  EXPECT_EQ(count_in(html, "role='img'"), 2u);
  figure = simple_figure(Mark::line, Scale::linear, Scale::linear);
  EXPECT_EQ(count_in(plot::html_figure(figure), "<li>"), 0u);
  figure.panels[0].references.push_back({"baseline", {{1, 2}, {3, 2}}});
  EXPECT_EQ(count_in(plot::html_figure(figure), "<li>"), 2u);
  figure.panels[0].series[0].name.clear();
  EXPECT_EQ(count_in(plot::html_figure(figure), "<li>"), 1u) << "the line needs its name";
}

}  // namespace
}  // namespace etr
