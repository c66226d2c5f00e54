#version 450
// One position of a recurrent layer, after the product h W + b of the state before it; s is the
// logistic function.
//   LSTM (Hochreiter and Schmidhuber 1997, with forget gates): with a = x Wi + bi + h Wh + bh in parts (i, f, g, o)
//     c' = s(f) c + s(i) tanh(g)      y = h' = s(o) tanh(c')
//   GRU (Cho et al. 2014, in the form of cuDNN): parts (r, z, n)
//     y = h' = (1 - s(z)) n' + s(z) h      n' = tanh(xn + s(r) hn)
// Buffers, with G parts of width H and time t of T:
//   x gates [N, T, G H], h gates [N, G H], kept [N, T, 4, H] (the gates after their functions; GRU: and hn),
//   before [N, T, H] (the state that position started from), cells [N, T, H] (LSTM), h [N, H], y [N, T, H]
// The gradient takes dy, dh (from the next position, through the product) and carry (through c, or
// past the GRU's gates). It gives d(x gates) and d(h gates), the latter for the product too.
// Dispatch: grid-stride over N H.
//! variant recurrent_lstm -DLSTM
//! variant recurrent_gru
//! variant recurrent_lstm_grad -DLSTM -DGRAD
//! variant recurrent_gru_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
// `previous` and `next` are the neighbouring positions in the order of the recurrence; `steps` if
// there is none.
#define PARAMS uint count, width, steps, t, previous, next;
#if defined(GRAD)
#define BUFFERS(B)                                                                              \
  B(0, Floats, dy) B(1, Floats, dh) B(2, Floats, carry) B(3, Floats, kept) B(4, Floats, before) \
  B(5, Floats, cells) B(6, Floats, dxg) B(7, Floats, dhg) B(8, Floats, dhg_all)
#else
#define BUFFERS(B)                                                                           \
  B(0, Floats, xg) B(1, Floats, hg) B(2, Floats, kept) B(3, Floats, before) B(4, Floats, cells) \
  B(5, Floats, h) B(6, Floats, y)
#endif
#include "interface.glsl"

float logistic(float x) { return 1.0 / (1.0 + exp_of(-x)); }
// GLSL's tanh may overflow for large arguments.
float tanh_of(float x) { return 1.0 - 2.0 / (exp_of(2.0 * limited(x, -20.0, 20.0)) + 1.0); }

void main() {
  FOR_EACH(i, count) {
    const uint n = i / width, k = i % width;
    const uint at = (n * steps + t) * width + k;                   // in [N, T, H]
    const uint keep = (n * steps + t) * 4 * width + k;             // in [N, T, 4, H]
#if defined(LSTM)
    const uint gates = 4 * width;
#else
    const uint gates = 3 * width;
#endif
    const uint gx = (n * steps + t) * gates + k, gh = n * gates + k;
#if !defined(GRAD)
    const float h0 = previous == steps ? 0.0 : before.v[at];
    if (previous == steps) before.v[at] = 0.0;
#if defined(LSTM)
    const float c0 = previous == steps ? 0.0 : cells.v[(n * steps + previous) * width + k];
    const float gi = logistic(xg.v[gx] + hg.v[gh]);
    const float gf = logistic(xg.v[gx + width] + hg.v[gh + width]);
    const float gg = tanh_of(xg.v[gx + 2 * width] + hg.v[gh + 2 * width]);
    const float go = logistic(xg.v[gx + 3 * width] + hg.v[gh + 3 * width]);
    const float c1 = gf * c0 + gi * gg, h1 = go * tanh_of(c1);
    cells.v[at] = c1;
    kept.v[keep] = gi, kept.v[keep + width] = gf, kept.v[keep + 2 * width] = gg, kept.v[keep + 3 * width] = go;
#else
    const float hn = hg.v[gh + 2 * width];
    const float r = logistic(xg.v[gx] + hg.v[gh]);
    const float z = logistic(xg.v[gx + width] + hg.v[gh + width]);
    const float candidate = tanh_of(xg.v[gx + 2 * width] + r * hn);
    const float h1 = (1.0 - z) * candidate + z * h0;
    kept.v[keep] = r, kept.v[keep + width] = z, kept.v[keep + 2 * width] = candidate, kept.v[keep + 3 * width] = hn;
#endif
    h.v[i] = h1;
    y.v[at] = h1;
    if (next < steps) before.v[(n * steps + next) * width + k] = h1;
#else
    const bool last = next == steps;
    const float through = last ? 0.0 : carry.v[i];
    const float d = dy.v[at] + (last ? 0.0 : dh.v[i]);
#if defined(LSTM)
    const float gi = kept.v[keep], gf = kept.v[keep + width];
    const float gg = kept.v[keep + 2 * width], go = kept.v[keep + 3 * width];
    const float c0 = previous == steps ? 0.0 : cells.v[(n * steps + previous) * width + k];
    const float tc = tanh_of(cells.v[at]);
    const float dc = d * go * (1.0 - tc * tc) + through;
    const float parts[4] = {dc * gg * gi * (1.0 - gi), dc * c0 * gf * (1.0 - gf), dc * gi * (1.0 - gg * gg),
                            d * tc * go * (1.0 - go)};
    carry.v[i] = dc * gf;
    for (uint g = 0; g < 4; ++g) dxg.v[gx + g * width] = dhg.v[gh + g * width] = parts[g];
#else
    const float r = kept.v[keep], z = kept.v[keep + width];
    const float candidate = kept.v[keep + 2 * width], hn = kept.v[keep + 3 * width];
    const float dall = d + through;
    const float dn = dall * (1.0 - z) * (1.0 - candidate * candidate);
    const float dr = dn * hn * r * (1.0 - r), dz = dall * (before.v[at] - candidate) * z * (1.0 - z);
    carry.v[i] = dall * z;
    dxg.v[gx] = dhg.v[gh] = dhg_all.v[gx] = dr;
    dxg.v[gx + width] = dhg.v[gh + width] = dhg_all.v[gx + width] = dz;
    dxg.v[gx + 2 * width] = dn;
    dhg.v[gh + 2 * width] = dhg_all.v[gx + 2 * width] = dn * r;
#endif
#endif
  }
}
