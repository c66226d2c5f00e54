// Remembers which of several ways to compute something was measured fastest on a device.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace etr::gpu {

enum class DeviceKind;
class Kernels;

// Problems and choices are text: "conv 32768x16x144 fp32 ..." and "gemm_cpu_conv_8_64x32 0 0 0 3".
// Thread safe.
class Tuning {
 public:
  explicit Tuning(DeviceKind kind) : kind_(kind) {}

  // Measures a problem and returns the best choice; "" if there is nothing to choose.
  using Measure = std::function<std::string(Kernels&)>;

  // Returns the choice for `problem`. If none is known, or one that is not `valid`, which may come
  // from a file of another release, returns "" and keeps `measure` for measure_wanted().
  std::string choice(const std::string& problem, const std::vector<std::string>& valid,
                     const Measure& measure);

  struct Progress {
    size_t done, total;
    std::string problem, choice;  // the latest measurement
  };

  // Measures every problem for which choice() found none so far. Calls `progress` after each; if it
  // returns false, measuring stops and the results so far are kept. Other work on the device during
  // this call spoils the measurements.
  void measure_wanted(Kernels& kernels, const std::function<bool(const Progress&)>& progress);
  // Does so with the file of read() and write(). If a measurement throws, what was measured before
  // is written all the same.
  void measure_into(const std::string& path, Kernels& kernels,
                    const std::function<bool(const Progress&)>& progress);

  // A file holds the choices of any number of devices, by name. read() adds those of `device`,
  // unless they were measured with other kernels than this build's, which it logs. It ignores a
  // missing file, and throws Error(corrupt_data) with the cause for an invalid one. write() adds or
  // replaces those that are known here and keeps the others that are current, which another process
  // may have added. It waits for others that write, and throws Error(io) if one does not end.
  void read(const std::string& path, const std::string& device);
  void write(const std::string& path, const std::string& device) const;

  size_t size() const;

  // Returns the checksum by which a file says with which kernels the choices of such a device were
  // measured.
  static std::string_view checksum_of_kernels(DeviceKind kind);

 private:
  const DeviceKind kind_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> choices_;
  std::vector<std::pair<std::string, Measure>> wanted_;
};

}  // namespace etr::gpu
