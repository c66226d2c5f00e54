// The elements of a drawing, as SVG text. `look`: the attributes of an element besides its place,
// such as "class='tick'".
#pragma once

#include <string>

#include "core/error.h"
#include "core/markup.h"
#include "plot/text.h"

namespace etr::plot {

struct Spot {
  double x = 0, y = 0;  // in pixels
};

struct Box {
  double x = 0, y = 0, width = 0, height = 0;  // x and y of the upper left corner
};

// `text` is escaped here.
inline std::string drawn_text(const std::string& look, Spot at, const std::string& text) {
  return cat("<text ", look, " x='", coordinate(at.x), "' y='", coordinate(at.y), "'>",
             escape_markup(text), "</text>");
}

inline std::string drawn_line(const std::string& look, Spot from, Spot to) {
  return cat("<line ", look, " x1='", coordinate(from.x), "' y1='", coordinate(from.y), "' x2='",
             coordinate(to.x), "' y2='", coordinate(to.y), "'/>");
}

inline std::string drawn_path(const std::string& look, const std::string& path) {
  return cat("<path ", look, " d='", path, "'/>");
}

// `inside`: markup within the element, such as a title.
inline std::string drawn_box(const std::string& look, const Box& box,
                             const std::string& inside = "") {
  return cat("<rect ", look, look.empty() ? "" : " ", "x='", coordinate(box.x), "' y='",
             coordinate(box.y), "' width='", coordinate(box.width), "' height='",
             coordinate(box.height), inside.empty() ? "'/>" : cat("'>", inside, "</rect>"));
}

}  // namespace etr::plot
