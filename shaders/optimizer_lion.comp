#version 450
// Lion (Chen et al. 2023):  w -= r (sign(a m + (1 - a) g) + d w);  m = b m + (1 - b) g
#extension GL_GOOGLE_include_directive : require
#include "optimizer.glsl"
#include "interface.glsl"

void prepare(inout Update u) {}

void update(uint i, float x, float g, float d, Update u) {
  const float past = m.v[i];
  w.v[i] = x - u.rate * (sign(u.a * past + u.rest_a * g) + d * x);
  m.v[i] = u.b * past + u.rest_b * g;
}

#include "optimizer_main.glsl"
