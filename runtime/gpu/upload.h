// Copies to the device on a transfer queue while the compute queue works.
#pragma once

#include <memory>
#include <vector>

#include "gpu/kernel.h"

namespace etr::gpu {

// Copies from MemoryUse::upload to MemoryUse::landing. Recorded once and submitted many times. Used
// by one thread at a time.
class Upload {
 public:
  Upload(DevicePtr device, const std::vector<Copy>& copies);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Starts the copies. A Recording that is submitted with this Upload begins when they are done.
  // Nothing may still use the memory that they write.
  void submit();
  void wait();  // blocks until the copies are done; returns at once if none were submitted

 private:
  friend class Recording;
  struct Handles;

  DevicePtr device_;
  std::unique_ptr<Handles> handles_;
};

// Returns whether a step should upload this many bytes of input by an Upload: the device has a
// transfer queue, and the copies take longer than the extra submission.
bool uploads_apart(const Device& device, uint64_t bytes);

}  // namespace etr::gpu
