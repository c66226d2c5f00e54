// One side of a comparison by another program, which measures both sides in turns; see
// side_bench.cpp.
#pragma once

#include <memory>
#include <string>

#include "core/json.h"
#include "gpu/kernel.h"

namespace etr::bench {

using KernelsPtr = std::shared_ptr<gpu::Kernels>;

// A requested case, ready to run.
class Side {
 public:
  virtual ~Side() = default;

  // Describes one run: "flops", "bytes", the kernels, and "error" if the result was compared with
  // the host's.
  virtual Json describe() = 0;

  // Runs it `count` times and waits. Returns {"seconds", "device_seconds" (0 without timestamps),
  // ...}.
  virtual Json run(int count) = 0;

  // Writes the current weights as safetensors; does nothing if it trains none.
  virtual void save(const std::string&) {}
};

// {"case": "product", "m", "n", "k", "precision"}: [m, k] by [k, n].
std::unique_ptr<Side> make_product(const KernelsPtr& kernels, const Json& request);

// {"case": "kernels", "mode": nn | tn | conv | conv_dx | conv_dw, "precision", and the fields of
// ops::GemmParams that are not 1}: seconds of every kernel that computes the product, in turns.
Json kernel_times(const KernelsPtr& kernels, const Json& request);

// {"case": "convolution", "part": forward | by_input | by_weight, "batch", "size", "channels",
// "filters", "kernel", "stride", "precision"}.
std::unique_ptr<Side> make_convolution(const KernelsPtr& kernels, const Json& request);

// {"case": "attention", "part": forward | backward, "batch", "positions", "width", "heads",
// "causal"}.
std::unique_ptr<Side> make_attention(const KernelsPtr& kernels, const Json& request);

// {"case": "memory", "part": copy | relu | add | sum_columns, "rows", "columns"}: kernels that only
// move bytes.
std::unique_ptr<Side> make_memory(const KernelsPtr& kernels, const Json& request);

// {"case": "training", "model", "optimizer", "schedule" (as in a job), "batch": FILE, "weights":
// FILE, "tuning": FILE, "parallel": {"rank", "size", "rendezvous", "engine", "bucket_mb",
// "compression"} (the last three optional)}: steps on the batch's tensors (safetensors), which stay
// in device memory, starting from PyTorch's weights if given. Runs also return "losses".
std::unique_ptr<Side> make_training(const gpu::DeviceOptions& options, const Json& request);

}  // namespace etr::bench
