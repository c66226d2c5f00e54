// The formulas of element-wise operations. Their kernels include this file, and kernels fused from
// chains of operations while a plan is made (ops/pointwise.cpp) call the same functions. `kind` is
// a constant wherever they are called. finite.glsl must come before this file.

// ---- Functions of one element, y = f(v), in the order of ops/unary_list.inc. alpha: slope of
// leaky_relu, scale of elu.
#define RELU 0
#define LEAKY_RELU 1
#define ELU 2
#define GELU 3
#define GELU_TANH 4
#define SILU 5
#define SIGMOID 6
#define TANH 7
#define SOFTPLUS 8
#define EXP 9
#define LOG 10
#define SQRT 11
#define SQUARE 12
#define ABS 13
#define NEGATE 14

float sigmoid(float v) { return 1.0 / (1.0 + exp_of(-v)); }
// The built-in overflows on some drivers.
float safe_tanh(float v) { return abs(v) < 0.02 ? v - v * v * v / 3.0 : 1.0 - 2.0 / (exp_of(2.0 * v) + 1.0); }

// Abramowitz and Stegun 7.1.26: within 1.5e-7.
float error_function(float v) {
  const float t = 1.0 / (1.0 + 0.3275911 * abs(v));
  const float p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return sign(v) * (1.0 - p * exp(-v * v));
}
float normal_cdf(float v) { return 0.5 * (1.0 + error_function(v * 0.70710678)); }
float gelu_inner(float v) { return 0.79788456 * (v + 0.044715 * v * v * v); }

float unary(uint kind, float alpha, float v) {
  switch (kind) {
    case RELU: return relu_of(v);
    case LEAKY_RELU: return v > 0.0 ? v : alpha * v;
    case ELU: return v > 0.0 ? v : alpha * (exp_of(v) - 1.0);
    case GELU: return v * normal_cdf(v);
    case GELU_TANH: return 0.5 * v * (1.0 + safe_tanh(gelu_inner(v)));
    case SILU: return v * sigmoid(v);
    case SIGMOID: return sigmoid(v);
    case TANH: return safe_tanh(v);
    case SOFTPLUS: return relu_of(v) + log(1.0 + exp(-abs(v)));
    case EXP: return exp_of(v);
    case LOG: return log_of(v);
    case SQRT: return sqrt(v);
    case SQUARE: return v * v;
    case ABS: return abs(v);
    default: return -v;
  }
}

// f'(v), where fv = f(v).
float unary_slope(uint kind, float alpha, float v, float fv) {
  switch (kind) {
    case RELU: return relu_grad(v, 1.0);
    case LEAKY_RELU: return v > 0.0 ? 1.0 : alpha;
    case ELU: return v > 0.0 ? 1.0 : fv + alpha;
    case GELU: return normal_cdf(v) + v * 0.39894228 * exp(-0.5 * v * v);
    case GELU_TANH: {
      const float t = safe_tanh(gelu_inner(v));
      return 0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * 0.79788456 * (1.0 + 3.0 * 0.044715 * v * v);
    }
    case SILU: {
      const float s = sigmoid(v);
      return s * (1.0 + v * (1.0 - s));
    }
    case SIGMOID: return fv * (1.0 - fv);
    case TANH: return 1.0 - fv * fv;
    case SOFTPLUS: return sigmoid(v);
    case EXP: return fv;
    case LOG: return 1.0 / v;
    case SQRT: return 0.5 / fv;
    case SQUARE: return 2.0 * v;
    case ABS: return sign(v);
    default: return -1.0;
  }
}

// ---- Arithmetic on pairs, in the order of ops/binary.cpp; maximum and minimum give ties to u.
float binary(uint kind, float u, float v) {
  switch (kind) {
    case 0: return u + v;
    case 1: return u - v;
    case 2: return u * v;
    case 3: return u / v;
    case 4: return larger(u, v);
    default: return smaller(u, v);
  }
}

// The derivative with respect to u.
float binary_slope_a(uint kind, float u, float v) {
  switch (kind) {
    case 2: return v;
    case 3: return 1.0 / v;
    case 4: return u < v ? 0.0 : 1.0;
    case 5: return u > v ? 0.0 : 1.0;
    default: return 1.0;
  }
}

// The derivative with respect to v.
float binary_slope_b(uint kind, float u, float v) {
  switch (kind) {
    case 0: return 1.0;
    case 1: return -1.0;
    case 2: return u;
    case 3: return -u / (v * v);
    case 4: return u >= v ? 0.0 : 1.0;
    default: return u <= v ? 0.0 : 1.0;
  }
}

// ---- Batch normalisation without ReLU, and the gradient of x; see batch_norm.comp.
float batch_norm(float x, float mean, float inv_std, float gamma, float beta) {
  return (x - mean) * (gamma * inv_std) + beta;
}

float batch_norm_dx(float x, float g, float mean, float inv_std, float gamma, float sum_g, float sum_gh, float rows) {
  const float shift = sum_g / rows, slope = inv_std * sum_gh / rows;
  return gamma * inv_std * (g - shift - (x - mean) * slope);
}
