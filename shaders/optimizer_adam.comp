#version 450
// Adam (Kingma and Ba 2015); with `flag` AdamW (Loshchilov and Hutter 2019), which takes d w from w
// instead of adding it to g:
//   m = a m + (1 - a) g;  v = b v + (1 - b) g^2
//   w -= r m / (1 - a^t) / (sqrt(v / (1 - b^t)) + epsilon), and r d w
#extension GL_GOOGLE_include_directive : require
#include "optimizer.glsl"
#include "interface.glsl"
#include "corrections.glsl"

void prepare(inout Update u) {
  const float t = float(now.v[0].update);
  u.first = one_minus_power(now.v[0].log_a, t);
  u.second = one_minus_power(now.v[0].log_b, t);
}

void update(uint i, float x, float g, float d, Update u) {
  if (flag == 0) g += d * x;
  const float mean = u.a * m.v[i] + u.rest_a * g, square = u.b * v.v[i] + u.rest_b * g * g;
  m.v[i] = mean;
  v.v[i] = square;
  const float kept = flag != 0 ? x - u.rate * d * x : x;
  w.v[i] = kept - u.rate * (mean / u.first) / (sqrt(square / u.second) + epsilon);
}

#include "optimizer_main.glsl"
