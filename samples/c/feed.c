/* Feeds a trainer of your own with EchoTrain's pipeline. The trainer here is softmax regression in
 * thirty lines of plain C. The program needs no GPU and no Vulkan. Images stay bytes, a quarter of
 * the memory of floats, and come with a scale and a shift that the trainer applies while it reads
 * them. With a device, the upload would be a quarter, too.
 *
 *   cc -std=c99 -O2 feed.c $(pkg-config --cflags --libs echotrain) \
 *     -Wl,-rpath,$(pkg-config --variable=libdir echotrain) -lm -o feed
 *   feed FOLDER_OF_CLASS_FOLDERS          (FOLDER/CLASS/NAME.png, all images of one size)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "echotrain/echotrain.h"

enum { CLASSES = 10 }; /* at most so many class folders */

static void check(int32_t status) {
  if (status >= 0) return;
  fprintf(stderr, "error: %s\n", etr_last_error());
  exit(1);
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

/* Makes one step of gradient descent on `n` images of `pixels` bytes. A byte stands for the value
 * byte * scale + shift. Returns the loss. `weights`: [CLASSES, pixels + 1]; the last column is the
 * bias. */
static double step(float* weights, const uint8_t* images, float scale, float shift,
                   const int32_t* labels, int64_t n, int64_t pixels) {
  const float rate = 0.02f;
  double loss = 0;
  int64_t i, p;
  int c;
  for (i = 0; i < n; ++i) {
    const uint8_t* image = images + i * pixels;
    double score[CLASSES], sum = 0, most = -1e30;
    for (c = 0; c < CLASSES; ++c) {
      const float* w = weights + c * (pixels + 1);
      score[c] = w[pixels];
      for (p = 0; p < pixels; ++p) score[c] += w[p] * ((float)image[p] * scale + shift);
      if (score[c] > most) most = score[c];
    }
    for (c = 0; c < CLASSES; ++c) sum += score[c] = exp(score[c] - most);
    loss -= log(score[labels[i]] / sum) / (double)n;
    for (c = 0; c < CLASSES; ++c) {
      float* w = weights + c * (pixels + 1);
      const float gradient = (float)(score[c] / sum) - (c == labels[i]);
      const float by = rate * gradient / (float)n;
      for (p = 0; p < pixels; ++p) w[p] -= by * ((float)image[p] * scale + shift);
      w[pixels] -= by;
    }
  }
  return loss;
}

int main(int argc, char** argv) {
  etr_pipeline* pipeline;
  etr_options* options;
  etr_batch* batch;
  etr_tensor image, label, scale, shift;
  char* why;
  float* weights = NULL;
  int64_t pixels = 0;
  int32_t status;
  int epoch, steps;
  double loss = 0;
  if (argc != 2) return fprintf(stderr, "usage: feed FOLDER\n"), 2;
  image.struct_size = label.struct_size = scale.struct_size = shift.struct_size = sizeof image;

  /* `deferred`: batches are u8 [N, H, W, C], with f32 [C] as image_scale and image_shift. */
  check(etr_options_create_from_json("{\"seed\": 1}", &options));
  check(etr_pipeline_create(options, &pipeline));
  etr_options_destroy(options);
  folder(pipeline, argv[1]);
  stage(pipeline, "label", "{\"classes\": 10}"); /* refuses labels for which step() has no weights */
  stage(pipeline, "decode", "{\"channels\": \"gray\"}");
  stage(pipeline, "cache", "{}");
  stage(pipeline, "random_crop", "{\"pad\": 1}");
  stage(pipeline, "batch", "{\"size\": 32}");
  stage(pipeline, "normalize", "{\"std\": [0.25], \"deferred\": true}");
  for (epoch = 1; epoch <= 3; ++epoch) {
    /* ETR_END is the end of an epoch; the next call begins the next one. */
    for (steps = 0; (status = etr_pipeline_next(pipeline, &batch)) == ETR_OK; ++steps) {
      check(etr_batch_get(batch, "image", &image));
      check(etr_batch_get(batch, "label", &label));
      check(etr_batch_get(batch, "image_scale", &scale));
      check(etr_batch_get(batch, "image_shift", &shift));
      if (!weights) {
        pixels = image.shape[1] * image.shape[2] * image.shape[3];
        weights = calloc((size_t)(CLASSES * (pixels + 1)), sizeof *weights);
        if (!weights) return 1;
      }
      loss = step(weights, image.data, *(const float*)scale.data, *(const float*)shift.data,
                  label.data, image.shape[0], pixels);
      etr_batch_destroy(batch); /* ends the life of `image.data` */
    }
    check(status);
    printf("epoch %d: %d steps, loss %.3f\n", epoch, steps, loss);
  }

  check(etr_pipeline_explain(pipeline, "text", &why));
  printf("\n%s", why);
  etr_string_free(why);
  etr_pipeline_destroy(pipeline);
  free(weights);
  return 0;
}
