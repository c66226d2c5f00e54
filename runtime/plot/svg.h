// Draws figures. In a page, colours are CSS variables that follow the light or dark theme. A file
// contains light colours, so that programs without CSS variables can show and print it.
#pragma once

#include <string>

#include "plot/figure.h"

namespace etr::plot {

// Returns an SVG file: the panels, at most three in a row, below one legend.
std::string svg_file(const Figure& figure);

// Returns the figure as part of an HTML page: the legend as a list, and each panel as a separate
// drawing, so that a narrow page stacks them with full-size text. Needs page_style().
std::string html_figure(const Figure& figure);

// Returns the style sheet for html_figure().
std::string page_style();

// Returns the line and marker of a series, 26 x 12 pixels, for a page.
std::string html_swatch(const Series& series);

// Returns the figure's numbers: panel,series,x,y,low,high. Category names replace their indices.
// Panels with the same title are told apart by the label of an axis.
std::string csv(const Figure& figure);

}  // namespace etr::plot
