/* Trains a small classifier from C: a pipeline with an echo node, a model, a loop.
 *
 *   cc -std=c99 train.c $(pkg-config --cflags --libs echotrain) \
 *     -Wl,-rpath,$(pkg-config --variable=libdir echotrain) -o train
 *   train FOLDER_OF_CLASS_FOLDERS          (FOLDER/CLASS/NAME.png, all images of one size)
 */
#include <stdio.h>
#include <stdlib.h>

#include "echotrain/echotrain.h"

static void check(int32_t status) {
  if (status >= 0) return;
  fprintf(stderr, "error: %s\n", etr_last_error());
  exit(1);
}

/* Appends a layer with at most one whole-number option. */
static void layer(etr_model* model, const char* name, const char* option, int64_t value) {
  etr_options* options;
  check(etr_options_create(&options));
  if (option) check(etr_options_set_integer(options, option, value));
  check(etr_model_add(model, name, options));
  etr_options_destroy(options);
}

/* Appends a stage with options, a JSON object. */
static void stage(etr_pipeline* pipeline, const char* name, const char* json) {
  etr_options* options;
  check(etr_options_create_from_json(json, &options));
  check(etr_pipeline_add(pipeline, name, options));
  etr_options_destroy(options);
}

/* Appends the source. A path may hold characters that JSON would need escaped. */
static void folder(etr_pipeline* pipeline, const char* root) {
  etr_options* options;
  check(etr_options_create(&options));
  check(etr_options_set_string(options, "root", root));
  check(etr_pipeline_add(pipeline, "folder", options));
  etr_options_destroy(options);
}

/* Takes the results of the steps that have ended, or with `wait` of all steps, and keeps the last.
 * A loss that is not finite is reported here, not by etr_trainer_step. */
static void take_results(etr_trainer* trainer, int32_t wait, etr_step_result* last) {
  int32_t status;
  while ((status = etr_trainer_result(trainer, wait, last)) == ETR_OK) continue;
  check(status);
}

int main(int argc, char** argv) {
  etr_options *sgd, *schedule;
  etr_pipeline* pipeline;
  etr_model* model;
  etr_optimizer* optimizer;
  etr_runtime* runtime;
  etr_trainer* trainer;
  etr_batch* batch;
  etr_step_result result = {.struct_size = sizeof result};
  int32_t status;
  if (argc != 2) return fprintf(stderr, "usage: train FOLDER\n"), 2;

  /* Each image is used twice, with a new augmentation each time. */
  check(etr_pipeline_create(NULL, &pipeline));
  folder(pipeline, argv[1]);
  stage(pipeline, "label", "{}");
  stage(pipeline, "decode", "{}");
  stage(pipeline, "echo", "{\"factor\": 2}");
  stage(pipeline, "random_crop", "{\"pad\": 2}");
  stage(pipeline, "batch", "{\"size\": 32, \"drop_remainder\": false}");
  stage(pipeline, "normalize", "{}");

  check(etr_model_create(&model));
  layer(model, "conv2d", "filters", 16);
  layer(model, "relu", NULL, 0);
  layer(model, "max_pool", NULL, 0);
  layer(model, "flatten", NULL, 0);
  layer(model, "dense", "units", 10);

  check(etr_options_create(&sgd));
  check(etr_options_set_number(sgd, "momentum", 0.9));
  check(etr_options_create(&schedule));
  check(etr_options_set_number(schedule, "learning_rate", 0.01));
  check(etr_optimizer_create("sgd", sgd, schedule, &optimizer));

  check(etr_runtime_create(NULL, &runtime));
  check(etr_trainer_create(runtime, model, optimizer, 1, 0, &trainer));
  for (int epoch = 0; epoch < 3; ++epoch) {
    while ((status = etr_pipeline_next(pipeline, &batch)) == ETR_OK) {
      check(etr_trainer_step(trainer, batch)); /* returns while the device works */
      etr_batch_destroy(batch);
      take_results(trainer, 0, &result);
    }
    check(status); /* ETR_END: the epoch is over */
    take_results(trainer, 1, &result);
    printf("epoch %d step %llu loss %.4f\n", epoch + 1, (unsigned long long)result.step,
           result.loss);
  }
  etr_trainer_destroy(trainer); /* in any order */
  etr_runtime_destroy(runtime);
  etr_optimizer_destroy(optimizer);
  etr_model_destroy(model);
  etr_pipeline_destroy(pipeline);
  etr_options_destroy(schedule);
  etr_options_destroy(sgd);
  return 0;
}
