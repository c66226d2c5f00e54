// Draws figures. In a page the colours are CSS variables, which follow its light or dark theme; a file has light colours of its
// own, written out, so that programs without CSS variables show and print it.
#pragma once

#include <string>

#include "plot/figure.h"

namespace etr::plot {

// A whole SVG file: the panels side by side, at most three in a row, below one legend.
std::string svg_file(const Figure& figure);

// The figure as a part of an HTML page: its legend as a list, and each panel as a drawing of its own, so that a narrow page
// shows them one below the other with their text at full size. Needs page_style().
std::string html_figure(const Figure& figure);

// The style sheet of html_figure().
std::string page_style();

// The line and marker that stand for a series, of 26 x 12 pixels, for a page.
std::string html_swatch(const Series& series);

// The numbers of a figure: panel,series,x,y,low,high. Names of categories stand in place of their numbers.
std::string csv(const Figure& figure);

}  // namespace etr::plot
