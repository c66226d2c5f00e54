#version 450
// y[n, oy, ox, c] = mean of x [n, h, w, c] over a window; pixels outside do not count. `adaptive`
// windows share the image among oh x ow outputs: rows floor(o h / oh) to ceil((o + 1) h / oh). The
// gradient gathers.
// Bindings: forward 0 x, 1 y; gradient 0 dy, 1 dx.
// Dispatch: x = ceil(c / lanes), y = rows of y (forward) or of x (gradient), z = batch.
//! variant avg_pool
//! variant avg_pool_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#define PARAMS uint h, w, c, oh, ow, window, stride, pad, adaptive;
#include "interface.glsl"

// The pixels [x, y) under output o along an axis of `size` pixels and `outputs` outputs.
uvec2 under(uint o, uint size, uint outputs) {
  if (adaptive != 0) return uvec2(o * size / outputs, ((o + 1) * size + outputs - 1) / outputs);
  const int begin = int(o * stride) - int(pad);
  return uvec2(max(begin, 0), min(uint(begin + int(window)), size));
}

// A range of outputs [x, y) that contains all whose window holds pixel p.
uvec2 over(uint p, uint size, uint outputs) {
  if (adaptive != 0) {
    const uint middle = p * outputs / size;
    return uvec2(middle, min(middle + outputs / size + 2, outputs));
  }
  const uint at = p + pad;
  return uvec2(at < window ? 0 : (at - window) / stride + 1, min(at / stride + 1, outputs));
}

void main() {
  const uint ch = CHANNEL, row = gl_WorkGroupID.y, n = gl_WorkGroupID.z;
  if (ch >= c) return;
#ifdef GRAD
  const uvec2 outputs = over(row, h, oh);
  for (uint px = 0; px < w; ++px) {
    const uvec2 columns = over(px, w, ow);
    float sum = 0.0;
    for (uint oy = outputs.x; oy < outputs.y; ++oy)
      for (uint ox = columns.x; ox < columns.y; ++ox) {
        const uvec2 a = under(oy, h, oh), b = under(ox, w, ow);
        if (row >= a.x && row < a.y && px >= b.x && px < b.y)
          sum += x.v[((n * oh + oy) * ow + ox) * c + ch] / float((a.y - a.x) * (b.y - b.x));
      }
    y.v[((n * h + row) * w + px) * c + ch] = sum;
  }
#else
  const uvec2 a = under(row, h, oh);
  for (uint ox = 0; ox < ow; ++ox) {
    const uvec2 b = under(ox, w, ow);
    float sum = 0.0;
    for (uint py = a.x; py < a.y; ++py)
      for (uint px = b.x; px < b.y; ++px) sum += x.v[((n * h + py) * w + px) * c + ch];
    y.v[((n * oh + row) * ow + ox) * c + ch] = sum / float((a.y - a.x) * (b.y - b.x));
  }
#endif
}
