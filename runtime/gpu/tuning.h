// Which of several ways to compute something was measured best on a device.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace etr::gpu {

class Kernels;

// Problems and choices are text: "conv 32768x16x144 fp32 ..." and "gemm_cpu_conv_8_32 0 2 0". Who asks for a problem knows
// the choices; one that it does not know (a file of an older release) is no choice. Thread safe.
class Tuning {
 public:
  // Finds the best choice for a problem by trying; "" where there is nothing to choose.
  using Measure = std::function<std::string(Kernels&)>;

  // The choice for `problem`, "" where none is known: then `measure` is kept for measure_wanted().
  std::string choice(const std::string& problem, const Measure& measure);

  struct Progress {
    size_t done, total;
    std::string problem, choice;  // measured last
  };

  // Measures what was asked for in vain so far. `progress` is called after each; false ends it early, and what was
  // measured stays. Uses the device: other work on it at the same time spoils the measurements.
  void measure_wanted(Kernels& kernels, const std::function<bool(const Progress&)>& progress);

  // A file has choices of any number of devices, by their names. Reading adds those of `device` (a missing file has none; Error(corrupt_data)
  // names what is wrong with another); writing replaces those of `device` and keeps the others.
  void read(const std::string& path, const std::string& device);
  void write(const std::string& path, const std::string& device) const;

  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> choices_;
  std::vector<std::pair<std::string, Measure>> wanted_;
};

}  // namespace etr::gpu
