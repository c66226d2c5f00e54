#include "ops/parts.h"

#include <functional>
#include <numeric>

#include "core/error.h"
#include "ops/gemm.h"

namespace etr::ops {
namespace {

struct Push {
  uint32_t rows, count, slices, x_rows;
  uint32_t x_stride, x_offset, y_stride, y_offset;
};

// The axes before the part's axis form rows. The part is `count` elements at `offset` of each row
// of `stride` elements.
struct Rows {
  uint32_t rows, count, stride, offset;
};

Rows rows_of(const Shape& large, const Part& part) {
  const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
  const auto at = large.begin() + static_cast<ptrdiff_t>(part.axis);
  const int64_t rows = std::accumulate(large.begin(), at, int64_t{1}, std::multiplies<>());
  const int64_t inner = std::accumulate(at + 1, large.end(), int64_t{1}, std::multiplies<>());
  return {u(rows), u(part.length * inner), u(*at * inner), u(part.begin * inner)};
}

void emit_copy(Emitter& emit, const DeviceTensor& from, const DeviceTensor& to, Push push) {
  push.slices = row_slices(*emit.device(), push.rows, push.count);
  emit.for_channels("copy_part", {reads(from), writes(to)}, push, push.count, push.slices, 1,
                    {push.x_rows < push.rows});
}

}  // namespace

void emit_take_part(Emitter& emit, const DeviceTensor& large, const Part& part,
                    const DeviceTensor& small) {
  const Rows r = rows_of(large.shape, part);
  emit_copy(emit, large, small, {r.rows, r.count, 1, r.rows, r.stride, r.offset, r.count, 0});
}

void emit_put_part(Emitter& emit, const DeviceTensor& small, const Part& part,
                   const DeviceTensor& large) {
  const Rows r = rows_of(large.shape, part);
  emit_copy(emit, small, large,
            {r.rows, r.count, 1, small.count() / r.count, r.count, 0, r.stride, r.offset});
}

size_t axis_of(const char* op, int64_t axis, const Shape& x) {
  const auto rank = static_cast<int64_t>(x.size());
  const int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 1 || at >= rank)
    fail(Code::invalid_argument, op, ": x ", shape_text(x), " has no axis ", axis,
         " beside the batch's (0)");
  return static_cast<size_t>(at);
}

}  // namespace etr::ops
