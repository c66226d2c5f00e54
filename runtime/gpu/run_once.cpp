#include "gpu/run_once.h"

#include "gpu/comparison.h"
#include "gpu/recording.h"

namespace etr::gpu {

void run_once(const DevicePtr& device, const CommandList& commands) {
  if (wants_comparison(*device, commands))
    run_compared(device, commands);
  else
    run_uncompared(device, commands);
}

}  // namespace etr::gpu
