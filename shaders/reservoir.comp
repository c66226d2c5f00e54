#version 450
// Examples u8 [H, W, C] that stay in device memory, `words` words each, and the batch f32 [n, h, w, C] that is
// made of them: pixels put where a record says, black outside, brightness adjusted, then normalised.
//   put   reservoir[slot] = pixels[s], for records s with new pixels   (0 records, 1 pixels, 2 reservoir)
//   mean  m[s] = mean of the values that sample s will show            (0 records, 1 reservoir, 2 m)
//   view  y[s, i, j, c] = adjusted(reservoir[slot](i, j, c)) * scale[c] + shift[c]
//                                  (0 records, 1 reservoir, 2 m, 3 scale and shift [2, C], 4 y)
// A record (train/reservoir.cpp mirrors it): slot, is new, origin y x, step y x, top, bottom, left, right,
// contrast, brightness, adjusts, three spare.
// Dispatch: put: channels (words) by samples. mean: a workgroup for each sample. view: channels (w C) by samples.
//! variant reservoir_put -DPUT
//! variant reservoir_mean -DMEAN
//! variant reservoir_view
#extension GL_GOOGLE_include_directive : require
#define PARAMS uint samples, words, width, channels, view_height, view_width;

#if defined(PUT)
#define BUFFERS(B) B(0, Uints, records) B(1, Uints, pixels) B(2, Uints, reservoir)
#elif defined(MEAN)
#define BUFFERS(B) B(0, Uints, records) B(1, Uints, reservoir) B(2, Floats, means)
#else
#define BUFFERS(B) \
  B(0, Uints, records) B(1, Uints, reservoir) B(2, Floats, means) B(3, Floats, affine) B(4, Floats, y)
#endif
#include "interface.glsl"
#if defined(MEAN)
#include "row.glsl"
#else
layout(local_size_x_id = 0) in;
#endif

#define RECORD(s, i) records.v[(s) * 16 + (i)]
#define IS_NEW 1
#define ADJUSTS 12

#if !defined(PUT)
// The value of channel c in row i, column j of what sample s shows.
uint value_of(uint s, uint i, uint j, uint c) {
  const int row = int(RECORD(s, 2)) + int(RECORD(s, 4)) * int(i);
  const int column = int(RECORD(s, 3)) + int(RECORD(s, 5)) * int(j);
  if (row < int(RECORD(s, 6)) || row >= int(RECORD(s, 7)) || column < int(RECORD(s, 8)) ||
      column >= int(RECORD(s, 9)))
    return 0;
  const uint at = (uint(row) * width + uint(column)) * channels + c;
  return reservoir.v[RECORD(s, 0) * words + at / 4] >> (at % 4 * 8) & 255;
}
#endif

#if defined(PUT)
void main() {
  const uint w = CHANNEL, s = gl_WorkGroupID.y;
  if (w < words && RECORD(s, IS_NEW) != 0) reservoir.v[RECORD(s, 0) * words + w] = pixels.v[s * words + w];
}
#elif defined(MEAN)
void main() {
  const uint row_length = view_width * channels;
  FOR_GROUPS(s, samples) {
    if (RECORD(s, ADJUSTS) == 0) continue;
    uint sum = 0;
    FOR_LANES(k, row_length)
      for (uint i = 0; i < view_height; ++i) sum += value_of(s, i, k / channels, k % channels);
    // Floats hold both halves exactly.
    const float high = row_sum(float(sum >> 12)), low = row_sum(float(sum & 4095));
    if (LANE == 0)
      means.v[s] = float(uint(high) * 4096 + uint(low)) / float(view_height * row_length);
  }
}
#else
void main() {
  const uint row_length = view_width * channels;
  const uint k = CHANNEL, s = gl_WorkGroupID.y;
  if (k >= row_length) return;
  const uint j = k / channels, c = k % channels;
  const float scale = affine.v[c], shift = affine.v[channels + c];
  const bool adjusts = RECORD(s, ADJUSTS) != 0;
  const float contrast = uintBitsToFloat(RECORD(s, 10)), brightness = uintBitsToFloat(RECORD(s, 11));
  const float mean = adjusts ? means.v[s] : 0.0;
  for (uint i = 0; i < view_height; ++i) {
    precise float v = float(value_of(s, i, j, c));
    if (adjusts) {
      v = (v - mean) * contrast + mean + brightness;
      v = floor(clamp(v, 0.0, 255.0) + 0.5);
    }
    precise const float product = v * scale;
    precise const float normalised = product + shift;
    y.v[(s * view_height + i) * row_length + k] = normalised;
  }
}
#endif
