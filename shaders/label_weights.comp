#version 450
// weight[r] = 0 for the ignored label, else the weight of its class (1 without class weights).
// Bindings: 0 labels [rows], 1 class weights [classes], 2 weights [rows]. Dispatch: grid-stride
// over rows.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Ints, labels) B(1, Floats, classes) B(2, Floats, weights)
#define PARAMS uint rows, count; int ignored;
#include "interface.glsl"

void main() {
  FOR_EACH(r, rows) {
    const int t = labels.v[r];
    const float weight = count != 0 && t >= 0 && t < int(count) ? classes.v[t] : 1.0;
    weights.v[r] = t == ignored ? 0.0 : weight;
  }
}
