// Maximum over windows of [N, H, W, C].
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    {"window", OptionType::integer, "2", "height and width of the window", 1, 64, "pixels"},
    {"stride", OptionType::integer, "2", "step of the window in both directions", 1, 64, "pixels"},
    {"pad", OptionType::integer, "0", "border on each side that never wins", 0, 32, "pixels"},
};

struct Push {
  uint32_t h, w, c, oh, ow, window, stride, pad;
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const Shape& x = in[0];
  require_rank("max_pool", "x", x, 4, "[N, H, W, C]");
  const int64_t window = options.integer("window"), stride = options.integer("stride");
  const int64_t pad = options.integer("pad");
  if (pad >= window)
    fail(Code::invalid_argument, "max_pool: pad ", pad, " must be below the window ", window);
  if (x[1] + 2 * pad < window || x[2] + 2 * pad < window)
    fail(Code::invalid_argument, "max_pool: window ", window, " is larger than the padded x ",
         shape_text(x));
  const Shape y{x[0], (x[1] + 2 * pad - window) / stride + 1,
                (x[2] + 2 * pad - window) / stride + 1, x[3]};
  return {y, {y}};  // the winning tap of each output
}

Push push_of(const OpCall& call) {
  const Shape &x = call.inputs[0].shape, &y = call.output.shape;
  const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
  return {u(x[1]),
          u(x[2]),
          u(x[3]),
          u(y[1]),
          u(y[2]),
          u(call.options.integer("window")),
          u(call.options.integer("stride")),
          u(call.options.integer("pad"))};
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_channels("max_pool", {reads(call.inputs[0]), writes(call.output), writes(call.saved[0])},
                    push, push.c, push.oh, static_cast<uint32_t>(call.output.shape[0]));
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  const auto batch = static_cast<uint32_t>(call.output.shape[0]);
  const std::vector<gpu::Binding> bindings{reads(call.saved[0]), reads(call.output_grad),
                                           writes(call.input_grads[0])};
  if (push.window > push.stride) {
    emit.for_channels("max_pool_grad", bindings, push, push.c, push.h, batch);
    return;
  }
  const auto covers = [&](uint32_t size, uint32_t outputs) {
    return push.window == push.stride && outputs * push.stride >= size + push.pad;
  };
  if (!covers(push.h, push.oh) || !covers(push.w, push.ow))
    emit.add(gpu::Fill{call.input_grads[0].buffer, 0});
  emit.for_channels("max_pool_grad_apart", bindings, push, push.c, push.oh, batch);
}

}  // namespace

extern const OpSpec max_pool_op;
const OpSpec max_pool_op{"max_pool", "maximum over windows", kInputs, kOptions, shapes, forward,
                         backward};

}  // namespace etr::ops
