// Elements of a product's A, for kernels that bring tiles into shared memory. MODE is a macro or a constant; the shader has
// declared p, kJoins, a[], side[] and residual[], and included finite.glsl.
//
// Of a convolution's A, what a row says of an element's place and what k says of it are found apart, because they take
// divisions: invocations keep the former from tile to tile, and share the latter among their loads. Both are (y, x, image or
// channel); the last is -1 where there is no such row or k. Else they are (row or k, 0, 0).
ivec3 part_of_pixel(uint at, uvec2 size, uint count) {  // pixels of images of `size`, `count` in all
  const uint line = at / size.y, image = line / size.x;
  return ivec3(line - image * size.x, at - line * size.y, at < count ? int(image) : -1);
}

ivec3 part_of_tap(uint at, uint channels, uint count) {
  const uint t = at / channels, ky = t / p.kw;
  return ivec3(ivec2(ky, t - ky * p.kw) * int(p.dilation), at < count ? int(at - t * channels) : -1);
}

ivec3 part_of_row(uint row) {
  const ivec3 pad = ivec3(p.pad_y, p.pad_x, 0), stride = ivec3(p.stride, p.stride_x, 1);
  if (MODE == MODE_CONV) return part_of_pixel(row, uvec2(p.oh, p.ow), p.m) * stride - pad;
  if (MODE == MODE_CONV_DX) return part_of_pixel(row, uvec2(p.h, p.w), p.m) + pad;
  if (MODE == MODE_CONV_DW) return part_of_tap(row, p.c, p.m) - pad;
  return ivec3(row, 0, row < p.m ? 0 : -1);
}

ivec3 part_of_k(uint k, uint end) {
  if (MODE == MODE_CONV || MODE == MODE_CONV_DX) return part_of_tap(k, p.kc, end);
  if (MODE == MODE_CONV_DW)
    return part_of_pixel(k, uvec2(p.oh, p.ow), end) * ivec3(p.stride, p.stride_x, 1);
  return ivec3(k, 0, k < end ? 0 : -1);
}

float element_of_a(ivec3 row, ivec3 k) {
  if (row.z < 0 || k.z < 0) return 0.0;
  if (MODE == MODE_NN) return a[uint(row.x) * p.k + uint(k.x)];
  if (MODE == MODE_TN) return a[uint(k.x) * p.m + uint(row.x)];
  uvec2 size = uvec2(p.h, p.w);
  ivec2 at = row.xy + k.xy;
  if (MODE == MODE_CONV_DX) {
    const ivec2 scaled = row.xy - k.xy;
    at = p.stride == 1 ? scaled : scaled / int(p.stride);
    if (any(lessThan(scaled, ivec2(0))) || at * int(p.stride) != scaled) return 0.0;
    size = uvec2(p.oh, p.ow);
  }
  if (any(greaterThanEqual(uvec2(at), size))) return 0.0;  // negative wraps: large
  const bool image_by_k = MODE == MODE_CONV_DW;
  const uint image = image_by_k ? k.z : row.z, channel = image_by_k ? row.z : k.z;
  const uint channels = image_by_k ? p.c : p.kc;
  return a[(((image * size.x + at.x) * size.y + at.y) * p.groups + GROUP) * channels + channel];
}

// What is written as C's element at `at`, in this column.
float finished(float sum, uint column, uint at) {
  float value = sum;
  if ((p.epilogue & BIAS) != 0) value += side[GROUP * p.n + column];
  if ((kJoins & RESIDUAL) != 0) value += residual[at];
  if ((p.epilogue & RELU) != 0) value = relu_of(value);
  if ((kJoins & KEEP) != 0) value = relu_grad(side[at], value);
  return value;
}

// Where C's element (row, column) of this slice and group lies.
uint place_in_c(uint row, uint column, uint spread) {
  const uint to =
      spread != 0 ? (row / p.ow * p.line_step + p.line_offset) * p.ow + row % p.ow : row;
  return ((SLICE * p.m + to) * p.groups + GROUP) * p.n + column;
}
