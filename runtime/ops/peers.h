// Devices that compute a step together, as ops see them. What moves data between them is known to those who hand these to a
// plan (graph::PlanOptions::peers); an op emits commands, among them host turns, whose work is theirs.
//
// All peers emit the same calls in the same order. Without them a plan's commands are what they always were.
#pragma once

#include "gpu/kernel.h"

namespace etr::ops {

class Emitter;

// Each has rows of its own of one batch. They weigh by how many of them are samples (StepValues::valid_rows).
class RowPeers {
 public:
  virtual ~RowPeers() = default;

  // Appends what makes of `means`, f32, the means of what all have there.
  virtual void emit_means(Emitter& emit, const gpu::Buffer& step, const gpu::Buffer& means) = 0;

  // Appends what makes of `moments`, f32: means and (biased) variances of channels over this one's rows, and 1, those over the rows
  // of all, and how many these are for each of this one's.
  virtual void emit_moments(Emitter& emit, const gpu::Buffer& step, const gpu::Buffer& moments) = 0;
};

// Each has a slice of each tensor that they share, and all have the same rows.
class SlicePeers {
 public:
  virtual ~SlicePeers() = default;

  // Appends what makes of `terms`, f32, the sum of what all have there: the same bits on all.
  virtual void emit_sum(Emitter& emit, const gpu::Buffer& terms) = 0;
};

// Those of a plan.
struct Peers {
  RowPeers* rows = nullptr;      // batch normalisation trains on; none: on this device's rows
  SlicePeers* slices = nullptr;  // a graph needs that was split (graph/split.h)
};

}  // namespace etr::ops
