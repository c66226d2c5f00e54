#version 450
// Adagrad (Duchi et al. 2011):  g += d w;  v += g^2;  w -= r g / (sqrt(v) + epsilon)
#extension GL_GOOGLE_include_directive : require
#include "optimizer.glsl"
#include "interface.glsl"

void prepare(inout Update u) {}

void update(uint i, float x, float g, float d, Update u) {
  g += d * x;
  const float sum = v.v[i] + g * g;
  v.v[i] = sum;
  w.v[i] = x - u.rate * g / (sqrt(sum) + epsilon);
}

#include "optimizer_main.glsl"
