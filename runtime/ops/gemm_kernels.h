// The kernels that compute a product, and how one of them is chosen.
#pragma once

#include <string>
#include <vector>

#include "ops/gemm.h"

namespace etr::ops {

struct GemmKernel {
  std::string shader;
  std::vector<uint32_t> constants;
  uint32_t tile_rows, tile_columns;
  uint32_t wanted_groups;              // enough to fill the device
  Precision rounds = Precision::fp32;  // its operands, to this by itself
  bool exact = true;                   // computes products of small integers without rounding
  uint32_t slices = 0;                 // of k; 0: not chosen yet
  uint32_t pad = 0;  // elements that rows of A and B lie further apart than they are long
  uint32_t run = 1;  // rows that belong together: m is a multiple for each line
  uint32_t can_join =
      0;  // of kResidual, ...: what it can do with C besides (shaders/gemm_params.glsl)

  static constexpr uint32_t kResidual = 1, kKeep = 2, kMoments = 4;

  // The constants of the kernel that does `joins` too.
  std::vector<uint32_t> constants_with(uint32_t joins) const;

  // As in tuning files: "gemm_cpu_tn_8_32 0 2 0", with " / 4" after it for four slices.
  std::string name() const;
};

// Those that the device can run, the first the one that is likely to be fastest; one of them runs everywhere.
std::vector<GemmKernel> kernels_for(const gpu::Device& device, GemmMode mode, const GemmParams& p,
                                    Precision precision);

// Splits of k that are worth trying, for a kernel of kernels_for().
std::vector<uint32_t> slices_for(const GemmKernel& kernel, GemmMode mode, const GemmParams& p);

// m of GemmMode::line: pairs of pixels, as many to a line as whole runs of the kernel need.
uint32_t rows_of_lines(const GemmKernel& kernel, const GemmParams& p);

// Of the tensor that A is read from, and of that which C is written to (a slice of it).
int64_t elements_of_a(GemmMode mode, const GemmParams& p);
int64_t elements_of_c(GemmMode mode, const GemmParams& p);

// Runs the kernel on a small problem with tiles that are not full, and compares it with the host: all numbers are
// small integers, so that every order of summation gives the same bits. A kernel that is not exact gets other numbers and is
// held to float32's accuracy. Waits for the device.
bool computes_rightly(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode,
                      uint32_t joins = 0);

// Whether computes_rightly() says so, which is asked once for each kernel of a device.
bool trusted(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode, uint32_t joins = 0);

// What the dispatch of a product tells of itself: its bindings are a, b, side, residual and c.
struct Product final : gpu::Fusible {
  GemmKernel kernel;
  GemmMode mode;
  GemmParams params;
  uint32_t joins = 0;
};

// The dispatch of a product with more of `joins`, and of RELU if `relu`; empty where its kernel cannot do that, or not as the
// host does.
gpu::Dispatch with_joins(gpu::Kernels& kernels, const gpu::Dispatch& product, uint32_t joins,
                         bool relu);

// Emits the product with this kernel, whose slices are chosen; see emit_gemm().
void emit_with(Emitter& emit, const GemmKernel& kernel, GemmMode mode, GemmParams p,
               const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& bias,
               const DeviceTensor& out, double flops);

// The name of the kernel that was fastest for the product; "" where there is but one. Waits for the device, for some tenths
// of a second.
std::string measure_kernels(gpu::Kernels& kernels, GemmMode mode, const GemmParams& p,
                            Precision precision);

// The product as tuning files name it.
std::string problem_name(GemmMode mode, const GemmParams& p, Precision precision);

}  // namespace etr::ops
