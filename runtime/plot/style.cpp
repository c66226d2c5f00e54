#include "plot/style.h"

#include <array>

#include "core/error.h"
#include "plot/figure.h"

namespace etr::plot {
namespace {

struct Colour {
  const char *name, *light, *dark;
};

// Series colours differ by at least 26 (CIE76), for normal vision and for readers who lack one kind
// of cone (Machado et al. 2009), and have a contrast of at least 3 : 1 with the background. Dashes
// and markers distinguish series in prints without colour.
constexpr std::array<Colour, 14> kColours = {{
    {"p0", "#3b4554", "#97a5b8"},
    {"p1", "#b8360a", "#ff6a1f"},
    {"p2", "#1a55d8", "#7f7dff"},
    {"p3", "#237750", "#2fe58a"},
    {"p4", "#d92a98", "#e58cf5"},
    {"p5", "#a98905", "#f0df3a"},
    {"p6", "#1f96f0", "#bdf5d5"},
    {"p7", "#341106", "#c4605f"},
    {"p-text", "#1d2733", "#e7ecf3"},
    {"p-quiet", "#4c5a6c", "#a9b6c7"},
    {"p-rule", "#dde3ea", "#323d4b"},
    {"p-minor", "#eef1f5", "#262f3a"},
    {"p-axis", "#8794a5", "#66758a"},
    {"p-page", "#ffffff", "#1b222c"},
}};

constexpr const char* kDashes[kStyles] = {"",     "",   "7 3", "2 3", "10 3 2 3", "5 2 2 2 2 2",
                                          "12 4", "4 4"};

std::string rule(const std::string& selector, const std::string& body) {
  return cat(".plot ", selector, "{", body, "}");
}

}  // namespace

std::string plot_variables() {
  std::string light, dark;
  for (const Colour& colour : kColours) {
    light += cat("--", colour.name, ":", colour.light, ";");
    dark += cat("--", colour.name, ":", colour.dark, ";");
  }
  return cat(":root{", light, "}@media(prefers-color-scheme:dark){:root{", dark,
             "}}@media print{:root{", light, "}}");
}

std::string plot_rules(bool variables) {
  const auto colour = [&](const std::string& name) {
    for (const Colour& known : kColours)
      if (name == known.name) return variables ? cat("var(--", name, ")") : known.light;
    fail(Code::internal, "figures have no colour '", name, "'");
  };
  std::string out =
      rule("text", "font-size:12px;fill:" + colour("p-quiet")) +
      rule(".label", "fill:" + colour("p-text")) +
      rule(".head", "font-size:13px;font-weight:600;fill:" + colour("p-text")) +
      rule(".grid", "stroke:" + colour("p-rule")) + rule(".minor", "stroke:" + colour("p-minor")) +
      rule(".axis", "stroke:" + colour("p-axis")) +
      rule(".range", "fill:" + colour("p-quiet") + ";opacity:.16") +
      rule(".reference",
           "fill:none;stroke-width:1.5;stroke-dasharray:6 4;stroke:" + colour("p-quiet")) +
      rule(".reference.dots", "stroke-dasharray:1.5 3.5") +
      rule(".line", "fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round") +
      rule(".whisker,.plot .stroke,.plot .leader",
           "fill:none;stroke:currentColor;stroke-width:1.5") +
      rule(".stroke", "stroke-width:3") + rule(".whisker", "stroke-width:1.25;opacity:.8") +
      rule(".leader", "stroke-width:1") +
      rule(".mark,.plot .bar", "fill:currentColor;stroke-width:.8;stroke:" + colour("p-page")) +
      rule(".hollow .mark", "stroke:currentColor;stroke-width:1.6;fill:" + colour("p-page")) +
      rule(".ring .mark,.plot .star", "fill:none;stroke:currentColor;stroke-width:1.5") +
      rule(".arrow", "fill:none;stroke:currentColor;stroke-width:1.6") +
      rule(".never", "fill:" + colour("p-minor")) +
      rule(".tag .mark", "stroke:none;fill:" + colour("p-page")) +
      rule(".over", "color:" + colour("p-text")) +
      rule(".note,.plot .halo", "font-weight:600;fill:currentColor") +
      rule(".halo", "stroke-width:3px;stroke-linejoin:round;stroke:" + colour("p-page"));
  for (int i = 0; i < kStyles; ++i) {
    const std::string style = cat(".s", i);
    out += rule(style, "color:" + colour(cat("p", i)));
    if (*kDashes[i]) out += rule(style + " .line", cat("stroke-dasharray:", kDashes[i]));
  }
  return out;
}

}  // namespace etr::plot
