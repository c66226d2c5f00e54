// 1 for each row whose largest logit is its label. A metric: it has no gradient.
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"logits", InputRole::constant}, {"labels", InputRole::constant}};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  require_rank("accuracy", "logits", in[0], 2, "[N, classes]");
  if (in[1] != Shape{in[0][0]})
    fail(Code::invalid_argument, "accuracy: labels must be [", in[0][0], "], not ",
         shape_text(in[1]));
  return {{in[0][0]}, {}};
}

void forward(const OpCall& call, Emitter& emit) {
  const Shape& x = call.inputs[0].shape;
  const struct {
    uint32_t rows, classes;
  } push{static_cast<uint32_t>(x[0]), static_cast<uint32_t>(x[1])};
  emit.for_each("accuracy", {reads(call.inputs[0]), reads(call.inputs[1]), writes(call.output)},
                push, push.rows);
}

}  // namespace

extern const OpSpec accuracy_op;
const OpSpec accuracy_op{
    "accuracy", "whether the largest logit is the label", kInputs, {}, shapes, forward, nullptr};

}  // namespace etr::ops
