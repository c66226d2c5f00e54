// a / b of whole numbers on CPU devices, whose integer divisions go lane by lane: float's quotient, brought nearer once and then
// by one at most.
uint quotient(uint a, uint b) {
  const float inverse = 1.0 / float(b);
  uint q = uint(float(a) * inverse);
  q += uint(int(float(int(a - q * b)) * inverse));
  const int rest = int(a - q * b);
  return rest < 0 ? q - 1 : rest >= int(b) ? q + 1 : q;
}
