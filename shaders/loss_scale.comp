#version 450
// The scale of gradients that pass through float16 (optim/loss_scale.h).
//   loss_unscale     g /= scale                                                     (0 g, 1 scale)
//   loss_scale_number  if the step ends an update (ends = 1, else 0), its number leaves out the
//                    updates that were not made                 (0 state, 1 ends [1], 2 step values)
//   loss_scale_next  halves the scale if a gradient was not finite, and doubles it after `patience`
//                    steps without one. If it would fall below `least`, not_finite becomes
//                    HOPELESS. That, or a loss that is not finite, sets failed to 1: nothing
//                    changes any more until the host has cleared it. Counts the updates that were
//                    not made        (0 state, 1 loss [1], 2 failed [1], 3 ends [1], 4 step values)
// The state is the scale, the steps since it changed, and the updates that were not made.
// Dispatch: grid-stride over count; number, next: one workgroup.
//! variant loss_unscale
//! variant loss_scale_number -DNUMBER
//! variant loss_scale_next -DNEXT
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#ifdef NEXT
#define BUFFERS(B) B(0, Floats, state) B(1, Uints, loss) B(2, Uints, failed) B(3, Uints, ends) \
    B(4, Steps, now)
#define PARAMS float patience, least, most;
#elif defined(NUMBER)
#define BUFFERS(B) B(0, Floats, state) B(1, Uints, ends) B(2, Steps, now)
#define PARAMS uint count;
#else
#define BUFFERS(B) B(0, Floats, g) B(1, Floats, scale)
#define PARAMS uint count;
#endif
#include "interface.glsl"

void main() {
#ifdef NEXT
  if (gl_GlobalInvocationID.x != 0) return;
  if (ends.v[0] != 0 && now.v[0].update == 0) state.v[2] += 1.0;
  if (failed.v[0] != 0) return;
  if (!IS_FINITE(loss.v[0])) failed.v[0] = 1;
  const float scale = state.v[0], steps = state.v[1] + 1.0;
  if (now.v[0].not_finite != 0) {
    if (0.5 * scale < least) {
      now.v[0].not_finite = HOPELESS;
      failed.v[0] = 1;
    }
    state.v[0] = max(0.5 * scale, least);
    state.v[1] = 0.0;
  } else if (steps >= patience) {
    state.v[0] = min(2.0 * scale, most);
    state.v[1] = 0.0;
  } else {
    state.v[1] = steps;
  }
#elif defined(NUMBER)
  if (gl_GlobalInvocationID.x != 0) return;
  ends.v[0] = now.v[0].update != 0 ? 1 : 0;
  if (now.v[0].update != 0) now.v[0].update -= uint(state.v[2]);
#else
  // The scale is a power of two: dividing is exact.
  const float by = 1.0 / scale.v[0];
  FOR_EACH(i, count) g.v[i] *= by;
#endif
}
