// Which kernels this device's driver was seen to compute as the host does, and how they had to be compiled for that.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace etr::gpu {

enum class Verdict {
  unknown,  // not compared yet
  right,
  right_plainly,  // only without the driver's optimizer
};

// Kept in a file from run to run, as they hold for a kernel's very words and a driver's version. Thread safe.
class Verdicts {
 public:
  // Those of `path`, to which save() writes; "" keeps none. A file that cannot be read is logged and begun anew.
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
