// Results as text, and as tables for the report's page.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "study/summary.h"

namespace etr::study {

// "8.2 s", "12.5 min", "3.2 h"
std::string duration(double seconds);

// Returns a value of a clock as text; "not reached" if it is infinite.
std::string clock_value(size_t clock, double value);

// "1.52 ×"; "∞" if only the condition reached the target.
std::string gain_text(double gain);

// Describes counts by Status: "24 reached, 6 missed".
std::string outcomes(const std::array<size_t, kStatusCount>& counts);

// "after augmentation, factor 4", with the workload if there are several.
std::string full_name(const Summary& summary, const ConditionResult& condition);

// Returns HTML. A long table of conditions is collapsed, because the figures show the same.
std::string condition_table(const Summary& summary, const std::vector<Record>& records,
                            size_t workload);

// Returns a table of where scaling ends; "" if unknown.
std::string scaling_table(const Summary& summary, size_t workload);

}  // namespace etr::study
