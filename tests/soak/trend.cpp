#include "soak/trend.h"

#include <algorithm>
#include <sstream>

namespace soak {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Per second.
double slope(const std::vector<double>& times, const std::vector<double>& values) {
  const size_t apart = std::max<size_t>(1, times.size() / 500);  // of long series some samples only
  std::vector<double> slopes;
  for (size_t i = 0; i < times.size(); i += apart)
    for (size_t j = i + apart; j < times.size(); j += apart)
      slopes.push_back((values[j] - values[i]) / std::max(1e-9, times[j] - times[i]));
  return median(slopes);
}

}  // namespace

std::vector<std::string> growing(const std::vector<Sample>& samples) {
  const size_t count = samples.size();
  if (count < 9) return {"there are " + std::to_string(count) + " samples; a trend needs 9"};
  std::vector<std::string> out;
  for (size_t k = 0; k < kinds().size(); ++k) {
    const Kind& kind = kinds()[k];
    if (samples.back().seconds - samples.front().seconds < kind.settled_after) continue;
    std::vector<double> times, values;
    for (const Sample& sample : samples) {
      times.push_back(sample.seconds);
      values.push_back(sample.held[k]);
    }
    const auto at = [](std::vector<double>& all, size_t i) {
      return all.begin() + static_cast<std::ptrdiff_t>(i);
    };
    const double first = median({values.begin(), at(values, count / 3)});
    const double last = median({at(values, count - count / 3), values.end()});
    const double steepness =
        slope({at(times, count / 2), times.end()}, {at(values, count / 2), values.end()});
    const double trend = steepness * (times.back() - times.front());
    const double margin = kind.margin + kind.margin_share * first;
    if (last - first <= margin && trend <= margin) continue;
    std::ostringstream line;
    line.precision(6);
    line << kind.name << " grew from " << first << " to " << last << " " << kind.unit
         << ", and in the second half by " << steepness * 3600 << " " << kind.unit
         << " an hour, which is " << trend << " in the whole time; at most " << margin
         << " is flat";
    out.push_back(line.str());
  }
  return out;
}

}  // namespace soak
