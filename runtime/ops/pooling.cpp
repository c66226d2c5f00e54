#include "ops/pooling.h"

#include "core/error.h"
#include "ops/onnx_node.h"

namespace etr::ops {

Shape pooled_shape(const char* op, const Options& options, const Shape& x) {
  require_rank(op, "x", x, 4, "[N, H, W, C]");
  const int64_t window = options.integer("window"), stride = options.integer("stride");
  const int64_t pad = options.integer("pad");
  if (pad >= window)
    fail(Code::invalid_argument, op, ": pad ", pad, " must be below the window ", window);
  if (x[1] + 2 * pad < window || x[2] + 2 * pad < window)
    fail(Code::invalid_argument, op, ": window ", window, " is larger than the padded x ",
         shape_text(x));
  return {x[0], (x[1] + 2 * pad - window) / stride + 1, (x[2] + 2 * pad - window) / stride + 1,
          x[3]};
}

PoolGeometry pool_geometry(const OpCall& call) {
  const Shape &x = call.inputs[0].shape, &y = call.output.shape;
  const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
  const Options& o = call.options;
  return {u(x[1]),
          u(x[2]),
          u(x[3]),
          u(y[1]),
          u(y[2]),
          u(o.integer("window")),
          u(o.integer("stride")),
          u(o.integer("pad"))};
}

std::string pool_to_onnx(OnnxNode& node, const char* op, int64_t outputs) {
  const Options& o = node.options();
  const Shape x = node.shape_in(0);
  std::vector<int64_t> window{o.integer("window"), o.integer("window")},
      stride{o.integer("stride"), o.integer("stride")};
  int64_t pad = o.integer("pad");
  if (outputs > 0) {
    if (x[1] % outputs || x[2] % outputs)
      node.lacks(cat("windows that share ", x[1], " x ", x[2], " pixels among ", outputs,
                     " outputs differ in size"));
    window = stride = {x[1] / outputs, x[2] / outputs};
    pad = 0;
  }
  return node.on_image(node.in(0), [&](const OnnxName& image) {
    return node.emit(op, {image},
                     OnnxAttributes()
                         .integers("kernel_shape", window)
                         .integers("pads", {pad, pad, pad, pad})
                         .integers("strides", stride));
  });
}

}  // namespace etr::ops
