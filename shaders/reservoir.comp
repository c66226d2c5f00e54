#version 450
// Keeps examples u8 [H, W, C] in device memory, `words` words each, and makes the batch f32
// [n, h, w, C] from them: scales them, places pixels as a record says with black outside, changes
// colours and normalises.
//   put    reservoir[slot] = pixels[s] for records s with new pixels
//                                          (0 records, 1 pixels, 2 reservoir)
//   scale  scaled[s] = weighted sums of pixels of reservoir[slot]          (0 records, 1 reservoir, 2 taps, 3 scaled)
//   mean   m[s, 0] = mean of the values that sample s shows   (0 records, 1 images, 2 m)
//   luma   m[s, 1] = mean luma of these after the change of brightness   (the same)
//   view   y[s, i, j, c] = coloured(images[s](i, j, c)) * scale[c] + shift[c]
//                                          (0 records, 1 images, 2 m, 3 scale and shift [2, C], 4 y)
// `images` is the result of scale, or the reservoir itself.
// A record (train/reservoir.cpp mirrors it): slot, is new, origin
// y x, step y x, top, bottom, left, right; adjusts, contrast, brightness; jitters, brightness,
// contrast, saturation, hue (9); columns first, taps of a row and of a column; three spare.
// Formulas of the colours: pipeline/image_view.h.
// Dispatch: put: channels (words) by samples. scale: channels (words of a row) by rows by samples.
// mean, luma: a workgroup for each sample. view: channels (w C) by samples.
//! variant reservoir_put -DPUT
//! variant reservoir_scale -DSCALE
//! variant reservoir_mean -DMEAN
//! variant reservoir_luma -DMEAN -DLUMA
//! variant reservoir_view
#extension GL_GOOGLE_include_directive : require

#if defined(PUT)
#define PARAMS uint words;
#define BUFFERS(B) B(0, Uints, records) B(1, Uints, pixels) B(2, Uints, reservoir)
#elif defined(SCALE)
// A sample's taps: for each row of the result the first pixel and the weights, in `row_taps` words;
// then the same for each column.
#define PARAMS uint words, width, channels, scaled_height, scaled_width, row_taps, column_taps;
#define BUFFERS(B) B(0, Uints, records) B(1, Uints, reservoir) B(2, Uints, taps) B(3, Uints, scaled)
#else
// Layout of images: words of an image and bytes of a row. by_sample: images made by scale, which
// are ordered by sample, not by slot.
#define PARAMS uint samples, words, row_bytes, channels, view_height, view_width, by_sample; float share;
#if defined(MEAN)
#define BUFFERS(B) B(0, Uints, records) B(1, Uints, images) B(2, Floats, means)
#else
#define BUFFERS(B) \
  B(0, Uints, records) B(1, Uints, images) B(2, Floats, means) B(3, Floats, affine) B(4, Floats, y)
#endif
#endif
#include "interface.glsl"
#if defined(MEAN)
#include "row.glsl"
#else
layout(local_size_x_id = 0) in;
#endif

#define RECORD(s, i) records.v[(s) * 32 + (i)]
#define NUMBER(s, i) uintBitsToFloat(RECORD(s, i))
#define IS_NEW 1
#define ADJUSTS 10
#define JITTERS 13
#define COLUMNS_FIRST 26

#if defined(PUT)
void main() {
  const uint w = CHANNEL, s = gl_WorkGroupID.y;
  if (w < words && RECORD(s, IS_NEW) != 0) reservoir.v[RECORD(s, 0) * words + w] = pixels.v[s * words + w];
}
#elif defined(SCALE)
#include "quotient.glsl"

// Returns channel c of pixel (y, x), summed in the order of stages/resample.cpp.
uint scaled_value(uint s, uint y, uint x, uint c) {
  const uint taps_of_rows = s * (scaled_height * row_taps + scaled_width * column_taps);
  const uint of_row = taps_of_rows + y * row_taps;
  const uint of_column = taps_of_rows + scaled_height * row_taps + x * column_taps;
  const bool columns_first = RECORD(s, COLUMNS_FIRST) != 0;
  const uint inner = columns_first ? of_column : of_row, outer = columns_first ? of_row : of_column;
  const uint rows = RECORD(s, COLUMNS_FIRST + 1), columns = RECORD(s, COLUMNS_FIRST + 2);
  const uint inner_count = columns_first ? columns : rows, outer_count = columns_first ? rows : columns;
  const uint row_step = width * channels;
  const uint inner_step = columns_first ? channels : row_step, outer_step = columns_first ? row_step : channels;
  const uint first = (taps.v[of_row] * width + taps.v[of_column]) * channels + c;
  precise float total = 0.0;
  for (uint o = 0; o < outer_count; ++o) {
    precise float sum = 0.0;
    for (uint i = 0; i < inner_count; ++i) {
      const uint from = first + o * outer_step + i * inner_step;
      const uint v = reservoir.v[RECORD(s, 0) * words + from / 4] >> (from % 4 * 8) & 255;
      precise const float part = uintBitsToFloat(taps.v[inner + 1 + i]) * float(v);
      sum += part;
    }
    precise const float part = uintBitsToFloat(taps.v[outer + 1 + o]) * sum;
    total += part;
  }
  return uint(clamp(total + 0.5, 0.0, 255.0));
}

void main() {
  const uint w = CHANNEL, y = gl_WorkGroupID.y, s = gl_WorkGroupID.z;
  const uint row_length = scaled_width * channels, row_words = (row_length + 3) / 4;
  if (w >= row_words) return;
  uint word = 0;
  for (uint k = 0; k < 4; ++k) {
    const uint at = min(4 * w + k, row_length - 1), x = quotient(at, channels);
    word |= scaled_value(s, y, x, at - x * channels) << 8 * k;
  }
  scaled.v[(s * scaled_height + y) * row_words + w] = word;
}
#else
// Returns what sample s shows in channel c of row i, column j.
uint value_of(uint s, uint i, uint j, uint c) {
  const int row = int(RECORD(s, 2)) + int(RECORD(s, 4)) * int(i);
  const int column = int(RECORD(s, 3)) + int(RECORD(s, 5)) * int(j);
  if (row < int(RECORD(s, 6)) || row >= int(RECORD(s, 7)) || column < int(RECORD(s, 8)) ||
      column >= int(RECORD(s, 9)))
    return 0;
  const uint at = uint(row) * row_bytes + uint(column) * channels + c;
  const uint place = by_sample != 0 ? s : RECORD(s, 0);
  return images.v[place * words + at / 4] >> (at % 4 * 8) & 255;
}

float to_byte(float v) { return floor(clamp(v, 0.0, 255.0) + 0.5); }

float stretched(float v, float factor, float about, float more) {
  precise const float moved = (v - about) * factor + about + more;
  return to_byte(moved);
}

// Same after the change of brightness.
float bright_value(uint s, uint i, uint j, uint c) {
  float v = float(value_of(s, i, j, c));
  if (RECORD(s, ADJUSTS) != 0)
    v = stretched(v, NUMBER(s, ADJUSTS + 1), means.v[2 * s], NUMBER(s, ADJUSTS + 2));
  return RECORD(s, JITTERS) != 0 ? stretched(v, NUMBER(s, JITTERS + 1), 0.0, 0.0) : v;
}

uint luma_of(uvec3 p) { return (19595 * p.x + 38470 * p.y + 7471 * p.z + 32768) >> 16; }

#if defined(MEAN)
void main() {
#if defined(LUMA)
  const uint row_length = view_width, skipped_without = JITTERS;
#else
  const uint row_length = view_width * channels, skipped_without = ADJUSTS;
#endif
  FOR_GROUPS(s, samples) {
    if (RECORD(s, skipped_without) == 0) continue;
    uint sum = 0;
    FOR_LANES(k, row_length)
      for (uint i = 0; i < view_height; ++i) {
#if defined(LUMA)
        uvec3 p = uvec3(bright_value(s, i, k, 0));
        if (channels >= 3) {
          p.y = uint(bright_value(s, i, k, 1));
          p.z = uint(bright_value(s, i, k, 2));
        }
        sum += luma_of(p);
#else
        sum += value_of(s, i, k / channels, k % channels);
#endif
      }
    // A float represents each half exactly.
    const float high = row_sum(float(sum >> 12)), low = row_sum(float(sum & 4095));
    if (LANE == 0) {
#if defined(LUMA)
      means.v[2 * s + 1] = float(uint(high) * 4096 + uint(low)) * share;
#else
      means.v[2 * s] = float(uint(high) * 4096 + uint(low)) * share;
#endif
    }
  }
}
#else
float contrasted(uint s, uint i, uint j, uint c) {
  return stretched(bright_value(s, i, j, c), NUMBER(s, JITTERS + 2), means.v[2 * s + 1], 0.0);
}

float coloured(uint s, uint i, uint j, uint c) {
  if (RECORD(s, JITTERS) == 0) return bright_value(s, i, j, c);
  if (channels != 3) return contrasted(s, i, j, c);
  float p[3];
  for (uint k = 0; k < 3; ++k) p[k] = contrasted(s, i, j, k);
  const float gray = float(luma_of(uvec3(p[0], p[1], p[2])));
  const float saturation = NUMBER(s, JITTERS + 3);
  precise const float others = (1.0 - saturation) * gray;
  precise float turned = 0.0;
  for (uint k = 0; k < 3; ++k) {
    precise const float own = saturation * p[k];
    precise const float saturated = own + others;
    precise const float part = NUMBER(s, JITTERS + 4 + 3 * c + k) * to_byte(saturated);
    turned += part;
  }
  return to_byte(turned);
}

void main() {
  const uint row_length = view_width * channels;
  const uint k = CHANNEL, s = gl_WorkGroupID.y;
  if (k >= row_length) return;
  const uint j = k / channels, c = k % channels;
  const float scale = affine.v[c], shift = affine.v[channels + c];
  for (uint i = 0; i < view_height; ++i) {
    precise const float product = coloured(s, i, j, c) * scale;
    precise const float normalised = product + shift;
    y.v[(s * view_height + i) * row_length + k] = normalised;
  }
}
#endif
#endif
