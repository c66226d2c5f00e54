// Weight of each label in a loss: 0 for the ignored label, else the weight of its class.
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"labels", InputRole::constant, false, DType::i32},
                               {"class_weights", InputRole::constant, true}};
constexpr OptionSpec kOptions[] = {
    {"ignored", OptionType::integer, "-1", "label of rows that are ignored", -2147483647,
     2147483647},
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  if (in.size() > 1) require_rank("label_weights", "class_weights", in[1], 1, "[classes]");
  return {in[0], {}};
}

void forward(const OpCall& call, Emitter& emit) {
  const bool weighted = call.inputs.size() > 1;
  const struct {
    uint32_t rows, count;
    int32_t ignored;
  } push{call.output.count(), weighted ? call.inputs[1].count() : 0,
         static_cast<int32_t>(call.options.integer("ignored"))};
  emit.for_each("label_weights",
                {reads(call.inputs[0]), reads(call.inputs[weighted ? 1 : 0]), writes(call.output)},
                push, push.rows);
}

}  // namespace

extern const OpSpec label_weights_op;
const OpSpec label_weights_op{
    .name = "label_weights",
    .doc = "what each label counts",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
};

}  // namespace etr::ops
