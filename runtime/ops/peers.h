// Devices that compute a step together, as ops see them. The implementation that moves data between
// them is passed to a plan (graph::PlanOptions::peers). An op emits commands, among them host
// turns, and the implementation provides their work.
//
// All peers must emit the same exchanges in the same order. Without peers a plan has no such
// commands.
#pragma once

#include "gpu/kernel.h"

namespace etr::ops {

class Emitter;

// Peers that each have their own rows of one batch. A peer's weight is its number of samples
// (StepValues::valid_rows).
class RowPeers {
 public:
  virtual ~RowPeers() = default;

  // Appends commands that replace `means`, f32, by the weighted means over all peers.
  virtual void emit_means(Emitter& emit, const gpu::Buffer& step, const gpu::Buffer& means) = 0;

  // Appends commands that replace `moments`, f32: the means and (biased) variances of channels over
  // this peer's rows become those over the rows of all peers. A 1 follows them, which becomes the
  // number of all rows divided by this peer's.
  virtual void emit_moments(Emitter& emit, const gpu::Buffer& step, const gpu::Buffer& moments) = 0;
};

// Peers that each have a slice of each split tensor, and all the same rows.
class SlicePeers {
 public:
  virtual ~SlicePeers() = default;

  // Appends commands that replace `terms`, f32, by the sum over all peers, with the same bits on
  // all.
  virtual void emit_sum(Emitter& emit, const gpu::Buffer& terms) = 0;
};

// The peers of a plan.
struct Peers {
  // For batch normalisation in training; nullptr: only this device's rows.
  RowPeers* rows = nullptr;
  SlicePeers* slices = nullptr;  // for a graph that was split (graph/split.h)
};

}  // namespace etr::ops
