// Element (row, k) of a product's A, for kernels that bring tiles into shared memory. MODE is a macro or a constant; the
// shader has declared p, kJoins, a[], side[] and residual[]. row < m and k < the slice's end are the caller's.
float element_of_a(uint row, uint k) {
  if (MODE == MODE_NN) return a[row * p.k + k];
  if (MODE == MODE_TN) return a[k * p.m + row];
  // conv and conv_dx split k into (tap, channel) and the row into a pixel; conv_dw the other way.
  const bool by_row = MODE == MODE_CONV_DW;
  const uint channels = by_row ? p.c : p.kc;
  const uint t = (by_row ? row : k) / channels, channel = (by_row ? row : k) % channels;
  const uint at = by_row ? k : row;
  const uvec2 size = MODE == MODE_CONV_DX ? uvec2(p.h, p.w) : uvec2(p.oh, p.ow);
  const ivec2 tap = ivec2(t / p.kw, t % p.kw) * int(p.dilation);
  const ivec2 pad = ivec2(p.pad_y, p.pad_x);
  const uint line = at / size.y;
  const ivec2 pixel = ivec2(line % size.x, at % size.y);
  const uint image = line / size.x;
  ivec2 q;
  uvec2 source;
  if (MODE == MODE_CONV_DX) {
    const ivec2 scaled = pixel + pad - tap;
    q = scaled / int(p.stride);
    if (any(lessThan(scaled, ivec2(0))) || q * int(p.stride) != scaled) return 0.0;
    source = uvec2(p.oh, p.ow);
  } else {
    q = pixel * ivec2(p.stride, p.stride_x) + tap - pad;
    source = uvec2(p.h, p.w);
  }
  if (any(greaterThanEqual(uvec2(q), source))) return 0.0;  // negative wraps: large
  return a[(((image * source.x + q.x) * source.y + q.y) * p.groups + GROUP) * channels + channel];
}

// What is written as C's element at `at`, in this column.
float finished(float sum, uint column, uint at) {
  float value = sum;
  if ((p.epilogue & BIAS) != 0) value += side[GROUP * p.n + column];
  if ((kJoins & RESIDUAL) != 0) value += residual[at];
  if ((p.epilogue & RELU) != 0) value = max(value, 0.0);
  if ((kJoins & KEEP) != 0) value = side[at] > 0.0 ? value : 0.0;
  return value;
}

// Where C's element (row, column) of this slice and group lies.
uint place_in_c(uint row, uint column, uint spread) {
  const uint to =
      spread != 0 ? (row / p.ow * p.line_step + p.line_offset) * p.ow + row % p.ow : row;
  return ((SLICE * p.m + to) * p.groups + GROUP) * p.n + column;
}
