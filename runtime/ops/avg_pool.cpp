// Mean over windows of [N, H, W, C], of a size or so many that they share the image.
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    {"window", OptionType::integer, "2", "height and width of the window", 1, 64, "pixels"},
    {"stride", OptionType::integer, "2", "step of the window in both directions", 1, 64, "pixels"},
    {"pad", OptionType::integer, "0", "border on each side that does not count", 0, 32, "pixels"},
    {"outputs", OptionType::integer, "0",
     "above 0: height and width of the result, whose windows share the image (adaptive)", 0, 4096,
     "pixels"},
};

struct Push {
  uint32_t h, w, c, oh, ow, window, stride, pad, adaptive;
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const Shape& x = in[0];
  require_rank("avg_pool", "x", x, 4, "[N, H, W, C]");
  if (const int64_t outputs = options.integer("outputs"))
    return {{x[0], outputs, outputs, x[3]}, {}};
  const int64_t window = options.integer("window"), stride = options.integer("stride");
  const int64_t pad = options.integer("pad");
  if (pad >= window)
    fail(Code::invalid_argument, "avg_pool: pad ", pad, " must be below the window ", window);
  if (x[1] + 2 * pad < window || x[2] + 2 * pad < window)
    fail(Code::invalid_argument, "avg_pool: window ", window, " is larger than the padded x ",
         shape_text(x));
  return {{x[0], (x[1] + 2 * pad - window) / stride + 1, (x[2] + 2 * pad - window) / stride + 1,
           x[3]},
          {}};
}

Push push_of(const OpCall& call) {
  const Shape &x = call.inputs[0].shape, &y = call.output.shape;
  const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
  const Options& o = call.options;
  return {u(x[1]), u(x[2]), u(x[3]), u(y[1]), u(y[2]), u(o.integer("window")),
          u(o.integer("stride")), u(o.integer("pad")), o.integer("outputs") > 0};
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_channels("avg_pool", {reads(call.inputs[0]), writes(call.output)}, push, push.c,
                    push.oh, static_cast<uint32_t>(call.output.shape[0]));
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_channels("avg_pool_grad", {reads(call.output_grad), writes(call.input_grads[0])}, push,
                    push.c, push.h, static_cast<uint32_t>(call.output.shape[0]));
}

}  // namespace

extern const OpSpec avg_pool_op;
const OpSpec avg_pool_op{"avg_pool", "mean over windows", kInputs, kOptions, shapes, forward,
                         backward};

}  // namespace etr::ops
