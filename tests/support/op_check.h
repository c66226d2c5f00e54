// Compares an op's kernels with a reference in double precision.
//
// A test gives only the forward reference. The gradient reference is the central difference, in
// double, of sum(output * upstream) with a random upstream gradient, as for an op in the middle of
// a graph.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "ops/op.h"
#include "support/device.h"

namespace etr::test {

using Doubles = std::vector<double>;

struct OpCase {
  std::string op;
  std::string options = "{}";
  std::vector<Shape> inputs;
  // Maps the values of all inputs to those of the output.
  std::function<Doubles(const std::vector<Doubles>&)> reference;
  // Integer labels in [0, classes) for this input; -1: no labels.
  int label_input = -1;
  int classes = 0;
  bool gradient = true;
  double tolerance = 2e-5;           // of the forward pass, relative to the largest value
  double gradient_tolerance = 2e-4;  // likewise
  uint32_t valid_rows = 1u << 30;
  uint64_t seed = 1;
  double low = -1, high = 1;  // of the inputs' values
  bool training = true;
  float label_smoothing = 0;  // of the step's values
  // Operands are rounded to it before the reference gets them; for ops that are a single product.
  ops::Precision precision = ops::Precision::fp32;
  // Turns the random values into valid ones, which are then rounded to float.
  std::function<void(std::vector<Doubles>&)> adjust;
  // Maps the values of all inputs and the upstream gradient to the gradients by the inputs. For
  // cases too large for differences of the reference, which serve if it is empty.
  std::function<std::vector<Doubles>(const std::vector<Doubles>&, const Doubles&)> gradients = {};
};

// Rounds x to a shorter format, to nearest, ties to even.
double round_to(ops::Precision precision, double x);

// Runs forward and backward passes with these kernels, or those of `family`, and expects both to
// agree with the reference.
void check_op(const OpCase& c, gpu::Kernels& k);
void check_op(const OpCase& c, gpu::KernelFamily family);

// Calls check_op for every family of the device.
void check_op(const OpCase& c);

}  // namespace etr::test
