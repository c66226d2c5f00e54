// Returns a / b of integers, for CPU devices, whose integer divisions go lane by lane: the float
// quotient, corrected once and then by at most one.
uint quotient(uint a, uint b) {
  const float inverse = 1.0 / float(b);
  uint q = uint(float(a) * inverse);
  q += uint(int(float(int(a - q * b)) * inverse));
  const int rest = int(a - q * b);
  return rest < 0 ? q - 1 : rest >= int(b) ? q + 1 : q;
}
