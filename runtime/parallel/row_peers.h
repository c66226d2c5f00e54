// Ranks with parts of one batch, for synchronized batch normalization.
#pragma once

#include "exchange/group.h"
#include "ops/op.h"

namespace etr::parallel {

// Serves the commands of one plan for batches of `rows` rows, and must outlive it. `group` must
// outlive both; only the device's host turns use it.
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
