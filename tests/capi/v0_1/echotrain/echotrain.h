/* The header of version 0.1.0 without its comments: what programs of that time were compiled with.
 * Never changed again. */
#ifndef ECHOTRAIN_ECHOTRAIN_H_
#define ECHOTRAIN_ECHOTRAIN_H_ 
#include <stdint.h>
#if defined(_WIN32)
#define ETR_API __declspec(dllimport)
#else
#define ETR_API __attribute__((visibility("default")))
#endif
#ifdef __cplusplus
extern "C" {
#endif
#define ETR_VERSION_MAJOR 0
#define ETR_VERSION_MINOR 1
#define ETR_VERSION_PATCH 0
enum {
  ETR_OK = 0,
  ETR_END = 1,
  ETR_INVALID_ARGUMENT = -1,
  ETR_NOT_FOUND = -2,
  ETR_IO = -3,
  ETR_CORRUPT_DATA = -4,
  ETR_OUT_OF_MEMORY = -5,
  ETR_NO_DEVICE = -6,
  ETR_DEVICE = -7,
  ETR_DEVICE_LOST = -8,
  ETR_CANCELLED = -9,
  ETR_STATE = -10,
  ETR_UNSUPPORTED = -11,
  ETR_INTERNAL = -12,
  ETR_CALLBACK = -13
};
ETR_API const char* etr_version(void);
ETR_API const char* etr_last_error(void);
ETR_API const char* etr_status_name(int32_t status);
ETR_API void etr_string_free(char* text);
enum { ETR_LOG_DEBUG = 0, ETR_LOG_INFO = 1, ETR_LOG_WARNING = 2, ETR_LOG_ERROR = 3 };
typedef void (*etr_log_function)(void* user_data, int32_t level, const char* message);
ETR_API int32_t etr_set_log_hook(etr_log_function function, void* user_data,
                                 void (*destroy)(void* user_data));
ETR_API int32_t etr_schema(const char* kind, char** json);
typedef struct etr_options etr_options;
ETR_API int32_t etr_options_create(etr_options** options);
ETR_API int32_t etr_options_create_from_json(const char* json, etr_options** options);
ETR_API void etr_options_destroy(etr_options* options);
ETR_API int32_t etr_options_set_integer(etr_options* options, const char* name, int64_t value);
ETR_API int32_t etr_options_set_number(etr_options* options, const char* name, double value);
ETR_API int32_t etr_options_set_boolean(etr_options* options, const char* name, int32_t value);
ETR_API int32_t etr_options_set_string(etr_options* options, const char* name, const char* value);
ETR_API int32_t etr_options_set_numbers(etr_options* options, const char* name,
                                        const double* values, int64_t count);
enum {
  ETR_DEVICE_DISCRETE = 0,
  ETR_DEVICE_INTEGRATED = 1,
  ETR_DEVICE_VIRTUAL = 2,
  ETR_DEVICE_CPU = 3,
  ETR_DEVICE_OTHER = 4
};
typedef struct etr_device_info {
  uint32_t struct_size;
  int32_t index;
  int32_t kind;
  uint32_t api_major, api_minor;
  uint32_t subgroup_size;
  uint64_t memory_bytes;
  char name[256];
  char driver[256];
} etr_device_info;
ETR_API int32_t etr_device_count(int32_t* count);
ETR_API int32_t etr_device_get(int32_t index, etr_device_info* info);
typedef struct etr_runtime etr_runtime;
enum { ETR_KERNELS_AUTOMATIC = 0, ETR_KERNELS_CPU = 1, ETR_KERNELS_TILED = 2 };
typedef struct etr_runtime_options {
  uint32_t struct_size;
  int32_t kernels;
  const char* device;
  const char* cache_dir;
  int32_t validation;
  int32_t reserved;
} etr_runtime_options;
ETR_API int32_t etr_runtime_create(const etr_runtime_options* options, etr_runtime** runtime);
ETR_API void etr_runtime_destroy(etr_runtime* runtime);
ETR_API int32_t etr_runtime_device(etr_runtime* runtime, etr_device_info* info);
ETR_API int32_t etr_prefer_wide_cpu_vectors(void);
typedef struct etr_pipeline etr_pipeline;
typedef struct etr_batch etr_batch;
enum { ETR_U8 = 0, ETR_I32 = 1, ETR_F32 = 2 };
enum { ETR_MAX_RANK = 8 };
typedef struct etr_tensor {
  uint32_t struct_size;
  int32_t dtype;
  int32_t rank;
  int32_t reserved;
  int64_t shape[ETR_MAX_RANK];
  const void* data;
  uint64_t size_bytes;
} etr_tensor;
typedef struct etr_batch_info {
  uint32_t struct_size;
  int32_t samples;
  int32_t fresh;
  int32_t echoed;
  int32_t fields;
  uint32_t replica;
  uint64_t ordinal;
  uint64_t epoch;
} etr_batch_info;
ETR_API int32_t etr_pipeline_create(const etr_options* options, etr_pipeline** pipeline);
ETR_API int32_t etr_pipeline_create_from_json(const char* json, etr_pipeline** pipeline);
ETR_API void etr_pipeline_destroy(etr_pipeline* pipeline);
ETR_API int32_t etr_pipeline_add(etr_pipeline* pipeline, const char* stage,
                                 const etr_options* options);
typedef int32_t (*etr_map_function)(void* user_data, etr_batch* item);
ETR_API int32_t etr_pipeline_add_map(etr_pipeline* pipeline, const char* name,
                                     etr_map_function function, void* user_data,
                                     void (*destroy)(void* user_data));
ETR_API int32_t etr_pipeline_next(etr_pipeline* pipeline, etr_batch** batch);
ETR_API int32_t etr_pipeline_wait(etr_pipeline* pipeline, double seconds);
ETR_API int32_t etr_pipeline_cancel(etr_pipeline* pipeline);
ETR_API int32_t etr_pipeline_stats(etr_pipeline* pipeline, char** json);
ETR_API int32_t etr_pipeline_bad_records(etr_pipeline* pipeline, char** json);
ETR_API int32_t etr_pipeline_save(etr_pipeline* pipeline, char** json);
ETR_API int32_t etr_pipeline_restore(etr_pipeline* pipeline, const char* json);
ETR_API int32_t etr_batch_get_info(const etr_batch* batch, etr_batch_info* info);
ETR_API int32_t etr_batch_get(const etr_batch* batch, const char* field, etr_tensor* tensor);
ETR_API int32_t etr_batch_field_name(const etr_batch* batch, int32_t index, const char** name);
ETR_API void etr_batch_destroy(etr_batch* batch);
ETR_API int32_t etr_batch_create(etr_batch** batch);
ETR_API int32_t etr_batch_set(etr_batch* batch, const char* field, const etr_tensor* tensor);
ETR_API int32_t etr_batch_wrap(etr_batch* batch, const char* field, const etr_tensor* tensor,
                               void (*release)(void* user_data), void* user_data);
ETR_API int32_t etr_batch_remove(etr_batch* batch, const char* field);
ETR_API int32_t etr_batch_fail(etr_batch* item, const char* message);
ETR_API int32_t etr_batch_to_dlpack(const etr_batch* batch, const char* field, void** managed);
ETR_API int32_t etr_batch_set_dlpack(etr_batch* batch, const char* field, void* managed);
ETR_API int32_t etr_pack_folder(const char* root, const char* prefix, int64_t samples_per_shard,
                                int32_t zstd_level, uint64_t seed,
                                int32_t (*progress)(void* user_data, int64_t done, int64_t total),
                                void* user_data, char** json);
typedef struct etr_model etr_model;
typedef struct etr_optimizer etr_optimizer;
ETR_API int32_t etr_model_create(etr_model** model);
ETR_API void etr_model_destroy(etr_model* model);
ETR_API int32_t etr_model_add(etr_model* model, const char* layer, const etr_options* options);
ETR_API int32_t etr_model_set_loss(etr_model* model, const char* loss, const etr_options* options);
ETR_API int32_t etr_optimizer_create(const char* name, const etr_options* options,
                                     const etr_options* schedule, etr_optimizer** optimizer);
ETR_API void etr_optimizer_destroy(etr_optimizer* optimizer);
typedef struct etr_trainer etr_trainer;
typedef struct etr_step_result {
  uint32_t struct_size;
  int32_t samples;
  uint64_t step;
  double loss, accuracy, learning_rate;
} etr_step_result;
typedef struct etr_eval_result {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t samples;
  double loss, accuracy;
} etr_eval_result;
ETR_API int32_t etr_trainer_create(etr_runtime* runtime, const etr_model* model,
                                   const etr_optimizer* optimizer, uint64_t seed,
                                   int64_t total_steps, etr_trainer** trainer);
ETR_API void etr_trainer_destroy(etr_trainer* trainer);
ETR_API int32_t etr_trainer_step(etr_trainer* trainer, const etr_batch* batch);
ETR_API int32_t etr_trainer_result(etr_trainer* trainer, int32_t wait, etr_step_result* result);
ETR_API int32_t etr_trainer_evaluate(etr_trainer* trainer, etr_pipeline* pipeline,
                                     etr_eval_result* result);
ETR_API int32_t etr_trainer_predict(etr_trainer* trainer, const etr_batch* batch,
                                    etr_batch** outputs);
ETR_API int32_t etr_trainer_save(etr_trainer* trainer, const char* directory);
ETR_API int32_t etr_trainer_load(etr_trainer* trainer, const char* directory);
enum {
  ETR_EVENT_PROGRESS = 0,
  ETR_EVENT_EVALUATION = 1,
  ETR_EVENT_CHECKPOINT = 2,
  ETR_EVENT_END = 3
};
typedef struct etr_event {
  uint32_t struct_size;
  int32_t kind;
  uint64_t step, epoch;
  uint64_t total_steps;
  double seconds;
  double loss, accuracy, learning_rate;
  double examples_per_second;
  double device_wait_share;
  uint64_t examples, fresh, echoed;
  int64_t bad_records;
  double eval_loss, eval_accuracy;
  int32_t target_reached;
  int32_t reserved;
} etr_event;
typedef struct etr_job etr_job;
ETR_API int32_t etr_job_load(const char* path, const char* const* overrides, int32_t count,
                             etr_job** job);
ETR_API int32_t etr_job_parse(const char* json, const char* const* overrides, int32_t count,
                              etr_job** job);
ETR_API void etr_job_destroy(etr_job* job);
ETR_API int32_t etr_job_json(const etr_job* job, char** json);
ETR_API int32_t etr_trainer_create_from_job(etr_runtime* runtime, const etr_job* job,
                                            int32_t resume, etr_trainer** trainer);
ETR_API int32_t etr_trainer_next_event(etr_trainer* trainer, etr_event* event);
ETR_API int32_t etr_trainer_stop(etr_trainer* trainer);
ETR_API int32_t etr_trainer_pipeline_stats(etr_trainer* trainer, char** json);
ETR_API int32_t etr_report_write(const char* title, const char* const* names,
                                 const char* const* metrics_paths, int32_t count,
                                 double target_accuracy, const char* html_path, char** json);
#ifdef __cplusplus
}
#endif
#endif
