// Copies to the device that a queue of their own makes, while the other computes.
#pragma once

#include <memory>
#include <vector>

#include "gpu/kernel.h"

namespace etr::gpu {

// Recorded once, submitted many times. From MemoryUse::upload to MemoryUse::landing. Used by one thread at a time.
class Upload {
 public:
  Upload(DevicePtr device, const std::vector<Copy>& copies);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Starts the copies; the submission of a Recording that is given this Upload begins when they are done. What they write
  // must no longer be in use.
  void submit();
  void wait();  // until the copies are done; returns at once where none were submitted

 private:
  friend class Recording;
  struct Handles;

  DevicePtr device_;
  std::unique_ptr<Handles> handles_;
};

// Whether a step with so many bytes of input had better have them copied so: the device has a queue that does nothing else,
// and the copies take longer than another submission.
bool uploads_apart(const Device& device, uint64_t bytes);

}  // namespace etr::gpu
