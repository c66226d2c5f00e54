// Ranges, ticks and places on axes, and the widths of texts.
#include "plot/scale.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/exact_number.h"
#include "core/utf8.h"
#include "plot/text.h"
#include "plot/wrap.h"

namespace etr {
namespace {

using plot::Axis;
using plot::Scale;

Axis axis(Scale scale, double from, double to) {
  Axis out;
  out.scale = scale;
  out.from = from;
  out.to = to;
  return out;
}

std::vector<std::string> texts(const Axis& of, double room, bool horizontal = true) {
  std::vector<std::string> out;
  for (const plot::Tick& tick : plot::ticks_of(of, room, horizontal))
    if (!tick.text.empty()) out.push_back(tick.text);
  return out;
}

using Texts = std::vector<std::string>;

TEST(Scale, TicksAreRoundNumbers) {
  EXPECT_EQ(texts(axis(Scale::linear, 0, 100), 300), (Texts{"0", "20", "40", "60", "80", "100"}));
  EXPECT_EQ(texts(axis(Scale::linear, 0, 30000), 200), (Texts{"0", "10k", "20k", "30k"}));
  EXPECT_EQ(texts(axis(Scale::log2, 16, 256), 300), (Texts{"16", "32", "64", "128", "256"}));
  EXPECT_EQ(texts(axis(Scale::log10, 0.001, 10), 300), (Texts{"0.001", "0.01", "0.1", "1", "10"}));
  EXPECT_EQ(texts(axis(Scale::log10, 1, 20), 300), (Texts{"1", "2", "5", "10", "20"}));
  Axis percent = axis(Scale::linear, 0, 1);
  percent.percent = true;
  EXPECT_EQ(texts(percent, 300).back(), "100 %");
}

TEST(Scale, TicksStandWhereTheyAreWantedIfTheyFit) {
  Axis few = axis(Scale::log10, 0.5, 8);
  few.at = {0.5, 1.5, 2, 4, 6, 8};
  EXPECT_EQ(texts(few, 300), (Texts{"0.5", "1.5", "2", "4", "6", "8"}));
  EXPECT_EQ(texts(few, 60), texts(axis(Scale::log10, 0.5, 8), 60));
}

TEST(Scale, LogarithmicAxesHaveMinorTicks) {
  const auto ticks = plot::ticks_of(axis(Scale::log10, 1, 1000), 300, true);
  EXPECT_EQ(std::count_if(ticks.begin(), ticks.end(), [](auto& tick) { return tick.text.empty(); }),
            24);
}

TEST(Scale, TextsFitSideBySide) {
  for (const double room : {60.0, 120.0, 300.0})
    for (const Axis& of : {axis(Scale::linear, 0, 987654), axis(Scale::linear, 0.00123, 0.00129),
                           axis(Scale::log2, 1, 1 << 20), axis(Scale::log10, 1e-9, 1e9)}) {
      const plot::Mapping place(of, 0, room);
      double end = -100;
      for (const plot::Tick& tick : plot::ticks_of(of, room, true)) {
        if (tick.text.empty()) continue;
        const double half = plot::text_width(tick.text) / 2;
        EXPECT_GE(place(tick.at) - half, end) << tick.text << " in " << room;
        end = place(tick.at) + half;
      }
    }
}

TEST(Scale, RangesHoldAllData) {
  plot::Panel panel;
  panel.x.scale = Scale::log2;
  panel.series.push_back({"s", 0, plot::Mark::line, {{16, 3, 2, 9}, {1024, 5, 4, 6}, {-1, 4}}});
  const Axis x = plot::fitted(panel.x, plot::needs_of(panel, true));
  EXPECT_LT(x.from, 16);
  EXPECT_GT(x.from, 8);
  EXPECT_GT(x.to, 1024);
  const Axis y = plot::fitted(panel.y, plot::needs_of(panel, false));
  EXPECT_LE(y.from, 2);
  EXPECT_GE(y.to, 9);
  panel.series[0].mark = plot::Mark::bars;
  for (auto& point : panel.series[0].points) point.low = point.high = plot::kNone;
  EXPECT_EQ(plot::fitted(panel.y, plot::needs_of(panel, false)).from, 0);
}

TEST(Scale, MappingIsOfTheScale) {
  const plot::Mapping log(axis(Scale::log2, 1, 16), 0, 100);
  EXPECT_DOUBLE_EQ(log(4), 50);
  EXPECT_FALSE(log.shows(0));
  EXPECT_FALSE(log.shows(NAN));
  const plot::Mapping down(axis(Scale::linear, 0, 10), 200, 100);
  EXPECT_DOUBLE_EQ(down(10), 100);
  EXPECT_TRUE(down.shows(-3));
}

TEST(Text, WrapsAsWideAsItMay) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(plot::wrapped("one, two three", 70, 3), (Lines{"one,", "two three"}));
  EXPECT_EQ(plot::wrapped("abcdefghijkl", 50, 3), (Lines{"abcdef-", "ghijkl"}));
  EXPECT_EQ(plot::wrapped("äöüäöüäöüäöü", 50, 3), (Lines{"äöüäö-", "üäöü-", "äöü"}));
  EXPECT_EQ(plot::wrapped("abc", 5, 3).size(), 1u);
  EXPECT_EQ(plot::fitting_bytes("äöü", 16), 4u) << "only whole characters";
}

TEST(Text, IsBrokenBetweenLetters) {
  for (const char* word : {"три", "шесть", "предложение", "日本語", "日本語日本語日本語"})
    for (double width = 4; width < 90; width += 0.5)
      for (const std::string& line : plot::wrapped(word, width, 3))
        EXPECT_EQ(as_utf8(line), line) << word << " at " << width;
}

// With a quadratic number of steps, this would hardly ever end.
TEST(Text, OfAMillionCharactersIsCut) {
  std::string word(1000000, 'x'), words, accents;
  for (int i = 0; i < 200000; ++i) words += "w, o ", accents += "ä";
  for (const std::string& text : {word, words, accents}) {
    const auto lines = plot::wrapped(text, 90, 3);
    EXPECT_LE(lines.size(), 3u);
    for (const std::string& line : lines) EXPECT_LE(plot::text_width(line), 90) << line;
    EXPECT_NE(lines.back().find("…"), std::string::npos) << lines.back();
    EXPECT_LE(plot::text_width(plot::shortened(text, 200)), 200);
    EXPECT_LE(plot::text_width(plot::markup_of(text)), 5000);
  }
}

TEST(PlotText, NumbersAndFields) {
  EXPECT_EQ(exact_number(0.1), "0.1");
  EXPECT_EQ(exact_number(NAN), "");
  EXPECT_EQ(exact_number(INFINITY), "inf");
  EXPECT_EQ(std::stod(exact_number(1.0 / 3)), 1.0 / 3);
  EXPECT_EQ(plot::csv_field("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
  EXPECT_EQ(plot::coordinate(-0.01), "0");
  EXPECT_EQ(plot::shortened("short", 100), "short");
  const std::string cut = plot::shortened("ä very long name of something", 60);
  EXPECT_LE(plot::text_width(cut), 60);
  EXPECT_NE(cut.find("…"), std::string::npos);
}

}  // namespace
}  // namespace etr
