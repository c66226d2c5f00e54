// Remembers which kernels the device's driver computes as the host does, and how they had to be
// compiled for that.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace etr::gpu {

enum class Verdict {
  unknown,  // not compared yet
  right,
  right_plainly,  // correct only if compiled without the driver's optimizer
};

// Kept in a file between runs: a verdict applies to the exact SPIR-V of a kernel and one version of
// a driver. Thread safe.
class Verdicts {
 public:
  // Reads the verdicts in `path`, to which save() writes; "" keeps none. A file that cannot be read
  // is logged and replaced.
  explicit Verdicts(std::string path);

  Verdict of(const std::string& kernel) const;
  void set(const std::string& kernel, Verdict verdict);
  void save() noexcept;

 private:
  mutable std::mutex mutex_;
  std::string path_;
  std::map<std::string, Verdict> verdicts_;
  bool changed_ = false;
};

}  // namespace etr::gpu
