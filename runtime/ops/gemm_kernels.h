// The kernels that compute a product, and the choice among them.
#pragma once

#include <string>
#include <vector>

#include "ops/gemm.h"

namespace etr::ops {

struct GemmKernel {
  std::string shader;
  std::vector<uint32_t> constants;
  uint32_t tile_rows, tile_columns;
  uint32_t wanted_groups;  // number of workgroups that fills a CPU device; 0: see `cost`
  // For GPUs: cost of an element, and workgroups of a compute unit at once; see Tile.
  double cost = 1;
  uint32_t at_once = 1;
  Precision rounds = Precision::fp32;  // precision to which it rounds its operands itself
  bool exact = true;                   // products of small integers are exact
  uint32_t slices = 0;                 // slices of k; 0: not chosen yet
  uint32_t least_slices = 1;           // fewer would take more iterations than the device allows
  uint32_t steps = 4;                  // along k, of an iteration of the innermost loop
  uint32_t pad = 0;                    // padding of the rows of A and B, in elements
  // How many adjacent numbers of A and of B are loaded at a time. A must be aligned to loads_a
  // numbers, B and C to loads_b.
  uint32_t loads_a = 1, loads_b = 1;
  uint32_t run = 1;  // rows in a run; each line is padded to whole runs
  // Flags of what the kernel can also do with C: kResidual, ... (shaders/gemm_params.glsl).
  uint32_t can_join = 0;

  static constexpr uint32_t kResidual = 1, kKeep = 2, kMoments = 4;

  // Returns the constants of the variant that also does `joins`.
  std::vector<uint32_t> constants_with(uint32_t joins) const;

  // Returns the name used in tuning files: "gemm_cpu_tn_8_64x32 0 0 0 3", followed by " / 4" for
  // four slices.
  std::string name() const;
};

// Returns the kernels that the device can run, the likely fastest first. Without the modes along
// lines there is at least one, unless the result has more tiles than the device takes workgroups.
// Leaves out kernels that take too many iterations, unless all of them do.
std::vector<GemmKernel> kernels_for(const gpu::Device& device, GemmMode mode, const GemmParams& p,
                                    Precision precision);

// Returns the numbers of slices of k that are worth trying; the first is the default.
std::vector<uint32_t> slices_for(const GemmKernel& kernel, GemmMode mode, const GemmParams& p);

// Returns whether the kernel's slices are of whole lines of pixels.
bool slices_lines(const GemmKernel& kernel, GemmMode mode);

// Returns the iterations of an invocation's loops with the kernel's slices, as lavapipe counts
// them: an inner loop takes one more each time that it ends. What it unrolls counts as well.
uint64_t iterations_of(const GemmKernel& kernel, GemmMode mode, const GemmParams& p);

// Returns m for GemmMode::line: the number of pairs of pixels, with each line padded to whole runs
// of the kernel.
uint32_t rows_of_lines(const GemmKernel& kernel, const GemmParams& p);

// Return the number of elements of the tensor that A is read from, and of the one that a slice of C
// is written to.
int64_t elements_of_a(GemmMode mode, const GemmParams& p);
int64_t elements_of_c(GemmMode mode, const GemmParams& p);

// Runs the kernel on a small problem with partial tiles and compares the result with the host's.
// All numbers are small integers, so that every order of summation gives the same bits; a kernel
// that rounds gets some in A that lie between two of its format. A kernel that is not exact gets
// fractions and must reach float32's accuracy, which not every device's matrix units do. Waits for
// the device.
bool computes_rightly(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode,
                      uint32_t joins = 0);

// Returns the result of computes_rightly(), which runs once for each kernel of a device.
bool trusted(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode, uint32_t joins = 0);

// Describes the dispatch of a product, for fusion. Its bindings are a, b, side, residual and c.
struct Product final : gpu::Fusible {
  GemmKernel kernel;
  GemmMode mode;
  GemmParams params;
  uint32_t joins = 0;
};

// Returns the dispatch of a product that also does `joins` and, if `relu`, a ReLU. Returns an empty
// dispatch (no kernel) if the product's kernel cannot do that or does not compute it as the host
// does.
gpu::Dispatch with_joins(gpu::Kernels& kernels, const gpu::Dispatch& product, uint32_t joins,
                         bool relu);

// Emits the product with this kernel; `kernel.slices` must be set. See emit_gemm().
void emit_with(Emitter& emit, const GemmKernel& kernel, GemmMode mode, GemmParams p,
               const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& bias,
               const DeviceTensor& out, double flops);

// Measures the kernels and returns the name of the fastest; "" if there is only one. Waits for the
// device, for some tenths of a second.
std::string measure_kernels(gpu::Kernels& kernels, GemmMode mode, const GemmParams& p,
                            Precision precision);

struct KernelTime {
  std::string name;
  double seconds;
};

// Measures every kernel, with every number of slices that is worth trying, in turns; the first is
// the default. Waits for the device.
std::vector<KernelTime> time_kernels(gpu::Kernels& kernels, GemmMode mode, const GemmParams& p,
                                     Precision precision);

// Returns the name of the product in tuning files.
std::string problem_name(GemmMode mode, const GemmParams& p, Precision precision);

}  // namespace etr::ops
