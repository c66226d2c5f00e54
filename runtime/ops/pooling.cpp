#include "ops/pooling.h"

#include "core/error.h"

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

}  // namespace etr::ops
