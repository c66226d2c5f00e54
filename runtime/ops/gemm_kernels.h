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

  // As in tuning files: "gemm_cpu_tn_8_32 0 2 0", with " / 4" behind it for four slices.
  std::string name() const;
};

// Those that the device can run, the first the one that is likely to be fastest; one of them runs everywhere.
std::vector<GemmKernel> kernels_for(const gpu::Device& device, GemmMode mode, const GemmParams& p,
                                    Precision precision);

// Splits of k that are worth trying, for a kernel of kernels_for().
std::vector<uint32_t> slices_for(const GemmKernel& kernel, GemmMode mode, const GemmParams& p);

// Of the tensor that A is read from.
int64_t elements_of_a(GemmMode mode, const GemmParams& p);

// Runs the kernel on a small problem with tiles that are not full, and compares it with the host: all numbers are
// small integers, so that every order of summation gives the same bits. A kernel that is not exact gets other numbers and is
// held to float32's accuracy. Waits for the device.
bool computes_rightly(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode);

// Whether computes_rightly() says so, which is asked once for each kernel of a device.
bool trusted(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode);

// Emits the product with this kernel, whose slices are chosen; see emit_gemm().
void emit_with(Emitter& emit, const GemmKernel& kernel, GemmParams p, const DeviceTensor& a,
               const DeviceTensor& b, const DeviceTensor& bias, const DeviceTensor& out,
               double flops);

// The name of the kernel that was fastest for the product; "" where there is but one. Waits for the device, for some tenths
// of a second.
std::string measure_kernels(gpu::Kernels& kernels, GemmMode mode, const GemmParams& p,
                            Precision precision);

// The product as tuning files name it.
std::string problem_name(GemmMode mode, const GemmParams& p, Precision precision);

}  // namespace etr::ops
