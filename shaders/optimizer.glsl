// What the shaders optimizer_NAME.comp share: one update of all parameters at once, which lie in one
// buffer. A shader includes this file and interface.glsl, defines update(), and ends with
// optimizer_main.glsl.
//
// In the formulas w is the parameter, g its gradient, r the learning rate, t the number of the
// update from 1, d the weight decay (of the first `decayed` parameters only; 0 for the others), and
// a and b are the shares that the update keeps of m and v. a, b and d come from the step's values.
// So do 1 - a, 1 - b (rest_) and the logarithms, which would lose precision if computed from floats
// near 1.
// Bindings: 0 w, 1 grad, 2 m, 3 v, 4 step values; an optimizer without m or v has another buffer
// there. `flag` and `keeps` are as the optimizer says.
// Dispatch: grid-stride over count.
layout(local_size_x = 64) in;
#define BUFFERS(B) B(0, Floats, w) B(1, Floats, grad) B(2, Floats, m) B(3, Floats, v) B(4, Steps, now)
#define PARAMS uint count, decayed, flag, keeps; float epsilon;

// What an update has for all parameters.
struct Update {
  float rate, a, b, rest_a, rest_b, decay;
  float first, second;  // corrections for the zeros that m and v begin with, if prepare() sets them
};
