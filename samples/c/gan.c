/* A generative adversarial network (Goodfellow et al. 2014) that learns to draw points from a ring
 * of eight clusters, in a training loop of its own: the discriminator is trained by whole steps,
 * the generator pass by pass, through the discriminator.
 *
 *   cc -std=c99 -O2 gan.c $(pkg-config --cflags --libs echotrain) \
 *     -Wl,-rpath,$(pkg-config --variable=libdir echotrain) -lm -o gan
 *   gan [STEPS]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echotrain/echotrain.h"

enum { CLUSTERS = 8, NOISE = 16, BATCH = 256, SHOWN = 2000 };

static const double radius = 2, spread = 0.1, pi = 3.14159265358979;

static void check(int32_t status) {
  if (status >= 0) return;
  fprintf(stderr, "error: %s\n", etr_last_error());
  exit(1);
}

/* Random bits, equal on every system (splitmix64). */
static uint64_t random_bits(void) {
  static uint64_t state = 1;
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/* Evenly distributed in (0, 1]. */
static double uniform(void) { return (double)((random_bits() >> 11) + 1) / 9007199254740992.0; }

/* Normally distributed, by the method of Box and Muller. */
static float normal(double deviation) {
  const double r = sqrt(-2 * log(uniform()));
  return (float)(deviation * r * cos(2 * pi * uniform()));
}

static double centre(int cluster, int is_y) {
  const double angle = 2 * pi * cluster / CLUSTERS;
  return radius * (is_y ? sin(angle) : cos(angle));
}

static void real_points(float (*points)[2], int count) {
  for (int i = 0; i < count; ++i) {
    const int cluster = (int)(random_bits() % CLUSTERS);
    for (int axis = 0; axis < 2; ++axis)
      points[i][axis] = (float)centre(cluster, axis) + normal(spread);
  }
}

/* Sets a field to a copy of `values`, [rows, columns]. */
static void set(etr_batch* batch, const char* field, const float* values, int rows, int columns) {
  const etr_tensor tensor = {.struct_size = sizeof tensor,
                             .dtype = ETR_F32,
                             .rank = 2,
                             .shape = {rows, columns},
                             .data = values,
                             .size_bytes = (uint64_t)rows * (uint64_t)columns * sizeof *values};
  check(etr_batch_set(batch, field, &tensor));
}

static etr_batch* one_field(const char* field, const float* values, int rows, int columns) {
  etr_batch* batch;
  check(etr_batch_create(&batch));
  set(batch, field, values, rows, columns);
  return batch;
}

/* The values of a field. They live as long as the batch. */
static const float* get(const etr_batch* batch, const char* field) {
  etr_tensor tensor = {.struct_size = sizeof tensor};
  check(etr_batch_get(batch, field, &tensor));
  return tensor.data;
}

static etr_batch* noise(int count) {
  static float values[SHOWN * NOISE];
  for (int i = 0; i < count * NOISE; ++i) values[i] = normal(1);
  return one_field("noise", values, count, NOISE);
}

/* A trainer of a network with two hidden layers, which reads `field`. */
static etr_trainer* trainer_of(etr_runtime* runtime, const etr_optimizer* optimizer,
                               const char* field, int outputs, const char* loss, uint64_t seed) {
  char json[512];
  etr_model* model;
  etr_trainer* trainer;
  snprintf(json, sizeof json,
           "{\"inputs\": [\"%s\"], \"layers\": ["
           "{\"layer\": \"dense\", \"units\": 64, \"activation\": \"relu\"},"
           "{\"layer\": \"dense\", \"units\": 64, \"activation\": \"relu\"},"
           "{\"layer\": \"dense\", \"units\": %d}], \"loss\": {\"loss\": \"%s\"}}",
           field, outputs, loss);
  check(etr_model_create_from_json(json, &model));
  check(etr_trainer_create(runtime, model, optimizer, seed, 0, &trainer));
  etr_model_destroy(model); /* the trainer keeps what it needs */
  return trainer;
}

/* Trains the discriminator by a whole step: it is to tell the first half of `both`, real points,
 * from the second half, generated ones. Returns the loss. */
static double train_discriminator(etr_trainer* discriminator, const float (*both)[2]) {
  static float is_real[2 * BATCH];
  etr_step_result result = {.struct_size = sizeof result};
  etr_batch* labelled = one_field("point", both[0], 2 * BATCH, 2);
  for (int i = 0; i < BATCH; ++i) is_real[i] = 1;
  set(labelled, "label", is_real, 2 * BATCH, 1);
  check(etr_trainer_step(discriminator, labelled));
  etr_batch_destroy(labelled);
  check(etr_trainer_result(discriminator, 1, &result));
  return result.loss;
}

/* Trains the generator by the points of its latest forward pass. It has no loss of its own: the
 * discriminator's gradient with respect to these points goes back into the generator. */
static void train_generator(etr_trainer* generator, etr_trainer* discriminator,
                            const float (*generated)[2]) {
  etr_batch *points = one_field("point", generated[0], BATCH, 2), *scores, *inputs;
  float to_score[BATCH];
  check(etr_trainer_forward(discriminator, points, /*input_gradients=*/1, &scores));

  /* The generator's loss is -log sigmoid(score), averaged over the batch: it wants its points to be
   * taken as real. */
  const float* score = get(scores, "output");
  for (int i = 0; i < BATCH; ++i) to_score[i] = (1 / (1 + expf(-score[i])) - 1) / BATCH;
  etr_batch* score_gradient = one_field("output", to_score, BATCH, 1);
  check(etr_trainer_backward(discriminator, score_gradient, 0, &inputs));

  /* The field of the discriminator is the output of the generator. */
  etr_batch* point_gradient = one_field("output", get(inputs, "point"), BATCH, 2);
  check(etr_trainer_backward(generator, point_gradient, 0, NULL));
  check(etr_trainer_update(generator, NULL));

  etr_batch_destroy(point_gradient);
  etr_batch_destroy(inputs);
  etr_batch_destroy(score_gradient);
  etr_batch_destroy(scores);
  etr_batch_destroy(points);
}

/* Prints the share of points within four standard deviations of a cluster, and how many clusters
 * have at least 2 % of the points. */
static void print_quality(int step, double loss, etr_trainer* generator) {
  etr_batch *from = noise(SHOWN), *drawn;
  int near[CLUSTERS] = {0}, sum = 0, hit = 0;
  check(etr_trainer_predict(generator, from, &drawn));
  const float* points = get(drawn, "output");
  for (int i = 0; i < SHOWN; ++i)
    for (int c = 0; c < CLUSTERS; ++c)
      near[c] += hypot(points[2 * i] - centre(c, 0), points[2 * i + 1] - centre(c, 1)) < 4 * spread;
  for (int c = 0; c < CLUSTERS; ++c) {
    sum += near[c];
    hit += 50 * near[c] >= SHOWN;
  }
  printf(
      "step %5d: discriminator's loss %.3f, %3d %% of the points near a cluster, "
      "%d of %d clusters\n",
      step, loss, 100 * sum / SHOWN, hit, (int)CLUSTERS);
  fflush(stdout);
  etr_batch_destroy(drawn);
  etr_batch_destroy(from);
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 3000;
  static float both[2 * BATCH][2]; /* real points, then generated ones */
  etr_runtime* runtime;
  etr_options *options, *schedule;
  etr_optimizer* adam;
  if (argc > 2 || steps < 1) return fprintf(stderr, "usage: gan [STEPS]\n"), 2;

  check(etr_runtime_create(NULL, &runtime));
  check(etr_options_create_from_json("{\"beta1\": 0.5}", &options));
  check(etr_options_create_from_json("{\"learning_rate\": 0.001}", &schedule));
  check(etr_optimizer_create("adam", options, schedule, &adam));
  etr_trainer* generator = trainer_of(runtime, adam, "noise", 2, "mse", 1);
  etr_trainer* discriminator = trainer_of(runtime, adam, "point", 1, "binary_cross_entropy", 2);

  for (int step = 1; step <= steps; ++step) {
    etr_batch *from = noise(BATCH), *drawn;
    check(etr_trainer_forward(generator, from, 0, &drawn));
    real_points(both, BATCH);
    memcpy(both[BATCH], get(drawn, "output"), BATCH * sizeof *both);
    etr_batch_destroy(drawn);
    etr_batch_destroy(from);

    /* Noise in front of the discriminator, less and less of it, keeps the generator from covering a
     * single cluster (Sønderby et al. 2017). */
    const double blur = fmax(0.1, 1 - step / (0.8 * steps));
    for (int i = 0; i < 2 * BATCH; ++i)
      for (int axis = 0; axis < 2; ++axis) both[i][axis] += normal(blur);

    const double loss = train_discriminator(discriminator, (const float(*)[2])both);
    train_generator(generator, discriminator, (const float(*)[2])both + BATCH);
    if (step % (steps < 10 ? 1 : steps / 10) == 0) print_quality(step, loss, generator);
  }
  etr_trainer_destroy(discriminator); /* in any order */
  etr_trainer_destroy(generator);
  etr_optimizer_destroy(adam);
  etr_options_destroy(schedule);
  etr_options_destroy(options);
  etr_runtime_destroy(runtime);
  return 0;
}
