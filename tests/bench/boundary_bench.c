/* The C side of boundary_bench.py: reads epochs of batches from a folder of class folders with
 * PNGs, touches each, and prints "BATCHES SECONDS".
 *
 *   boundary_bench_c ROOT PASSES BATCH DECODE
 */
#define _POSIX_C_SOURCE 199309L
#include <echotrain/echotrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int32_t check(int32_t status) {
  if (status < 0) {
    fprintf(stderr, "boundary_bench: %s\n", etr_last_error());
    exit(1);
  }
  return status;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char** argv) {
  char spec[2048];
  etr_pipeline* pipeline = NULL;
  etr_batch* batch = NULL;
  long batches = 0;
  unsigned long sum = 0;
  double begin = 0;
  int decode;
  if (argc != 5) return 2;
  decode = atoi(argv[4]);
  snprintf(spec, sizeof spec,
           "{\"threads\": 2, \"epochs\": 1, \"stages\": [{\"stage\": \"folder\", \"root\": "
           "\"%s\"}, {\"stage\": "
           "\"repeat\", \"count\": %s}, %s{\"stage\": \"batch\", \"size\": %s}]}",
           argv[1], argv[2], decode ? "{\"stage\": \"decode\"}, " : "", argv[3]);
  check(etr_pipeline_create_from_json(spec, &pipeline));
  begin = now();
  while (check(etr_pipeline_next(pipeline, &batch)) == ETR_OK) {
    etr_tensor tensor;
    tensor.struct_size = sizeof tensor;
    check(etr_batch_get(batch, decode ? "image" : "png", &tensor));
    sum += *(const unsigned char*)tensor.data;
    etr_batch_destroy(batch);
    ++batches;
  }
  printf("%ld %.6f\n", batches, now() - begin);
  fprintf(stderr, "checksum %lu\n", sum);
  etr_pipeline_destroy(pipeline);
  return 0;
}
