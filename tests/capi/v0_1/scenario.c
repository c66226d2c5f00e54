/* tests/bindings/scenario.c as it was in version 0.1; never changed again. */
#include <echotrain/echotrain.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t check(int32_t status) {
  if (status < 0) {
    fprintf(stderr, "scenario: %s\n", etr_last_error());
    exit(1);
  }
  return status;
}

static etr_options* options(const char* json) {
  etr_options* out = NULL;
  check(etr_options_create_from_json(json, &out));
  return out;
}

static void add(etr_pipeline* p, const char* stage, const char* json) {
  etr_options* o = options(json);
  check(etr_pipeline_add(p, stage, o));
  etr_options_destroy(o);
}

static etr_pipeline* pipeline(const char* pattern, int training) {
  etr_pipeline* p = NULL;
  etr_options* o = options("{\"seed\": 5, \"threads\": 2}");
  char source[1024];
  check(etr_pipeline_create(o, &p));
  etr_options_destroy(o);
  snprintf(source, sizeof source, "{\"pattern\": \"%s\"}", pattern);
  add(p, "webdataset", source);
  add(p, "take", training ? "{\"count\": 1024}" : "{\"count\": 300}");
  add(p, "label", "{\"classes\": 10}");
  add(p, "decode", "{}");
  if (training) {
    add(p, "echo", "{\"factor\": 2.5, \"buffer\": 200}");
    add(p, "random_crop", "{\"pad\": 2}");
  }
  add(p, "batch", training ? "{\"size\": 64}" : "{\"size\": 64, \"drop_remainder\": false}");
  add(p, "normalize", "{}");
  return p;
}

static etr_trainer* trainer(etr_runtime* runtime) {
  static const char* const layers[][2] = {{"conv2d", "{\"filters\": 8, \"activation\": \"relu\"}"},
                                          {"max_pool", "{}"},
                                          {"flatten", "{}"},
                                          {"dense", "{\"units\": 10}"}};
  etr_model* model = NULL;
  etr_optimizer* sgd = NULL;
  etr_trainer* out = NULL;
  etr_options *o = NULL, *rate = NULL;
  size_t i;
  check(etr_model_create(&model));
  for (i = 0; i < 4; ++i) {
    o = options(layers[i][1]);
    check(etr_model_add(model, layers[i][0], o));
    etr_options_destroy(o);
  }
  o = options("{\"momentum\": 0.9}");
  rate = options("{\"learning_rate\": 0.05}");
  check(etr_optimizer_create("sgd", o, rate, &sgd));
  check(etr_trainer_create(runtime, model, sgd, 3, 0, &out));
  etr_options_destroy(o);
  etr_options_destroy(rate);
  etr_optimizer_destroy(sgd);
  etr_model_destroy(model);
  return out;
}

static void print_bits(const char* what, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  printf("%s %016" PRIx64 "\n", what, bits);
}

static void take_results(etr_trainer* t, int wait) {
  etr_step_result r;
  r.struct_size = sizeof r;
  while (check(etr_trainer_result(t, wait, &r)) == ETR_OK) print_bits("loss", r.loss);
}

static void train_epoch(etr_trainer* t, etr_pipeline* p) {
  etr_batch* batch = NULL;
  while (check(etr_pipeline_next(p, &batch)) == ETR_OK) {
    check(etr_trainer_step(t, batch));
    etr_batch_destroy(batch);
    take_results(t, 0);
  }
  take_results(t, 1);
}

int main(int argc, char** argv) {
  etr_runtime_options o;
  etr_runtime* runtime = NULL;
  char* position = NULL;
  if (argc != 4) return 2;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.device = getenv("ECHOTRAIN_TEST_DEVICE");
  check(etr_runtime_create(&o, &runtime));
  {
    etr_pipeline* p = pipeline(argv[1], 1);
    etr_trainer* t = trainer(runtime);
    train_epoch(t, p);
    check(etr_trainer_save(t, argv[3]));
    check(etr_pipeline_save(p, &position));
    etr_trainer_destroy(t);
    etr_pipeline_destroy(p);
  }
  { /* another trainer and pipeline go on */
    etr_pipeline *p = pipeline(argv[1], 1), *test = pipeline(argv[2], 0);
    etr_trainer* t = trainer(runtime);
    etr_eval_result e;
    etr_batch *batch = NULL, *outputs = NULL;
    etr_tensor logits;
    int i;
    check(etr_pipeline_restore(p, position));
    check(etr_trainer_load(t, argv[3]));
    train_epoch(t, p);
    e.struct_size = sizeof e;
    check(etr_trainer_evaluate(t, test, &e));
    print_bits("eval_loss", e.loss);
    print_bits("eval_accuracy", e.accuracy);
    check(etr_pipeline_next(test, &batch));
    check(etr_trainer_predict(t, batch, &outputs));
    logits.struct_size = sizeof logits;
    check(etr_batch_get(outputs, "output", &logits));
    for (i = 0; i < 10; ++i) print_bits("logit", (double)((const float*)logits.data)[i]);
    etr_batch_destroy(outputs);
    etr_batch_destroy(batch);
    etr_pipeline_destroy(test);
    etr_pipeline_destroy(p);
    etr_trainer_destroy(t);
  }
  etr_string_free(position);
  etr_runtime_destroy(runtime);
  return 0;
}
