// One panel of a figure: axes, data, notes.
#pragma once

#include <string>
#include <vector>

#include "plot/figure.h"
#include "plot/notes.h"

namespace etr::plot {

struct PanelPlace {
  Box frame;  // within the axes
  bool x_label = true;
  bool y_texts = true;   // the names of ticks and of the axis
  std::string clip_id;   // unique in the document
  double dodge = 0;      // pixels between series
  double left_edge = 0;  // of the room for the names of categories
};

// Room around the frame for texts.
struct Margins {
  double left = 0, right = 0, top = 0, bottom = 0;
};
// Of a panel with fitted axes.
Margins margins_of(const Panel& panel, double frame_height);
// The title, in at most two lines. Its letters are larger and bold: as wide as usual ones in a frame that is narrower.
std::vector<std::string> title_lines(const Panel& panel, double frame_width);
// What it takes above that.
double title_height_of(const Panel& panel, double frame_width);

// The height that the frame should have: that of its categories, else the usual one.
double frame_height_of(const Panel& panel);

std::string draw_panel(const Panel& panel, const PanelPlace& place);

// The figure with the axes of its panels fitted, and shared where it says so.
Figure with_fitted_axes(Figure figure);

}  // namespace etr::plot
