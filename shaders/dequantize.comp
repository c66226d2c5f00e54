#version 450
// w[i] = scale[i / 32] * code[i], the weights that graph/quantized.h keeps in fewer bits. `words` has
// the scales, and from `first` on the codes, lowest bits first.
// Dispatch: grid-stride over count.
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Uints, words) B(1, Floats, w)
#define PARAMS uint count, first, bits;
#include "interface.glsl"

void main() {
  const uint per_word = 32 / bits;
  FOR_EACH(i, count) {
    const uint above = words.v[first + i / per_word] << (32 - bits * (i % per_word + 1));
    const int code = int(above) >> (32 - bits);
    w.v[i] = uintBitsToFloat(words.v[i / 32]) * float(code);
  }
}
