// Reads elements of a product's A and writes C, for kernels that load tiles into shared memory.
// MODE is a macro or a constant. Before it includes this file, the shader must include finite.glsl and
// declare p, kSpread, kWide, kJoins, side[], residual[], and b[] and c[], also as vectors wide_b[] and
// wide_c[].
//
// The place of an element of A is the sum of a part that depends on its row and a part that depends
// on k. For convolutions both need divisions, so an invocation computes each only once: the row's part
// stays, and the position along k moves on by the depth of a tile.

struct Part {
  int offset;  // in elements
  ivec2 at;    // y and x, whose sums must lie within the image (1 x 1 if there is none)
};

#define NOWHERE ivec2(1 << 29)  // the place of rows and of k past the end

#define CHANNELS_APART int(p.groups * (MODE == MODE_CONV_DW ? p.c : p.kc))  // from one pixel to the next

Part part_of(int offset, ivec2 at, int width, bool exists) {
  return Part(offset + (at.x * width + at.y) * CHANNELS_APART, exists ? at : NOWHERE);
}

// Divides an index by the sizes of its last two dimensions.
uvec3 split(uint index, uvec2 sizes) {
  const uint line = index / sizes.y, first = line / sizes.x;
  return uvec3(first, line - first * sizes.x, index - line * sizes.y);
}

Part part_of_row(uint row) {
  const bool exists = row < p.m;
  const ivec2 pad = ivec2(p.pad_y, p.pad_x);
  if (MODE == MODE_NN || MODE == MODE_TN)
    return Part(int(MODE == MODE_NN ? row * p.k : row), exists ? ivec2(0) : NOWHERE);
  if (MODE == MODE_CONV_DW) {
    const uvec3 tap = split(row, uvec2(p.kw, p.c));
    return part_of(int(GROUP * p.c + tap.z), ivec2(tap.xy * p.dilation) - pad, int(p.w), exists);
  }
  const bool forward = MODE == MODE_CONV;
  const uvec2 size = forward ? uvec2(p.h, p.w) : uvec2(p.oh, p.ow);
  const uvec3 pixel = split(row, forward ? uvec2(p.oh, p.ow) : uvec2(p.h, p.w));
  const int offset = int(pixel.x * size.x * size.y) * CHANNELS_APART + int(GROUP * p.kc);
  if (forward) return part_of(offset, ivec2(pixel.yz * uvec2(p.stride, p.stride_x)) - pad, int(p.w), exists);
  const ivec2 at = ivec2(pixel.yz) + pad;
  // With a stride, only place_of_a() knows which pixel, if any, a row and a tap share.
  if (p.stride != 1) return Part(offset, exists ? at : NOWHERE);
  return part_of(offset, at, int(p.ow), exists);
}

// A position along k: the tap (y, x, channel) or pixel (image, y, x) of a convolution.
#define SIZES_OF_K (MODE == MODE_CONV_DW ? uvec2(p.oh, p.ow) : uvec2(p.kw, p.kc))
uvec3 position_of(uint k) {
  return MODE == MODE_NN || MODE == MODE_TN ? uvec3(0) : split(k, SIZES_OF_K);
}

// Returns the position `step` further. Both are below the sizes, so that each carries once.
uvec3 moved(uvec3 position, uvec3 step) {
  if (MODE == MODE_NN || MODE == MODE_TN) return position;
  position += step;
  if (position.z >= SIZES_OF_K.y) position.yz += uvec2(1, -SIZES_OF_K.y);
  if (position.y >= SIZES_OF_K.x) position.xy += uvec2(1, -SIZES_OF_K.x);
  return position;
}

Part part_of_k(uvec3 position, uint k, bool exists) {
  if (MODE == MODE_NN || MODE == MODE_TN)
    return Part(int(MODE == MODE_NN ? k : k * p.m), exists ? ivec2(0) : NOWHERE);
  if (MODE == MODE_CONV_DW)
    return part_of(int(position.x * p.h * p.w) * CHANNELS_APART, ivec2(position.yz * uvec2(p.stride, p.stride_x)),
                   int(p.w), exists);
  const ivec2 tap = ivec2(position.xy * p.dilation);
  if (MODE == MODE_CONV) return part_of(int(position.z), tap, int(p.w), exists);
  if (p.stride != 1) return Part(int(position.z), exists ? -tap : NOWHERE);
  return part_of(int(position.z), -tap, int(p.ow), exists);
}

// Returns the index of an element of A, or -1 for a zero.
int place_of_a(Part row, Part k) {
  int offset = row.offset + k.offset;
  ivec2 at = row.at + k.at;
  if (MODE == MODE_NN || MODE == MODE_TN) return at.x == 0 ? offset : -1;
  const uvec2 size = MODE == MODE_CONV_DX ? uvec2(p.oh, p.ow) : uvec2(p.h, p.w);
  if (MODE == MODE_CONV_DX && p.stride != 1) {
    const ivec2 scaled = at;
    at /= int(p.stride);
    if (any(lessThan(scaled, ivec2(0))) || at * int(p.stride) != scaled) return -1;
    offset += (at.x * int(p.ow) + at.y) * CHANNELS_APART;
  }
  return any(greaterThanEqual(uvec2(at), size)) ? -1 : offset;  // negative values wrap around to large ones
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
uint place_in_c(uint row, uint column) {
  const uint to = kSpread != 0 ? (row / p.ow * p.line_step + p.line_offset) * p.ow + row % p.ow : row;
  return ((SLICE * p.m + to) * p.groups + GROUP) * p.n + column;
}

// Returns four columns of B at k; zeros past the ends.
vec4 four_of_b(uint k, uint column, uint end) {
  const uint at = (k * p.groups + GROUP) * p.n + column;
  if ((kWide & 2) != 0) return k < end && column < p.n ? wide_b[at / 4] : vec4(0);
  vec4 out_;
  [[unroll]] for (uint i = 0; i < 4; ++i) out_[i] = k < end && column + i < p.n ? b[at + i] : 0.0;
  return out_;
}

// Writes the sums of four columns of C, as far as there are such elements.
void write_four(uint row, uint column, vec4 sums) {
  if (row >= p.m || column >= p.n) return;
  const uint at = place_in_c(row, column);
  [[unroll]] for (uint i = 0; i < 4; ++i)
    if (column + i < p.n) sums[i] = finished(sums[i], column + i, at + i);
  if ((kWide & 2) != 0) {  // columns are a multiple of four
    wide_c[at / 4] = sums;
  } else {
    [[unroll]] for (uint i = 0; i < 4; ++i)
      if (column + i < p.n) c[at + i] = sums[i];
  }
}
