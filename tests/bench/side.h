// One side of a comparison that another program makes: it measures both sides in turns; see side_bench.cpp.
#pragma once

#include <memory>
#include <string>

#include "core/json.h"
#include "gpu/kernel.h"

namespace etr::bench {

using KernelsPtr = std::shared_ptr<gpu::Kernels>;

// What was asked for, ready to run.
class Side {
 public:
  virtual ~Side() = default;

  // What one run is: "flops", "bytes", the kernels, and "error" where the result was compared with the host's.
  virtual Json describe() = 0;

  // Runs it so often and waits. Gives {"seconds", "device_seconds" (0 without timestamps), ...}.
  virtual Json run(int count) = 0;

  // Writes the weights that it has by now, as safetensors; nothing where it trains none.
  virtual void save(const std::string&) {}
};

// {"case": "product", "m", "n", "k", "precision"}: [m, k] by [k, n].
std::unique_ptr<Side> make_product(const KernelsPtr& kernels, const Json& request);

// {"case": "convolution", "part": forward | by_input | by_weight, "batch", "size", "channels", "filters", "kernel", "stride",
// "precision"}.
std::unique_ptr<Side> make_convolution(const KernelsPtr& kernels, const Json& request);

// {"case": "attention", "part": forward | backward, "batch", "positions", "width", "heads", "causal"}.
std::unique_ptr<Side> make_attention(const KernelsPtr& kernels, const Json& request);

// {"case": "memory", "part": copy | relu | add | sum_columns, "rows", "columns"}: kernels that only move bytes.
std::unique_ptr<Side> make_memory(const KernelsPtr& kernels, const Json& request);

// {"case": "training", "model", "optimizer", "schedule" (as in a job), "batch": FILE, "weights": FILE, "tuning": FILE,
// "parallel": {"rank", "size", "rendezvous", "engine", "bucket_mb", "compression"} (of which the last three need not be there)}: a
// step on the batch's tensors (safetensors), which stay in device memory, from PyTorch's weights if there are any. Runs
// also give "losses".
std::unique_ptr<Side> make_training(const gpu::DeviceOptions& options, const Json& request);

}  // namespace etr::bench
