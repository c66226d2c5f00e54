// One panel of a figure: axes, data, notes.
#pragma once

#include <string>
#include <vector>

#include "plot/figure.h"
#include "plot/notes.h"

namespace etr::plot {

struct PanelPlace {
  Box frame;  // of the plot area
  bool x_label = true;
  bool y_texts = true;   // whether ticks and axis have texts
  std::string clip_id;   // unique in the document
  double dodge = 0;      // pixels between series
  bool stays = false;    // see markers_stay(); markers in the strip for infinity move all the same
  double never = 0;      // pixels of the frame for the strip for infinity, beside the numbers
  double left_edge = 0;  // of the room for category names
};

// Returns whether a value is at infinity, or a whisker ends there.
bool has_never(const Panel& panel);
// Returns the size of the strip for infinity at the end of the value axis, in pixels.
double never_room(const Panel& panel);

// Returns the panel's title. If another panel has the same title, adds the label of an axis in
// which the two differ.
std::string panel_name(const Figure& figure, size_t index);

// Room for texts around the frame.
struct Margins {
  double left = 0, right = 0, top = 0, bottom = 0;
};
// Returns the room that texts need. The panel's axes must be fitted. `never`: as in PanelPlace.
Margins margins_of(const Panel& panel, double frame_height, double never);
// Returns the title in at most two lines. Its letters are larger and bold, so it is wrapped to a
// narrower width than the frame's.
std::vector<std::string> title_lines(const Panel& panel, double frame_width);
// Returns the height of the title.
double title_height_of(const Panel& panel, double frame_width);

// Returns the height that the frame should have: enough for its categories, or the usual height.
double frame_height_of(const Panel& panel);

std::string draw_panel(const Panel& panel, const PanelPlace& place);

// Returns the figure with fitted axes. Panels share them if the figure says so.
Figure with_fitted_axes(Figure figure);

}  // namespace etr::plot
