#version 450
// y = f(x) element by element, or its gradient dx = f'(x) dy. `kind` chooses f (ops/unary.cpp names them), alpha
// is the slope of leaky_relu and the scale of elu.
// Bindings: forward 0 x, 1 y; gradient 0 x, 1 y, 2 dy, 3 dx. Dispatch: grid-stride over count.
//! variant unary
//! variant unary_grad -DGRAD
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kind = 0;
#ifdef GRAD
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y) B(2, Floats, dy) B(3, Floats, dx)
#else
#define BUFFERS(B) B(0, Floats, x) B(1, Floats, y)
#endif
#define PARAMS uint count; float alpha;
#include "interface.glsl"

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

float sigmoid(float v) { return 1.0 / (1.0 + exp(-v)); }
// The built-in overflows on some drivers.
float safe_tanh(float v) { return abs(v) < 0.02 ? v - v * v * v / 3.0 : 1.0 - 2.0 / (exp(2.0 * v) + 1.0); }

// Abramowitz and Stegun 7.1.26: within 1.5e-7.
float error_function(float v) {
  const float t = 1.0 / (1.0 + 0.3275911 * abs(v));
  const float p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return sign(v) * (1.0 - p * exp(-v * v));
}
float normal_cdf(float v) { return 0.5 * (1.0 + error_function(v * 0.70710678)); }
float gelu_inner(float v) { return 0.79788456 * (v + 0.044715 * v * v * v); }

#ifndef GRAD
float f(float v) {
  switch (kind) {
    case RELU: return max(v, 0.0);
    case LEAKY_RELU: return v > 0.0 ? v : alpha * v;
    case ELU: return v > 0.0 ? v : alpha * (exp(v) - 1.0);
    case GELU: return v * normal_cdf(v);
    case GELU_TANH: return 0.5 * v * (1.0 + safe_tanh(gelu_inner(v)));
    case SILU: return v * sigmoid(v);
    case SIGMOID: return sigmoid(v);
    case TANH: return safe_tanh(v);
    case SOFTPLUS: return max(v, 0.0) + log(1.0 + exp(-abs(v)));
    case EXP: return exp(v);
    case LOG: return log(v);
    case SQRT: return sqrt(v);
    case SQUARE: return v * v;
    case ABS: return abs(v);
    default: return -v;
  }
}
void main() { FOR_EACH(i, count) y.v[i] = f(x.v[i]); }
#else
float slope(float v, float fv) {
  switch (kind) {
    case RELU: return v > 0.0 ? 1.0 : 0.0;
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
void main() { FOR_EACH(i, count) dx.v[i] = slope(x.v[i], y.v[i]) * dy.v[i]; }
#endif
