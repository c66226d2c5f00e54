// Where points and whiskers are drawn.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 with the address sanitizer reports parts of std::regex as uninitialized.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>

#include "core/error.h"
#include "plot/svg.h"

namespace etr {
namespace {

using plot::Figure;
using plot::kNone;
using plot::Mark;
using plot::Scale;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Returns a figure with one panel, whose series have round markers at these points.
Figure figure_of(const std::vector<std::vector<plot::Point>>& series, Scale x = Scale::log2,
                 Scale y = Scale::log10) {
  Figure out;
  out.id = "points";
  plot::Panel panel;
  panel.x = {"x", x};
  panel.y = {"y", y};
  for (plot::Axis* axis : {&panel.x, &panel.y})
    if (axis->scale == Scale::category) axis->categories = {"one", "two", "three"};
  for (size_t i = 0; i < series.size(); ++i) {
    panel.series.push_back({cat("s", i), static_cast<int>(i), Mark::line, series[i]});
    panel.series.back().shape = 0;
  }
  out.panels.push_back(panel);
  out.dodge = true;
  return out;
}

std::vector<std::vector<double>> found(const std::string& svg, const char* pattern) {
  const std::regex regex(pattern);
  std::vector<std::vector<double>> out;
  for (std::sregex_iterator i(svg.begin(), svg.end(), regex), end; i != end; ++i) {
    out.emplace_back();
    for (size_t group = 1; group < i->size(); ++group) out.back().push_back(std::stod((*i)[group]));
  }
  return out;
}

std::vector<std::vector<double>> circles(const std::string& svg) {
  return found(svg, "<circle class='mark' cx='([-0-9.]+)' cy='([-0-9.]+)' r='([0-9.]+)'");
}

// Returns x, the low end and the high end of each vertical whisker.
std::vector<std::vector<double>> whiskers(const std::string& svg) {
  return found(svg, "<path class='whisker' d='M([-0-9.]+) ([-0-9.]+)L[-0-9.]+ ([-0-9.]+)");
}

double tick_x(const std::string& svg, const std::string& text) {
  const auto at = found(
      svg, ("class='tick' text-anchor='middle' x='([-0-9.]+)' y='[-0-9.]+'>" + text + "<").c_str());
  return at.empty() ? kNone : at[0][0];
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

// Returns the number of the panel's markers at x.
size_t markers_at(const std::string& svg, double x) {
  size_t out = 0;
  for (const auto& circle : circles(svg))
    out += circle[1] > 40 && std::abs(circle[0] - x) < 0.2 ? 1 : 0;  // below the legend
  return out;
}

// If markers moved sideways, a point above a falling curve could seem to lie on it.
TEST(Points, MarkersStayWhereCurvesAreComparedWithThem) {
  Figure figure =
      figure_of({{{2, 100, 90, 110}, {4, 50, 40, 60}}, {{2, 300, 250, 350}}, {{2, 900, 800, 990}}});
  figure.panels[0].references.push_back({"level", {{2, 100}, {4, 100}}});
  std::string svg = plot::svg_file(figure);
  EXPECT_LT(markers_at(svg, tick_x(svg, "2")), 3u) << "no reference depends on x";
  EXPECT_EQ(markers_at(svg, tick_x(svg, "4")), 1u);
  EXPECT_EQ(count_of(svg, "<line class='whisker'"), 0u) << "each whisker is at its marker";
  figure.panels[0].references.push_back({"ideal", {{2, 100}, {4, 50}}});
  svg = plot::svg_file(figure);
  EXPECT_EQ(markers_at(svg, tick_x(svg, "2")), 3u);
  EXPECT_EQ(markers_at(svg, tick_x(svg, "4")), 1u);
  std::set<double> places;
  for (const auto& whisker : whiskers(svg)) places.insert(whisker[0]);
  EXPECT_EQ(places.size(), 4u);
  EXPECT_TRUE(std::any_of(places.begin(), places.end(), [&](double x) {
    return std::abs(x - tick_x(svg, "4")) < 0.2;
  })) << "a single whisker stays at its marker";
  // A short stroke connects a marker with a whisker that was moved.
  EXPECT_EQ(count_of(svg, "<line class='whisker'"), 2u);
}

TEST(Points, MarkersWithoutWhiskersStay) {
  const std::string svg = plot::svg_file(figure_of({{{2, 100, 100, 100}}, {{2, 300}}}));
  EXPECT_EQ(markers_at(svg, tick_x(svg, "2")), 2u);
}

TEST(Points, MarkersMoveAlongCategories) {
  const std::string svg = plot::svg_file(
      figure_of({{{0, 100, 90, 110}}, {{0, 100, 90, 110}}}, Scale::category, Scale::linear));
  std::set<double> places;
  for (const auto& circle : circles(svg))
    if (circle[1] > 40) places.insert(circle[0]);
  EXPECT_EQ(places.size(), 2u);
  EXPECT_EQ(count_of(svg, "class='ring'"), 0u);
}

TEST(Points, MarkersThatMeetAreNested) {
  const std::string svg = plot::svg_file(figure_of({{{2, 100}}, {{2, 100}}, {{2, 100.1}}}));
  EXPECT_EQ(count_of(svg, "class='ring'"), 2u);
  std::set<double> sizes;
  for (const auto& circle : circles(svg))
    if (circle[1] > 40) sizes.insert(circle[2]);
  EXPECT_EQ(sizes.size(), 3u);
  EXPECT_EQ(count_of(plot::svg_file(figure_of({{{2, 100}}, {{2, 900}}})), "class='ring'"), 0u);
}

// "Never" is not a number, so it has a place of its own beyond the axis.
TEST(Points, InfinityHasAStripOfItsOwn) {
  const std::string svg = plot::svg_file(figure_of({{{2, 100, 90, 110},
                                                     {4, 50, 40, kInfinite},
                                                     {8, kInfinite, 60, kInfinite},
                                                     {16, kInfinite, kInfinite, kInfinite}}}));
  EXPECT_EQ(count_of(svg, ">never</text>"), 1u);
  const auto strip = found(svg,
                           "<rect class='never' x='[-0-9.]+' y='([-0-9.]+)' width='[0-9.]+' "
                           "height='([0-9.]+)'");
  ASSERT_EQ(strip.size(), 1u);
  const double end = strip[0][0] + strip[0][1];
  const auto grid = found(svg, "<line class='grid' x1='[-0-9.]+' y1='([-0-9.]+)'");
  ASSERT_FALSE(grid.empty());
  for (const auto& line : grid) EXPECT_GT(line[0], end) << "numbers begin below the strip";
  size_t never = 0;
  for (const auto& circle : circles(svg)) never += circle[1] < end ? 1 : 0;
  EXPECT_EQ(never, 2u);
  const auto drawn = whiskers(svg);
  ASSERT_EQ(drawn.size(), 3u);
  for (const size_t i : {1, 2}) {
    EXPECT_GT(drawn[i][1], end) << "it begins at its finite end";
    EXPECT_LT(drawn[i][2], end) << "it ends in the strip";
  }
  EXPECT_EQ(count_of(svg, "class='arrow'"), 1u) << "the other whisker ends at a marker";

  const std::string finite = plot::svg_file(figure_of({{{2, 100, 90, 110}}}));
  EXPECT_EQ(count_of(finite, "never</text>"), 0u);
  EXPECT_EQ(count_of(finite, "class='never'"), 0u);
}

TEST(Points, InfinityOfRowsIsAtTheRight) {
  Figure figure = figure_of({{{1000, 0, 900, kInfinite}, {kInfinite, 1, 800, kInfinite}}},
                            Scale::linear, Scale::category);
  figure.panels[0].x.to = 1000;  // its text would be below the strip
  const std::string svg = plot::svg_file(figure);
  const double never = tick_x(svg, "never");
  size_t there = 0;
  for (const auto& circle : circles(svg)) there += std::abs(circle[0] - never) < 0.2 ? 1 : 0;
  EXPECT_EQ(there, 1u);
  EXPECT_EQ(count_of(svg, "class='arrow'"), 1u);
  EXPECT_EQ(count_of(svg, ">1,000</text>"), 0u);
}

TEST(Points, PanelsThatShareAnAxisShareTheStrip) {
  Figure figure = figure_of({{{2, 100}, {4, kInfinite}}});
  figure.panels.push_back(figure_of({{{2, 100}, {4, 50}}}).panels[0]);
  figure.share_y = true;
  const std::string svg = plot::svg_file(figure);
  EXPECT_EQ(count_of(svg, "class='never'"), 2u);
  EXPECT_EQ(count_of(svg, ">never</text>"), 1u);
}

// A number beyond the end of its axis must not look infinite.
TEST(Points, NumbersBeyondTheAxisAreNotInTheStrip) {
  Figure figure = figure_of({{{2, 5}, {4, 10.4}, {8, kInfinite}}}, Scale::log2, Scale::linear);
  figure.panels[0].y.from = 0;
  figure.panels[0].y.to = 10;
  figure.panels[0].series[0].mark = Mark::points;
  EXPECT_EQ(circles(plot::svg_file(figure)).size(), 2u);
}

TEST(Points, MarkersOfRowsLeaveTheEndsOfWhiskersFree) {
  const std::string svg = plot::svg_file(
      figure_of({{{1.5, 0, 1.45, 1.55}, {100, 1, 90, 110}}}, Scale::linear, Scale::category));
  const auto cap = found(svg,
                         "<path class='whisker' d='M[-0-9.]+ [-0-9.]+L[-0-9.]+ [-0-9.]+"
                         "M[-0-9.]+ ([-0-9.]+)L[-0-9.]+ ([-0-9.]+)");
  ASSERT_EQ(cap.size(), 2u);
  for (const auto& circle : circles(svg)) EXPECT_LT(2 * circle[2] + 2, cap[0][1] - cap[0][0]);
}

TEST(Points, StarsShowTheMarkerInside) {
  Figure figure = figure_of({{{2, 100}}, {{2, 100}}});
  figure.dodge = false;
  figure.panels[0].series[1].star = true;
  const std::string svg = plot::svg_file(figure);
  EXPECT_GE(count_of(svg, "class='star'"), 2u);  // in the legend, too
  EXPECT_NE(svg.find(".plot .star{fill:none"), std::string::npos);
}

TEST(Points, PanelsWithTheSameTitleAreToldApartInTables) {
  Figure figure = figure_of({{{2, 100}}});
  figure.panels[0].title = "batch 128";
  figure.panels.push_back(figure.panels[0]);
  figure.panels[1].y.label = "other";
  figure.panels.push_back(figure.panels[0]);
  figure.panels[2].title = "batch 1024";
  const std::string csv = plot::csv(figure);
  EXPECT_NE(csv.find("\"batch 128, y\",s0,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\"batch 128, other\",s0,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\nbatch 1024,s0,"), std::string::npos) << csv;
}

}  // namespace
}  // namespace etr
