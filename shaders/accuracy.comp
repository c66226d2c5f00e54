#version 450
// hit[r] = weight if the largest logit of row r is its label, else 0. Among equals the first is the
// largest; NaN is above all.
// Bindings: 0 logits [rows, classes], 1 labels, 2 weights [rows], 3 hit [rows]. Dispatch: rows.
#extension GL_GOOGLE_include_directive : require
#define BUFFERS(B) B(0, Floats, x) B(1, Ints, labels) B(2, Floats, weights) B(3, Floats, hit)
#define PARAMS uint rows, classes, weighted;
#include "interface.glsl"
#include "row.glsl"

void main() {
  FOR_GROUPS(r, rows) {
    const uint base = r * classes;
    float top = x.v[base];
    FOR_LANES(k, classes) top = max(top, x.v[base + k]);
    top = row_max(top);
    // The first of equals has the largest (classes - k); NaN has the same beyond `classes`.
    float place = 0.0;
    FOR_LANES(k, classes) {
      if (x.v[base + k] == top) place = max(place, float(classes - k));
      if (IS_NAN(x.v[base + k])) place = max(place, float(2 * classes - k));
    }
    place = row_max(place);
    const int best = int(place > float(classes) ? 2 * classes : classes) - int(place);
    if (LANE == 0)
      hit.v[r] = best == labels.v[r] ? (weighted != 0 ? weights.v[r] : 1.0) : 0.0;
  }
}
