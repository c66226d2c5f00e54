// Whether a device's driver computes a product kernel as it should.
#pragma once

#include "ops/gemm.h"

namespace etr::ops {

// A kernel for products, as ops/gemm.cpp chooses it.
struct GemmKernel {
  std::string shader;
  std::vector<uint32_t> constants;
  uint32_t tile_rows, tile_columns;
  uint32_t wanted_groups;  // enough to fill the device
};

// Runs the kernel on a small problem with tiles that are not full, and compares it with the host: all numbers are
// small integers, so that every order of summation gives the same bits. Waits for the device.
bool computes_rightly(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode);

}  // namespace etr::ops
