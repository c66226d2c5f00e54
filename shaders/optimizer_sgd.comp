#version 450
// Stochastic gradient descent; with `keeps` by momentum m (Polyak 1964), with `flag` by Nesterov's
// (Sutskever et al. 2013):
//   g += d w;  m = a m + g;  w -= r m, or r (g + a m)
#extension GL_GOOGLE_include_directive : require
#include "optimizer.glsl"
#include "interface.glsl"

void prepare(inout Update u) {}

void update(uint i, float x, float g, float d, Update u) {
  g += d * x;
  if (keeps != 0) {
    const float velocity = u.a * m.v[i] + g;
    m.v[i] = velocity;
    g = flag != 0 ? g + u.a * velocity : velocity;
  }
  w.v[i] = x - u.rate * g;
}

#include "optimizer_main.glsl"
