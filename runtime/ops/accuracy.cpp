// 1 (or the row's weight) for each row whose largest logit is its label. A metric: no gradient.
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"logits", InputRole::constant},
                               {"labels", InputRole::constant, false, DType::i32},
                               {"weights", InputRole::constant, true}};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  require_labels("accuracy", in);
  return {in[1], {}};
}

void forward(const OpCall& call, Emitter& emit) {
  const bool weighted = call.inputs.size() > 2;
  const auto classes = static_cast<uint32_t>(call.inputs[0].shape.back());
  const struct { uint32_t rows, classes, weighted; } push{call.output.count(), classes, weighted};
  emit.for_rows("accuracy",
                {reads(call.inputs[0]), reads(call.inputs[1]), reads(call.inputs[weighted ? 2 : 0]),
                 writes(call.output)},
                push, push.rows, classes);
}

}  // namespace

extern const OpSpec accuracy_op;
const OpSpec accuracy_op{
    .name = "accuracy",
    .doc = "whether the largest logit is the label",
    .inputs = kInputs,
    .shapes = shapes,
    .forward = forward,
};

}  // namespace etr::ops
