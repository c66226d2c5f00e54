// Returns 1 - base^t from log(base), without cancellation for bases near 1: Adam's bias correction.
float one_minus_power(float log_base, float t) {
  const float x = -t * log_base;
  return x < 0.02 ? x * (1.0 - x * (0.5 - x * (0.16666667 - x * 0.041666668))) : 1.0 - exp(-x);
}
