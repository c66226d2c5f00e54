// Finds places for notes, so that none covers data or another note.
#pragma once

#include <string>
#include <vector>

#include "plot/marks.h"

namespace etr::plot {

class NotePlaces {
 public:
  explicit NotePlaces(const Box& frame) : frame_(frame) {}

  void avoid(const Box& box) { obstacles_.push_back(box); }
  void avoid(Spot spot, double radius = 5);
  void avoid_line(Spot from, Spot to);

  // Returns the box of a text beside `at`, within the frame; later boxes avoid it.
  Box place(Spot at, const std::string& text);

 private:
  double cost(const Box& box, Spot at) const;

  const Box frame_;
  std::vector<Box> obstacles_;
};

}  // namespace etr::plot
