// The losses of a detector (Liu et al. 2016): which box each anchor has to find, and how far its
// prediction is from that box. Formulas in shaders/box_match.comp and shaders/multibox_loss.comp.
#include <bit>

#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kMatchInputs[] = {{"x", InputRole::constant}, {"boxes", InputRole::constant}};
constexpr OptionSpec kMatch[] = {
    {"iou_threshold", OptionType::number, "0.5",
     "intersection over union above which an anchor is matched to a box", 0, 1},
};
constexpr OpInput kLossInputs[] = {
    {"x"}, {"boxes", InputRole::constant}, {"match", InputRole::constant}};
constexpr OptionSpec kLoss[] = {
    {"negative_ratio", OptionType::number, "3",
     "number of background anchors that count, for each matched anchor: those with the largest "
     "loss",
     0, 1e6},
};

struct Push {
  uint32_t samples, anchors, columns, most;
  float option;
};

void require_boxes(const char* op, const std::vector<Shape>& in) {
  require_rank(op, "x", in[0], 3, "[N, anchors, 1 + classes + 8] (layer 'box_head')");
  require_rank(op, "boxes", in[1], 3, "[N, boxes, 5]");
  if (in[0][0] != in[1][0] || in[1][2] != 5 || in[0][2] < 10)
    fail(Code::invalid_argument, op, ": x ", shape_text(in[0]), " and boxes ", shape_text(in[1]),
         " must be [N, anchors, 1 + classes + 8] and [N, boxes, 5]");
  if (in[0][1] >= 1 << 24)
    fail(Code::invalid_argument, op, ": ", in[0][1], " anchors; there may be ", (1 << 24) - 1);
}

Push push_of(const OpCall& call, const char* option) {
  const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
  const Shape& x = call.inputs[0].shape;
  return {u(x[0]), u(x[1]), u(x[2]), u(call.inputs[1].shape[1]),
          static_cast<float>(call.options.number(option))};
}

// With the background.
uint64_t classes_of(const Push& push) { return push.columns - 8; }

OpShapes match_shapes(const Options&, const std::vector<Shape>& in) {
  require_boxes("box_match", in);
  return {{in[0][0], in[0][1]}, {}};
}

void match(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call, "iou_threshold");
  const DeviceTensor best = emit.scratch({push.samples, push.most});
  emit.for_rows("box_best", {reads(call.inputs[0]), reads(call.inputs[1]), writes(best)}, push,
                push.samples * push.most, push.anchors);
  emit.require_iterations(Emitter::in_turn(call.output.count()) * (3 + uint64_t{2} * push.most));
  emit.for_each("box_match",
                {reads(call.inputs[0]), reads(call.inputs[1]), reads(best), writes(call.output)},
                push, call.output.count());
}

OpShapes loss_shapes(const Options&, const std::vector<Shape>& in) {
  require_boxes("multibox_loss", in);
  const Shape rows{in[0][0], in[0][1]};
  if (in[2] != rows)
    fail(Code::invalid_argument, "multibox_loss: match is ", shape_text(in[2]), ", not ",
         shape_text(rows));
  return {rows, {rows, {rows[0], 2}}};  // cross-entropies, and which background anchors count
}

void loss(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call, "negative_ratio");
  const DeviceTensor &x = call.inputs[0], &boxes = call.inputs[1], &found = call.inputs[2];
  const DeviceTensor &entropy = call.saved[0], &picked = call.saved[1];
  const uint32_t rows = call.output.count();
  emit.require_iterations(Emitter::in_turn(rows) * (2 + 2 * classes_of(push)));
  emit.for_each("multibox_entropy", {reads(x), reads(boxes), reads(found), writes(entropy)}, push,
                rows);
  emit.for_rows("multibox_pick", {reads(found), reads(entropy), writes(picked)}, push, push.samples,
                push.anchors, {},
                // Most of them to find a threshold bit by bit, and the last anchor at it by halves.
                36 + static_cast<uint32_t>(std::bit_width(push.anchors)));
  emit.for_each(
      "multibox_loss",
      {reads(x), reads(boxes), reads(found), reads(entropy), reads(picked), writes(call.output)},
      push, rows);
}

void loss_grad(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call, "negative_ratio");
  const uint32_t rows = call.output_grad.count();
  emit.require_iterations(Emitter::in_turn(rows) * (8 + 3 * classes_of(push)));
  emit.for_each(
      "multibox_loss_grad",
      {reads(call.inputs[0]), reads(call.inputs[1]), reads(call.inputs[2]), reads(call.saved[0]),
       reads(call.saved[1]), reads(call.output_grad), writes(call.input_grads[0])},
      push, rows);
}

}  // namespace

extern const OpSpec box_match_op, multibox_loss_op;
const OpSpec box_match_op{
    .name = "box_match",
    .doc = "the box that each anchor is to find",
    .inputs = kMatchInputs,
    .options = kMatch,
    .shapes = match_shapes,
    .forward = match,
};
const OpSpec multibox_loss_op{
    .name = "multibox_loss",
    .doc = "loss of classes and boxes, for each anchor (Liu et al. 2016)",
    .inputs = kLossInputs,
    .options = kLoss,
    .shapes = loss_shapes,
    .forward = loss,
    .backward = loss_grad,
};

}  // namespace etr::ops
