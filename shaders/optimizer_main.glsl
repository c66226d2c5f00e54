// The end of the shaders optimizer_NAME.comp; see optimizer.glsl.
void main() {
  if (now.v[0].update == 0) return;  // gradients are being accumulated
  Update u;
  u.rate = now.v[0].learning_rate;
  u.a = now.v[0].kept_a;
  u.b = now.v[0].kept_b;
  u.rest_a = now.v[0].rest_a;
  u.rest_b = now.v[0].rest_b;
  u.decay = now.v[0].weight_decay;
  prepare(u);
  FOR_EACH(i, count) update(i, w.v[i], grad.v[i], i < decayed ? u.decay : 0.0, u);
}
