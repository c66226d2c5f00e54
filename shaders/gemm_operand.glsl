// Reads elements of a product's A and writes C, for kernels that load tiles into shared memory.
// MODE is a macro or a constant. The shader must declare p, kJoins, a[], side[] and residual[], and
// include finite.glsl, before it includes this file.
//
// The place of an element of A has a part that depends on its row and a part that depends on k.
// They are computed separately, because for convolutions both need divisions: an invocation keeps
// the row's part from tile to tile, and shares the part of k among its loads. For a convolution
// each part is (y, x, image or channel), otherwise (row or k, 0, 0). Its last component is -1 if
// there is no such row or k.

// Pixel `at` of `count` pixels, which are those of images of `size`.
ivec3 part_of_pixel(uint at, uvec2 size, uint count) {
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
  if (any(greaterThanEqual(uvec2(at), size))) return 0.0;  // negative values wrap around to large ones
  const bool image_by_k = MODE == MODE_CONV_DW;
  const uint image = image_by_k ? k.z : row.z, channel = image_by_k ? row.z : k.z;
  const uint channels = image_by_k ? p.c : p.kc;
  return a[(((image * size.x + at.x) * size.y + at.y) * p.groups + GROUP) * channels + channel];
}

// Returns the value to write at `at` in C, in this column, for a sum: applies the epilogue.
float finished(float sum, uint column, uint at) {
  float value = sum;
  if ((p.epilogue & BIAS) != 0) value += side[GROUP * p.n + column];
  if ((kJoins & RESIDUAL) != 0) value += residual[at];
  if ((p.epilogue & RELU) != 0) value = relu_of(value);
  if ((kJoins & KEEP) != 0) value = relu_grad(side[at], value);
  return value;
}

// Returns the index in C of the element (row, column) of this slice and group.
uint place_in_c(uint row, uint column, uint spread) {
  const uint to =
      spread != 0 ? (row / p.ow * p.line_step + p.line_offset) * p.ow + row % p.ow : row;
  return ((SLICE * p.m + to) * p.groups + GROUP) * p.n + column;
}
