#version 450
// RMSprop (Tieleman and Hinton 2012), with `keeps` by momentum m:
//   g += d w;  v = b v + (1 - b) g^2;  g /= sqrt(v) + epsilon
//   w -= r g, or  m = a m + g,  w -= r m
#extension GL_GOOGLE_include_directive : require
#include "optimizer.glsl"
#include "interface.glsl"

void prepare(inout Update u) {}

void update(uint i, float x, float g, float d, Update u) {
  g += d * x;
  const float square = u.b * v.v[i] + u.rest_b * g * g;
  v.v[i] = square;
  g /= sqrt(square) + epsilon;
  if (keeps != 0) {
    g += u.a * m.v[i];
    m.v[i] = g;
  }
  w.v[i] = x - u.rate * g;
}

#include "optimizer_main.glsl"
