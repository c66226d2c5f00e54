// The same elements with another shape: no copy.
#include <functional>
#include <numeric>

#include "core/error.h"
#include "ops/onnx_node.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    {"shape", OptionType::integers, nullptr,
     "new shape without the batch axis; one dimension may be -1 and is then inferred", -1, 1e9},
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const Shape& x = in[0];
  if (x.empty()) fail(Code::invalid_argument, "reshape: x has no batch axis");
  const int64_t elements = std::accumulate(x.begin() + 1, x.end(), int64_t{1}, std::multiplies<>());
  Shape out{x[0]};
  int64_t known = 1;
  size_t open = 0;
  for (const int64_t size : options.integers("shape")) {
    if (size < 0) open = open ? SIZE_MAX : out.size();
    known *= size < 0 ? 1 : size;
    out.push_back(size);
  }
  if (open == SIZE_MAX) fail(Code::invalid_argument, "reshape: 'shape' has more than one -1");
  if (open && known > 0) out[open] = elements / known;
  if (known == 0 || element_count(out) != element_count(x))
    fail(Code::invalid_argument, "reshape: x ", shape_text(x), " has ", elements,
         " elements a sample, which do not make ", shape_text(Shape(out.begin() + 1, out.end())));
  return {out, {}};
}

void no_dispatch(const OpCall&, Emitter&) {}

std::string to_onnx(OnnxNode& node) {
  return node.reshape(node.in(0), with_free_batch(node.shape()));
}

}  // namespace

extern const OpSpec reshape_op;
const OpSpec reshape_op{
    .name = "reshape",
    .doc = "changes the shape",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = no_dispatch,
    .backward = no_dispatch,
    .view = true,
    .to_onnx = to_onnx,
    .axes = AxesRule::reshaped,
};

}  // namespace etr::ops
