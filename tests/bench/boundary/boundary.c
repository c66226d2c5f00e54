/* What boundary_bench.py compares the bindings with.
 *
 *   boundary_c images ROOT   reads decoded batches of 32, touches each: prints images/s
 *   boundary_c ready ROOT    takes single records that are ready: prints the median time, in us
 */
#define _POSIX_C_SOURCE 199309L
#include <echotrain/echotrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 40, WARM_UP = 20, TAKEN = 400 };

static unsigned long sum;

static int32_t check(int32_t status) {
  if (status < 0) {
    fprintf(stderr, "boundary_c: %s\n", etr_last_error());
    exit(1);
  }
  return status;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static etr_pipeline* open_pipeline(const char* root, const char* options, const char* stages) {
  char spec[2048];
  etr_pipeline* pipeline = NULL;
  snprintf(spec, sizeof spec,
           "{\"threads\": 2, \"epochs\": 1, %s \"stages\": ["
           "{\"stage\": \"folder\", \"root\": \"%s\"}, %s]}",
           options, root, stages);
  check(etr_pipeline_create_from_json(spec, &pipeline));
  return pipeline;
}

static int take(etr_pipeline* pipeline, const char* field) {
  etr_batch* batch = NULL;
  etr_tensor tensor;
  if (check(etr_pipeline_next(pipeline, &batch)) != ETR_OK) return 0;
  tensor.struct_size = sizeof tensor;
  check(etr_batch_get(batch, field, &tensor));
  sum += *(const unsigned char*)tensor.data;
  etr_batch_destroy(batch);
  return 1;
}

static void images(const char* root) {
  etr_pipeline* pipeline =
      open_pipeline(root, "",
                    "{\"stage\": \"repeat\", \"count\": 10}, {\"stage\": \"decode\"}, "
                    "{\"stage\": \"batch\", \"size\": 32, \"drop_remainder\": true}");
  const double begin = now();
  long batches = 0;
  while (take(pipeline, "image")) ++batches;
  printf("%.1f\n", 32.0 * (double)batches / (now() - begin));
  etr_pipeline_destroy(pipeline);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void ready(const char* root) {
  etr_pipeline* pipeline = open_pipeline(
      root, "\"prefetch\": 1024,",
      "{\"stage\": \"repeat\", \"count\": 100000}, {\"stage\": \"batch\", \"size\": 1}");
  const struct timespec pause = {0, 100000000}; /* in which the pipeline fills its prefetch queue */
  double us[ROUNDS];
  for (int round = -WARM_UP; round < ROUNDS; ++round) {
    nanosleep(&pause, NULL);
    const double begin = now();
    for (int i = 0; i < TAKEN; ++i) take(pipeline, "png");
    if (round >= 0) us[round] = 1e6 * (now() - begin) / TAKEN;
  }
  qsort(us, ROUNDS, sizeof *us, ascending);
  printf("%.4f\n", us[ROUNDS / 2]);
  etr_pipeline_destroy(pipeline);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  (strcmp(argv[1], "images") ? ready : images)(argv[2]);
  fprintf(stderr, "checksum %lu\n", sum);
  return 0;
}
