// A study's report as one HTML page.
#pragma once

#include <string>
#include <vector>

#include "study/figures.h"

namespace etr::study {

std::string study_page(const Outline& study, const Summary& summary,
                       const std::vector<Record>& records, const std::vector<StudyFigure>& figures);

}  // namespace etr::study
