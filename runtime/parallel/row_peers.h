// Ranks with parts of one batch, as operations in the graph see them: synchronised batch normalisation.
#pragma once

#include "exchange/group.h"
#include "ops/op.h"

namespace etr::parallel {

// For the commands of one plan for batches of `rows` rows, which it outlives. `group` outlives both, and is used by the host
// turns of the device alone.
class SharedRows final : public ops::RowPeers {
 public:
  SharedRows(exchange::Group& group, const gpu::DevicePtr& device, int64_t rows);

  void emit_means(ops::Emitter& emit, const gpu::Buffer& step, const gpu::Buffer& means) override;
  void emit_moments(ops::Emitter& emit, const gpu::Buffer& step,
                    const gpu::Buffer& moments) override;

 private:
  gpu::Buffer step_of_host(ops::Emitter& emit, const gpu::Buffer& step);
  float weight(const gpu::Buffer& step) const;

  exchange::Group& group_;
  const float rows_;
  gpu::Arena memory_;
};

}  // namespace etr::parallel
