/* EchoTrain: pipelines with echo nodes, and training on any Vulkan device.
 *
 * Conventions, true for every function below:
 *
 *  1. Functions return a status: ETR_OK (0), ETR_END (1, no more data), or a negative error. After
 *     an error, etr_last_error() gives the calling thread a message that names the file, key, shape
 *     or option at fault. Outputs come last and are written only on ETR_OK (unless said otherwise).
 *  2. Handles are opaque. etr_X_destroy(NULL) does nothing. Handles may be destroyed in any order:
 *     one that another still needs lives on inside.
 *  3. Strings are UTF-8 and end with NUL. Strings that the library returns through `char**` belong
 *     to the caller, who frees them with etr_string_free. Strings passed in are copied.
 *  4. Different handles may be used from different threads at once. A handle serves one thread at a
 *     time: a call on a handle that another thread is using, or that comes from a callback of a call
 *     on the same handle, fails with ETR_STATE and changes nothing. Exceptions: functions marked
 *     "any thread", and handles taken as const, which several threads may read at once.
 *     etr_X_destroy may be called from any thread; a handle in use is freed when that call returns,
 *     and no new call on it may start.
 *  5. Structs begin with struct_size: set it to sizeof the struct before the call. They only grow
 *     at the end, so a program built with an older header keeps working.
 *  6. The library never prints, never exits, never throws across this boundary, and installs no
 *     signal handler; 9 names the one exception. A thread that is in a call cannot be cancelled
 *     (pthread_cancel): that takes effect when it returns.
 *  7. Sizes are in bytes, times in seconds, unless a name says otherwise. Images are [N, H, W, C].
 *  8. Stages, layers and optimizers are made by name with options; etr_schema() lists both.
 *  9. Functions of yours (map functions, the log hook) have `user_data` and `destroy`, which is
 *     called exactly once, also after an error. They return, and do not leave by longjmp. A C++
 *     exception that leaves a map, source or progress function is its failure (ETR_CALLBACK); the
 *     other functions must not throw. A function must not end its thread, which is the library's
 *     more often than yours: pthread_exit ends the process, with a line on standard error and in
 *     the log that names the function; cancelling the thread has no effect.
 */
#ifndef ECHOTRAIN_ECHOTRAIN_H_
#define ECHOTRAIN_ECHOTRAIN_H_

#include <stdint.h>

#include "echotrain/engine.h"

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

/* ---- status ---------------------------------------------------------------------------------- */

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
  ETR_CALLBACK = -13,   /* a function of yours failed; see etr_pipeline_add_map */
  ETR_NOT_FINITE = -14, /* a loss or gradient was NaN or infinite; the message names what made it */
  ETR_RANK_LOST = -15   /* a process of the group is dead, frozen or unreachable; the message says which */
};

/* The library's version, "0.1.0". A constant. */
ETR_API const char* etr_version(void);

/* The message of this thread's last failed call; "" if none failed. Valid until the next. */
ETR_API const char* etr_last_error(void);

/* "invalid argument" and so on. A constant. */
ETR_API const char* etr_status_name(int32_t status);

ETR_API void etr_string_free(char* text);

enum { ETR_LOG_DEBUG = 0, ETR_LOG_INFO = 1, ETR_LOG_WARNING = 2, ETR_LOG_ERROR = 3 };

/* Called on whichever thread logs, one call at a time; must not call back into the library, but for etr_log_subject. */
typedef void (*etr_log_function)(void* user_data, int32_t level, const char* message);

enum { ETR_LOG_ABOUT_OTHER = 0, ETR_LOG_ABOUT_BAD_RECORD = 1, ETR_LOG_ABOUT_PARTITION = 2 };

/* In a log function: what its line is about, ETR_LOG_ABOUT_*; of a bad record that was dropped, for instance, there may be many
 * lines; how a model is shared out among ranks (parallel.mesh), and why, is told once, as information. Elsewhere ETR_LOG_ABOUT_OTHER. A log function may call it, and no other. */
ETR_API int32_t etr_log_subject(void);

/* Sends log lines to `function`; NULL drops them (the default). `destroy` (may be NULL) is called
 * once with `user_data` when the hook is replaced. Any thread. */
ETR_API int32_t etr_set_log_hook(etr_log_function function, void* user_data,
                                 void (*destroy)(void* user_data));

/* Memory for samples and batches. `allocate` gives `size_bytes` aligned to `alignment` (64), or NULL where there is none: the
 * call or pipeline that needed it ends with ETR_OUT_OF_MEMORY. Any thread calls them, several at once. */
typedef void* (*etr_allocate_function)(void* user_data, uint64_t size_bytes, uint64_t alignment);
typedef void (*etr_release_function)(void* user_data, void* memory, uint64_t size_bytes);

/* Takes the memory of samples and batches, nearly all that a pipeline takes, from functions of yours from now on; NULL for
 * both: from the library's own pools again. Memory goes back where it came from. `destroy` (may be NULL) is called once with
 * `user_data` when another allocator is set and the last block is back. Any thread. */
ETR_API int32_t etr_set_allocator(etr_allocate_function allocate, etr_release_function release,
                                  void* user_data, void (*destroy)(void* user_data));

/* ---- what there is --------------------------------------------------------------------------- */

/* A JSON array of {"name", "doc", "options": [{"name", "type", "default", "min", "max", "unit",
 * "choices", "doc"}]} for kind "stages", "layers", "models" or "optimizers"; an object of such option lists
 * for kind "job" or "study"; one such list for "pack". Stages have "prepares" too: whether they bring images into the model's form, in
 * training as in predictions. */
ETR_API int32_t etr_schema(const char* kind, char** json);

/* ---- options --------------------------------------------------------------------------------- */

/* A set of named values, for stages, layers and optimizers. Checked where it is used. */
typedef struct etr_options etr_options;

ETR_API int32_t etr_options_create(etr_options** options);
/* All values at once: a JSON object such as {"factor": 2.5, "mode": "fixed"}. */
ETR_API int32_t etr_options_create_from_json(const char* json, etr_options** options);
ETR_API void etr_options_destroy(etr_options* options);
ETR_API int32_t etr_options_set_integer(etr_options* options, const char* name, int64_t value);
ETR_API int32_t etr_options_set_number(etr_options* options, const char* name, double value);
ETR_API int32_t etr_options_set_boolean(etr_options* options, const char* name, int32_t value);
ETR_API int32_t etr_options_set_string(etr_options* options, const char* name, const char* value);
ETR_API int32_t etr_options_set_numbers(etr_options* options, const char* name,
                                        const double* values, int64_t count);

/* ---- devices and the runtime ----------------------------------------------------------------- */

enum {
  ETR_DEVICE_DISCRETE = 0,
  ETR_DEVICE_INTEGRATED = 1,
  ETR_DEVICE_VIRTUAL = 2,
  ETR_DEVICE_CPU = 3,
  ETR_DEVICE_OTHER = 4
};

typedef struct etr_device_info {
  uint32_t struct_size;
  int32_t index; /* discrete GPUs first, CPU devices last */
  int32_t kind;  /* ETR_DEVICE_* */
  uint32_t api_major, api_minor;
  uint32_t subgroup_size;
  uint64_t memory_bytes;
  char name[256];
  char driver[256];
} etr_device_info;

/* The number of Vulkan devices. ETR_NO_DEVICE where the loader or every driver is missing. */
ETR_API int32_t etr_device_count(int32_t* count);
ETR_API int32_t etr_device_get(int32_t index, etr_device_info* info);

/* An opened device with its kernels. Trainers of one runtime share it, and may be made and used by several threads at once. */
typedef struct etr_runtime etr_runtime;

enum {
  ETR_KERNELS_AUTOMATIC = 0,
  ETR_KERNELS_CPU = 1,
  ETR_KERNELS_TILED = 2,
  ETR_KERNELS_MATRIX = 3
};

typedef struct etr_runtime_options {
  uint32_t struct_size;
  int32_t kernels;    /* ETR_KERNELS_*: automatic chooses by what the device reports */
  const char* device; /* NULL or "": the first; a number: that index; other text: part of a name */
  const char* cache_dir; /* pipeline cache; NULL: the user's cache directory; "": none */
  int32_t validation;    /* not 0: load the Vulkan validation layer; messages go to the log hook */
  /* 0: in the first step that uses a kernel, its results are compared with the host's, once for a driver's version (kept in the
   * cache), and a kernel that the driver computes wrongly is compiled without the driver's optimizer. Not 0: never. */
  int32_t trust_driver;
  uint64_t
      memory_limit_bytes; /* of device memory; beyond it calls give ETR_OUT_OF_MEMORY; 0: what there is */
  const char*
      tuning; /* a file of etr_runtime_tune; NULL: tuning.json in the cache directory, if it is there; "": none */
} etr_runtime_options;

/* `options` may be NULL. */
ETR_API int32_t etr_runtime_create(const etr_runtime_options* options, etr_runtime** runtime);

/* A Vulkan device of your own, to train on beside what else it does. The handles are Vulkan's (VkInstance, ...), of an
 * instance of version 1.1 or later; they stay yours and must outlive the runtime and all that was made with it. */
typedef struct etr_vulkan_device {
  uint32_t struct_size;
  uint32_t queue_family;        /* of `queue`, with VK_QUEUE_COMPUTE_BIT */
  void* get_instance_proc_addr; /* PFN_vkGetInstanceProcAddr; NULL: the system's loader */
  void* instance;
  void* physical_device;
  void* device;
  void* queue;
  int32_t
      buffer_addresses; /* not 0: made with the features bufferDeviceAddress and shaderInt64 (CPU kernels need them) */
  int32_t
      matrix_units; /* not 0: made with cooperativeMatrix, vulkanMemoryModel, and shaderFloat16 and shaderBFloat16CooperativeMatrix as the device has them */
  /* Called before and after each vkQueueSubmit, on the thread that trains, so that no two threads use the queue at once.
   * May be NULL where you do not use it while a trainer works. */
  void (*lock)(void* user_data);
  void (*unlock)(void* user_data);
  void* user_data;
} etr_vulkan_device;

/* `options` may be NULL; its device and validation are not looked at. */
ETR_API int32_t etr_runtime_create_shared(const etr_vulkan_device* vulkan,
                                          const etr_runtime_options* options,
                                          etr_runtime** runtime);
ETR_API void etr_runtime_destroy(etr_runtime* runtime);
/* Tries, on the runtime's device, every kernel for each product and convolution that its trainers have planned so far (with
 * their first batch) and that the tuning file did not know, which takes some tenths of a second each, and writes what was fastest
 * into the file `path` (NULL: tuning.json in the user's cache directory), beside what it has of other devices. Trainers that are made
 * later use it, in this runtime and in those that read the file: ship it with the program. Meanwhile making a trainer gives
 * ETR_STATE. `progress` (may be NULL) is called
 * on this thread with the product and the kernel; returning 0 ends early, and what was measured is written. Leave the device alone
 * meanwhile. */
ETR_API int32_t etr_runtime_tune(etr_runtime* runtime, const char* path,
                                 int32_t (*progress)(void* user_data, int64_t done, int64_t total,
                                                     const char* product, const char* kernel),
                                 void* user_data);
/* Any thread. */
ETR_API int32_t etr_runtime_device(etr_runtime* runtime, etr_device_info* info);

/* For programs that train on a CPU device (Mesa lavapipe): asks its driver for 512-bit vectors
 * where the processor has them and the driver gains by them (Mesa 25 and later), which speeds up training by about a third.
 * It lists the devices to find out, which takes some tens of milliseconds, and sets an environment
 * variable of this process (LP_NATIVE_VECTOR_WIDTH, unless set already), so call it first thing in
 * main(), before other threads and before any Vulkan call. The command line does. Errors: those of etr_device_count, but for
 * ETR_NO_DEVICE. */
ETR_API int32_t etr_prefer_wide_cpu_vectors(void);

/* ---- pipelines ------------------------------------------------------------------------------- */

typedef struct etr_pipeline etr_pipeline;
typedef struct etr_batch etr_batch;

enum { ETR_U8 = 0, ETR_I32 = 1, ETR_F32 = 2, ETR_U16 = 3 };
enum { ETR_MAX_RANK = 8 };

/* A dense row-major array owned by somebody else. A shape may have extents of 0: the array then has no elements, size_bytes
 * is 0, and data may be NULL. Whatever their order, the product of the other extents and the size of an element must be below
 * 2^63. */
typedef struct etr_tensor {
  uint32_t struct_size;
  int32_t dtype; /* ETR_U8, ETR_I32, ETR_F32, ETR_U16 */
  int32_t rank;
  int32_t reserved;
  int64_t shape[ETR_MAX_RANK];
  const void* data;
  uint64_t size_bytes;
} etr_tensor;

typedef struct etr_batch_info {
  uint32_t struct_size;
  int32_t samples; /* in the batch; 0 for a single sample of a pipeline without a batch stage */
  int32_t
      fresh; /* of which read from upstream for it; none in a batch that is repeated as a whole */
  int32_t echoed; /* of which repeated by an echo node, alone or with their batch */
  int32_t fields;
  uint32_t replica; /* of a single sample: 0 is fresh, n the n-th echo of it */
  uint64_t ordinal; /* of the first sample in its epoch's source order */
  uint64_t epoch;   /* inside a map function only */
  int32_t unique;   /* different samples in the batch */
  int32_t reserved;
  double
      mean_age; /* of its samples: fresh ones that echo nodes received since they received these */
} etr_batch_info;

/* An empty pipeline; `options` (may be NULL) are those of the job section "pipeline": threads,
 * seed, epochs, queue_items, on_error and so on. */
ETR_API int32_t etr_pipeline_create(const etr_options* options, etr_pipeline** pipeline);

/* A whole pipeline from JSON: {"stages": [{"stage": "webdataset", "pattern": "..."}, ...], ...}. With the option
 * "budget_bytes" a few samples are read, to learn whether it is enough. */
ETR_API int32_t etr_pipeline_create_from_json(const char* json, etr_pipeline** pipeline);
/* Cancels, and returns when all work has ended; inside a map function, of this pipeline or another, at once, and the work ends later.
 * Any thread: a call that another thread is in ends with ETR_CANCELLED, and whichever of the two returns last waits for the work. */
ETR_API void etr_pipeline_destroy(etr_pipeline* pipeline);

/* Appends a stage; the first is a source. ETR_STATE once reading has begun. Reads nothing: whether "budget_bytes" is
 * enough is said by the first etr_pipeline_next or etr_pipeline_wait. */
ETR_API int32_t etr_pipeline_add(etr_pipeline* pipeline, const char* stage,
                                 const etr_options* options);

/* A function of yours as a stage. It is called from worker threads, from several at once, with one
 * item at a time: a sample [H, W, C], or after `batch` a whole batch. It reads the item's fields
 * and sets new ones; the item is valid during the call only. It returns ETR_OK, with a field left, or
 * an error status: the record is then a bad one, as if a stage of the library had failed (ETR_CALLBACK
 * under on_error "fail"); etr_batch_fail says why. ETR_END, which is for sources, is such an error too.
 * For the same batches at any thread count let it depend on nothing but the item; draw random numbers from seed, epoch, ordinal and replica. It must not
 * use the pipeline. The item is the pipeline's: etr_batch_destroy leaves it as it is, and is a failure of the function. */
typedef int32_t (*etr_map_function)(void* user_data, etr_batch* item);

/* Appends the stage `map` with this function; `name` (unique in the pipeline) stands for it in
 * errors, statistics and saved positions. `destroy` (may be NULL) is called exactly once with
 * `user_data`, on any thread, when nothing can call the function any more, also after an error. */
ETR_API int32_t etr_pipeline_add_map(etr_pipeline* pipeline, const char* name,
                                     etr_map_function function, void* user_data,
                                     void (*destroy)(void* user_data));

/* A function of yours as the source, before any other stage. It is called on one thread at a time,
 * not yours, and sets the fields of one sample: etr_batch_get_info tells the epoch, and in `ordinal`
 * the pass (ordinal >> 40) and the sample's number in it (the rest). It returns ETR_OK with at least
 * one field set, ETR_END where the pass has no more samples (fields do not count then), or an error
 * status: that record is a bad one then, and so it is with ETR_OK and no field. Restored, it is
 * called again from the beginning of the epoch, and should give the same samples. The rest is as for
 * etr_pipeline_add_map. */
ETR_API int32_t etr_pipeline_add_source(etr_pipeline* pipeline, const char* name,
                                        etr_map_function function, void* user_data,
                                        void (*destroy)(void* user_data));

/* The next batch. Blocks until there is one. ETR_END at the end of an epoch; the next call goes on
 * with the next epoch, if there is one. Errors of worker threads arrive here, after everything that
 * came before them, and stay. */
ETR_API int32_t etr_pipeline_next(etr_pipeline* pipeline, etr_batch** batch);

/* Waits until etr_pipeline_next would not block, at most `seconds` (0 to 1e6); ETR_END where it still would.
 * For programs that must look after something else meanwhile, such as signals. */
ETR_API int32_t etr_pipeline_wait(etr_pipeline* pipeline, double seconds);

/* Batches in the epoch of the next batch, if no record is dropped; -1 where that is not known: the
 * number of records of some sources is not known before a first pass over them is over, an epoch may
 * have no end, and echo on demand depends on time. ETR_IO where the source cannot be listed. */
ETR_API int32_t etr_pipeline_length(etr_pipeline* pipeline, int64_t* batches);

/* Ends all work and lets a blocked etr_pipeline_next return ETR_CANCELLED. Any thread. */
ETR_API int32_t etr_pipeline_cancel(etr_pipeline* pipeline);

/* Statistics as JSON: for each stage items, busy, starved and blocked seconds, queue depth and
 * bounds; of a cache its hits and misses; fresh and echoed samples and waiting time of the consumer. Any thread. */
ETR_API int32_t etr_pipeline_stats(etr_pipeline* pipeline, char** json);

/* Why is it slow? What each stage of a pipeline that has run for a while could do, where the bottleneck
 * is, and what more threads, a cache or an echo stage would gain, predicted from what was measured.
 * `format`: "text" for people; "svg", a drawing coloured by load; "json" ({"samples_per_s", "bottleneck":
 * {"limit": "consumer"|"threads"|"stage"|"none", "stage" (null with "none"), "why"}, "pool": what all threads
 * could do together, "stages", "predictions", ...}). ETR_STATE before the first batch. Any thread. */
ETR_API int32_t etr_pipeline_explain(etr_pipeline* pipeline, const char* format, char** text);

/* The same from statistics alone: those of etr_pipeline_stats or etr_trainer_pipeline_stats. */
ETR_API int32_t etr_explain_stats(const char* stats, const char* format, char** text);

/* Finds good settings for a pipeline, as JSON as for etr_pipeline_create_from_json, by trying them: threads,
 * requests in flight, batches ahead. Each trial runs for `seconds` (above 0, at most 1e6) with a consumer that takes
 * `step_ms` (0 to 1e6) for a batch. `progress` (may be NULL) is called after each trial with its JSON; returning 0 stops with
 * ETR_CANCELLED. `json` receives {"options", "samples_per_s", "trials"}; saved in a file, it serves as a
 * pipeline's option "tuned". */
ETR_API int32_t etr_pipeline_tune(const char* spec, double seconds, double step_ms,
                                  int32_t (*progress)(void* user_data, const char* trial),
                                  void* user_data, char** json);

/* The pipeline's work, thread by thread, as a Chrome trace (chrome://tracing, Perfetto): the newest
 * events, as many as the pipeline's option "trace_events" (0, the default, keeps none: ETR_STATE). */
ETR_API int32_t etr_pipeline_trace(etr_pipeline* pipeline, char** json);

/* The bad records that were tolerated, the first 1,000: a JSON array of {"stage", "shard", "key", "reason",
 * "offset" (bytes into the decompressed shard, where known), "times" (how often it was met: once in each epoch)}. Bytes of
 * names that are not UTF-8 are written as a backslash, "x" and two hexadecimal digits. Any thread. */
ETR_API int32_t etr_pipeline_bad_records(etr_pipeline* pipeline, char** json);

/* The position after the last batch read, as JSON; small. A pipeline of the same spec that restores
 * it before reading continues with the same batches.
 * Where several processes ("rank", "world") share the samples, each saves its own. A JSON array of the positions of all ranks, in
 * order, can be restored by any number of processes, in the middle of an epoch too: what is left of it is shared out anew, so that
 * each sample comes once (ETR_UNSUPPORTED with the stages take, skip, bucket and pack_sequences, and the policy substitute). */
ETR_API int32_t etr_pipeline_save(etr_pipeline* pipeline, char** json);
ETR_API int32_t etr_pipeline_restore(etr_pipeline* pipeline, const char* json);

ETR_API int32_t etr_batch_get_info(const etr_batch* batch, etr_batch_info* info);

/* The field's data lives until the batch is destroyed. Image pipelines give "image" and "label". */
ETR_API int32_t etr_batch_get(const etr_batch* batch, const char* field, etr_tensor* tensor);
ETR_API int32_t etr_batch_field_name(const etr_batch* batch, int32_t index, const char** name);
ETR_API void etr_batch_destroy(etr_batch* batch);

/* Batches of one's own, for trainers without a pipeline; fields may also be changed in a map
 * function or in a batch that was read. The name of a field, as that of a function, has 1 to 1,000 bytes of UTF-8 and no
 * control characters: ETR_INVALID_ARGUMENT otherwise. */
ETR_API int32_t etr_batch_create(etr_batch** batch);

/* Sets a field to a copy of `tensor`. */
ETR_API int32_t etr_batch_set(etr_batch* batch, const char* field, const etr_tensor* tensor);

/* Sets a field to `tensor` without a copy. The memory must not change and must live until `release`
 * (may be NULL) is called with `user_data`: exactly once, on any thread, also after an error. */
ETR_API int32_t etr_batch_wrap(etr_batch* batch, const char* field, const etr_tensor* tensor,
                               void (*release)(void* user_data), void* user_data);
ETR_API int32_t etr_batch_remove(etr_batch* batch, const char* field);

/* A range of a VkBuffer of yours, on the device of etr_runtime_create_shared: an array in row-major order. */
typedef struct etr_vulkan_buffer {
  uint32_t struct_size;
  int32_t dtype; /* ETR_I32 or ETR_F32 */
  int32_t rank;
  int32_t reserved;
  int64_t shape[ETR_MAX_RANK];
  void* buffer;    /* VkBuffer; the queue's family owns it, or several share it */
  uint64_t offset; /* in bytes */
} etr_vulkan_buffer;

/* Sets a field to the contents of a VkBuffer (made with VK_BUFFER_USAGE_TRANSFER_SRC_BIT), for trainers of the runtime that shares
 * its device. A step copies it on the device, in the order of the queue: submit what fills the buffer before
 * etr_trainer_step, and end that with a barrier to VK_ACCESS_TRANSFER_READ_BIT. The contents must stay until `release` (may
 * be NULL) is called with `user_data`: exactly once, on any thread, also after an error, when the batch is destroyed and its
 * step is over (which etr_trainer_result finds out); or until the step has been started, if what overwrites them is submitted
 * to the same queue after a barrier from VK_PIPELINE_STAGE_TRANSFER_BIT. etr_batch_get gives ETR_STATE for such a field. */
ETR_API int32_t etr_batch_wrap_vulkan(etr_batch* batch, const char* field,
                                      const etr_vulkan_buffer* buffer,
                                      void (*release)(void* user_data), void* user_data);

/* In a map function that is about to return an error: the reason, for the error's message. */
ETR_API int32_t etr_batch_fail(etr_batch* item, const char* message);

/* The field as a DLPack tensor (DLManagedTensor* of dlpack.h, CPU memory), without a copy. It keeps
 * the memory alive by itself, beyond the batch; call its deleter when done. Other batches may share
 * the memory with it (echoes): do not write to it. */
ETR_API int32_t etr_batch_to_dlpack(const etr_batch* batch, const char* field, void** managed);

/* Sets a field to a DLPack tensor (u8, u16, i32 or f32, row-major, in CPU memory) without a copy, and
 * takes it over: its deleter runs when nobody uses it any more, on any thread. On an error it still
 * belongs to the caller. */
ETR_API int32_t etr_batch_set_dlpack(etr_batch* batch, const char* field, void* managed);

/* Packs root/CLASS/NAME.EXT into shards, shuffled: PREFIX-000000.tar.zst and so on for the stage
 * `webdataset`, or with the option format "fast" PREFIX-000000.ets for `fast_shard`, whose images decode
 * several times as fast as PNGs. CLASS/NAME becomes the sample's key. The folder of PREFIX must lie outside
 * of root, and is made if it is missing; it gets classes.txt, the classes in the order of their numbers, and
 * where it has one already, those numbers count. `options` (may
 * be NULL): those of etr_schema("pack"). `progress` (may be NULL) is called on this thread; returning 0 stops with
 * ETR_CANCELLED, and as after any error no shard is left. `json` (may be NULL) receives {"samples", "validation_samples",
 * "bytes", "packed_bytes", "shards", "classes", "classes_file", "skipped": [{"file", "reason"}]}. */
ETR_API int32_t etr_pack(const char* root, const char* prefix, const etr_options* options,
                         int32_t (*progress)(void* user_data, int64_t done, int64_t total),
                         void* user_data, char** json);

/* The same for tar archives; `zstd_level` 0 writes plain .tar. Replaces shards of an earlier packing. */
ETR_API int32_t etr_pack_folder(const char* root, const char* prefix, int64_t samples_per_shard,
                                int32_t zstd_level, uint64_t seed,
                                int32_t (*progress)(void* user_data, int64_t done, int64_t total),
                                void* user_data, char** json);

/* ---- models and optimizers ------------------------------------------------------------------- */

typedef struct etr_model etr_model;
typedef struct etr_optimizer etr_optimizer;

/* An empty model: layers are added to it. */
ETR_API int32_t etr_model_create(etr_model** model);

/* A model as a job has it: {"layers": [...]}, where a layer may have a "name" and read others by "input",
 * or a ready-made one (etr_schema("models") lists them): {"model": "cifar_resnet", "depth": 8}. Both may say
 * "inputs" (fields of the batch; "image" where it does not) and "loss". */
ETR_API int32_t etr_model_create_from_json(const char* spec, etr_model** model);
ETR_API void etr_model_destroy(etr_model* model);
ETR_API int32_t etr_model_add(etr_model* model, const char* layer, const etr_options* options);

/* The model as JSON: a ready-made one with all its layers. ETR_INVALID_ARGUMENT before there is a layer. */
ETR_API int32_t etr_model_json(const etr_model* model, char** json);

/* What the model is made of, for samples of these shapes: `fields` is JSON such as {"image": [28, 28, 1]}, or
 * {"text": {"dtype": "i32", "shape": [12]}}, for each field that the model reads. `format`: "text" for people; "json"
 * ({"inputs": [{"name", "dtype", "shape"}], "layers": [{"name", "op", "shape", "parameters"}], "parameters", "states"},
 * where -1 in a shape is the batch axis and states are running statistics). ETR_INVALID_ARGUMENT names the layer that does
 * not fit. */
ETR_API int32_t etr_model_summary(const etr_model* model, const char* fields, const char* format,
                                  char** text);

/* "softmax_cross_entropy" (the default; integer labels), "binary_cross_entropy", "mse", "l1" or "huber"; the options
 * are those of etr_schema("job"), "loss". */
ETR_API int32_t etr_model_set_loss(etr_model* model, const char* loss, const etr_options* options);

/* `schedule`: learning_rate and the other options of the job section "schedule". */
ETR_API int32_t etr_optimizer_create(const char* name, const etr_options* options,
                                     const etr_options* schedule, etr_optimizer** optimizer);
ETR_API void etr_optimizer_destroy(etr_optimizer* optimizer);

/* ---- training -------------------------------------------------------------------------------- */

typedef struct etr_trainer etr_trainer;

typedef struct etr_step_result {
  uint32_t struct_size;
  int32_t samples;
  uint64_t step; /* 1 is the first */
  double loss, accuracy, learning_rate;
} etr_step_result;

typedef struct etr_eval_result {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t samples;
  double loss, accuracy;
} etr_eval_result;

/* A trainer for a loop of one's own. `total_steps` is where decaying schedules end (0: unknown). */
ETR_API int32_t etr_trainer_create(etr_runtime* runtime, const etr_model* model,
                                   const etr_optimizer* optimizer, uint64_t seed,
                                   int64_t total_steps, etr_trainer** trainer);
/* Any thread. Returns at once; if another thread is in a call on the trainer, the trainer is freed when that call returns. */
ETR_API void etr_trainer_destroy(etr_trainer* trainer);

/* Starts a step on `batch` (fields image: f32 [N, ...], label: i32 [N], or f32 for mse) and returns
 * while the device works; up to three steps are in flight. The batch may be destroyed at once. Batches may differ in N (one
 * with fewer samples than the most so far is computed with some repeated, so that batch statistics stay sane; they do not
 * count otherwise), and in the shape of their samples where no parameter depends on it: ETR_INVALID_ARGUMENT names the field
 * otherwise. Each new shape is planned once, which takes a while; the eight used last are kept. */
ETR_API int32_t etr_trainer_step(etr_trainer* trainer, const etr_batch* batch);

/* The oldest finished step that was not asked for yet. `wait` 0: ETR_END where none has finished;
 * otherwise waits for one and gives ETR_END when no step is in flight. ETR_NOT_FINITE where its loss or a gradient was NaN
 * or infinite, after the results of the steps before it: the message names what made it. That step has not changed the
 * weights, nor have the steps that were in flight after it; they give no results, and the trainer may go on. ETR_STATE for
 * a job's trainer, whose events tell the same. */
ETR_API int32_t etr_trainer_result(etr_trainer* trainer, int32_t wait, etr_step_result* result);

/* One whole epoch of `pipeline` in evaluation mode. Where an epoch has begun (an earlier evaluation was stopped, the program
 * has read batches), what is left of it is read past, and the next epoch is evaluated; ETR_INVALID_ARGUMENT where there is
 * none. Training, in contrast, goes on where the pipeline stands. For a job's trainer `pipeline` may be NULL: the job's,
 * from its beginning; etr_trainer_stop ends that with ETR_CANCELLED, also while no data comes, as etr_pipeline_cancel ends
 * that of another pipeline. Messages of other errors begin with "evaluation: ". */
ETR_API int32_t etr_trainer_evaluate(etr_trainer* trainer, etr_pipeline* pipeline,
                                     etr_eval_result* result);

/* Reports the progress of evaluations. `progress` is called after each batch, on the thread that evaluates. `batches` is how
 * many there are, -1 where that is not known. Batches that are read past first (see etr_trainer_evaluate) are told with
 * `done` 0. Returning 0 stops the evaluation: etr_trainer_evaluate returns ETR_CANCELLED; a job's run continues without it.
 * NULL removes the callback. `destroy` (may be NULL) is called exactly once with `user_data`:
 * when the callback is replaced or removed, when the trainer is destroyed, or in this call where it fails or `progress` is
 * NULL. */
ETR_API int32_t etr_trainer_on_evaluation(etr_trainer* trainer,
                                          int32_t (*progress)(void* user_data, int64_t done,
                                                              int64_t batches),
                                          void* user_data, void (*destroy)(void* user_data));

/* Writes the model with its weights as an ONNX file (opset 17), for other runtimes: inputs by the names of their fields,
 * images [N, H, W, C] as here, one output "output", any number of rows N; batch normalisation is folded. ETR_STATE before
 * the first batch (a job's trainer reads one), ETR_UNSUPPORTED with the layer that ONNX cannot express, ETR_IO. Waits for the steps in flight. */
ETR_API int32_t etr_trainer_export_onnx(etr_trainer* trainer, const char* path);

/* The model's parameters and running statistics as the fields of a new batch, by their names, f32 and in the model's order:
 * a copy. `name` NULL: all; otherwise the one of that name (ETR_NOT_FOUND names the nearest). ETR_STATE before the first
 * batch (a job's trainer reads one). Waits for the steps in flight. */
ETR_API int32_t etr_trainer_get_weights(etr_trainer* trainer, const char* name,
                                        etr_batch** weights);

/* Replaces the parameters and running statistics named by the fields of `weights`; others keep their values. The optimizer's
 * state is kept, except the mean of the weights, which is set too. If any field does not fit, nothing changes (ETR_NOT_FOUND,
 * ETR_INVALID_ARGUMENT). ETR_STATE before the first batch. */
ETR_API int32_t etr_trainer_set_weights(etr_trainer* trainer, const etr_batch* weights);

/* Changes a hyperparameter from the next step on, at no cost: "momentum", "beta1", "beta2", "decay" or "weight_decay", where the
 * optimizer has an option of that name, and "label_smoothing" of the loss softmax_cross_entropy. ETR_NOT_FOUND names those that
 * there are; ETR_INVALID_ARGUMENT: out of the option's range, or a momentum of an optimizer that began with 0 and keeps no
 * velocity. It takes the place of what the schedule says of that number (momentum_end and the like). Checkpoints keep it, and
 * one that is loaded brings its own. Where several processes train together, all make the same call between the same steps (after
 * an event of the kind evaluation or checkpoint): ETR_INVALID_ARGUMENT on all where they say different things. */
ETR_API int32_t etr_trainer_set_hyperparameter(etr_trainer* trainer, const char* name,
                                               double value);

/* As etr_model_summary, with the shapes of the first batch: ETR_STATE before it (a job's trainer reads one). */
ETR_API int32_t etr_trainer_summary(etr_trainer* trainer, const char* format, char** text);

/* Where a training step's time goes: runs `steps` steps on `batch`, kernel by kernel (they train: this is for a trainer
 * that is thrown away), and gives the median times. A job's trainer takes `batch` NULL and reads its own pipeline.
 * `format`: "text" for people; "json" ({"seconds", "roof", "ops": [{"op", "kernel", "calls", "seconds", "flops_per_s",
 * "bytes_per_s", "of_roof"}]}); "trace", a step as a Chrome trace. ETR_UNSUPPORTED where the device has no timestamps. */
ETR_API int32_t etr_trainer_profile(etr_trainer* trainer, const etr_batch* batch, int32_t steps,
                                    const char* format, char** text);

/* The model's last layer for the field image of `batch` (of any number of rows), in evaluation mode, as a new batch with the field "output": f32 [N, outputs]; for a
 * classifier these are logits, before the softmax. Waits for the steps in flight. */
ETR_API int32_t etr_trainer_predict(etr_trainer* trainer, const etr_batch* batch,
                                    etr_batch** outputs);

/* The same into a VkBuffer of yours (made with VK_BUFFER_USAGE_TRANSFER_DST_BIT), f32 [N, outputs] as etr_batch_wrap_vulkan
 * says; returns when it is written. What read the buffer before must have been submitted. */
ETR_API int32_t etr_trainer_predict_vulkan(etr_trainer* trainer, const etr_batch* batch,
                                           const etr_vulkan_buffer* output);

/* What a detector (model ssd, layers box_head) has found: of a batch that etr_trainer_predict made, a new batch with the
 * field "boxes", f32 [N, most, 6]: label, left, top, right, bottom (shares of the image), score. The best come first; rows
 * beyond those found have the label -1. Boxes count from `least_score` (0.5) on, the probability of their class; of two of
 * a class whose intersection over union is above `most_overlap` (0.45) the better one stays. Both are 0 to 1. Any thread. */
ETR_API int32_t etr_detections(const etr_batch* outputs, double least_score, double most_overlap,
                               int32_t most, etr_batch** boxes);

/* Weights (safetensors), optimizer state and step count, in a new folder below `directory`; the two that were
 * written last are kept, whatever their steps. Folders that no trainer wrote there and damaged checkpoints do not count and are
 * not removed. etr_trainer_load takes the newest whole one; call it before or after the first step. ETR_INVALID_ARGUMENT
 * names what differs where it is of another model or another optimizer (checkpoints of versions that did not write the
 * optimizer's name are known by its state alone); to go on with another optimizer, load the checkpoint into a trainer with
 * the one that made it, and take its weights with etr_trainer_get_weights and etr_trainer_set_weights. */
ETR_API int32_t etr_trainer_save(etr_trainer* trainer, const char* directory);
ETR_API int32_t etr_trainer_load(etr_trainer* trainer, const char* directory);

/* Weights that PyTorch trained, to begin with: a safetensors file of a state_dict, before the first batch. A tensor is looked
 * for under the model's name, with PyTorch's words for its last part (weight, bias, running_mean, weight_ih_l0, ...); layouts are
 * converted (PyTorch flattens images channel by channel), F16 and BF16 become f32. `names` (JSON, or NULL) replaces beginnings of the model's names:
 * {"backbone.": "model.encoder.", "head": ""}, where "" leaves tensors as they are. What is missing or does not fit
 * is an error of the call that brings the first batch. */
ETR_API int32_t etr_trainer_load_pytorch(etr_trainer* trainer, const char* path, const char* names);

/* ---- jobs ------------------------------------------------------------------------------------ */

enum {
  ETR_EVENT_PROGRESS = 0,
  ETR_EVENT_EVALUATION = 1,
  ETR_EVENT_CHECKPOINT = 2,
  ETR_EVENT_END = 3
};

/* What a run looks like at one moment. loss and accuracy are means over the steps since the last
 * event. */
typedef struct etr_event {
  uint32_t struct_size;
  int32_t kind; /* ETR_EVENT_* */
  uint64_t step, epoch;
  uint64_t total_steps; /* where 'steps', 'epochs' or 'fresh' (an estimate where samples are echoed) end the run, or what is
                           planned; 0: unknown */
  double seconds; /* of training: without evaluation, checkpoints and the first step's compiling */
  double loss, accuracy, learning_rate;
  double examples_per_second;
  double device_wait_share; /* of the training time so far: the device had nothing to do */
  uint64_t examples, fresh, echoed;
  int64_t bad_records;             /* different ones, however often they were met */
  double eval_loss, eval_accuracy; /* of the latest evaluation */
  int32_t target_reached;
  int32_t reserved;
} etr_event;

/* A job (pipeline, model, optimizer, schedule, evaluation, output) from a file or from text.
 * `overrides`: `count` strings "key=value", as the command line's --set. A job file without output.dir gets one:
 * "runs/" and the stem of its name. */
typedef struct etr_job etr_job;

ETR_API int32_t etr_job_load(const char* path, const char* const* overrides, int32_t count,
                             etr_job** job);
ETR_API int32_t etr_job_parse(const char* json, const char* const* overrides, int32_t count,
                              etr_job** job);
ETR_API void etr_job_destroy(etr_job* job);
ETR_API int32_t etr_job_json(const etr_job* job, char** json);

/* Measures the job for a few seconds, its pipeline alone and its model on batches already in memory, and says whether echoing helps,
 * where an echo node should stand and with which factor, and what would help first. `seconds` (above 0, at most 1e6) is the
 * length of each measurement. With `check` other than 0 it also runs the job and the changed one in turns. `progress` (may be
 * NULL) is told what is being done, "" for what goes on; returning 0 stops with ETR_CANCELLED. `json` receives {"helps", "keeps", "why",
 * "r", "echo", "edges", "others", "batch", "measured", "assumptions", "as_it_is", "changed", "job": the changed job, "changes",
 * "checked", "text": all of it for people}. Writes no file. ETR_UNSUPPORTED for jobs of several ranks, and pipelines without batches. */
ETR_API int32_t etr_job_advise(etr_runtime* runtime, const etr_job* job, double seconds,
                               int32_t check,
                               int32_t (*progress)(void* user_data, const char* what),
                               void* user_data, char** json);

/* The folder that a run of the job writes into; "" where the job says that nothing is written, NULL where it does not say:
 * a run then writes nothing either, and warns of it in the log. Free it with etr_string_free. */
ETR_API int32_t etr_job_output_dir(const etr_job* job, char** directory);

/* How a job's trainer begins. output.dir holds one run: its metrics.jsonl, event files and checkpoints. One trainer at a time
 * writes there, from its creation until its ETR_EVENT_END, its failure or its end: ETR_STATE for a second one, in this
 * process or another. */
enum {
  ETR_START_NEW = 0,    /* from the beginning; ETR_STATE where output.dir holds an earlier run */
  /* From output.dir's newest checkpoint, and goes on with its files; ETR_NOT_FOUND without one. Where the run is complete,
   * ETR_EVENT_END is the first event, and nothing is evaluated or written again. */
  ETR_START_RESUME = 1,
  /* From the beginning, in place of an earlier run: removes what that run wrote, and nothing else, when the first step is
   * done. ETR_STATE where something else has the name of its files. */
  ETR_START_OVERWRITE = 2,
  /* With the weights of the newest checkpoint (ETR_NOT_FOUND without one), to evaluate, predict and export. The training data
   * may have changed. Writes nothing; etr_trainer_next_event gives ETR_STATE. */
  ETR_START_EVALUATE = 3,
  ETR_START_TRIAL = 4 /* from the beginning, and writes nothing: for etr_trainer_profile */
};

/* A trainer that runs the job. `start`: ETR_START_*. */
ETR_API int32_t etr_trainer_start_job(etr_runtime* runtime, const etr_job* job, int32_t start,
                                      etr_trainer** trainer);

/* The same with ETR_START_NEW where `resume` is 0, else ETR_START_RESUME. */
ETR_API int32_t etr_trainer_create_from_job(etr_runtime* runtime, const etr_job* job,
                                            int32_t resume, etr_trainer** trainer);

/* The same as one of several ranks that train together over a transport of the program's: `engine` is this rank's end of it, as
 * echotrain/engine.h says. Of the job's section "parallel", which it need not have, only what does not tell how ranks find each
 * other counts (timeout, bucket_mb). All ranks make this call at the same time.
 *
 * The trainer owns what `engine` describes: its destroy is called exactly once, also where this call fails; the table itself is copied.
 * Its functions are called on the thread that calls the trainer and on threads of the library. Within them a trainer can be stopped
 * (etr_trainer_stop) and destroyed, which takes place when they have returned; other calls on a trainer are ETR_STATE, as the run waits
 * for the function. */
ETR_API int32_t etr_trainer_start_job_over(etr_runtime* runtime, const etr_job* job, int32_t start,
                                           const etr_engine* engine, etr_trainer** trainer);

/* Trains until there is something to tell. After ETR_EVENT_END it returns ETR_END. */
ETR_API int32_t etr_trainer_next_event(etr_trainer* trainer, etr_event* event);

/* The same for programs that have something else to do, a frame to draw say: returns ETR_EVENT_PROGRESS after `seconds` (0 to 1e6;
 * 0: as etr_trainer_next_event) at the latest. Not divided are the first step, for which the driver compiles kernels, evaluations and checkpoints. The device works
 * on between calls: up to three steps are in flight. */
ETR_API int32_t etr_trainer_next_event_within(etr_trainer* trainer, double seconds,
                                              etr_event* event);

/* Asks a job's trainer to end soon and in order: with a checkpoint, if the job writes any, but without waiting for an
 * evaluation or for data that does not come. Any thread; safe in a signal handler. Not while it is being destroyed. */
ETR_API int32_t etr_trainer_stop(etr_trainer* trainer);

/* One shard of a job's parameter server (its section 'parallel' has the algorithm downpour or easgd): holds its part of the
 * parameters, and serves the workers, which are trainers of the job, on threads of its own. */
typedef struct etr_server etr_server;

typedef struct etr_server_status {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t workers;  /* who are here */
  int64_t joined;   /* since the start */
  int64_t finished; /* of those who left, the ones that had come to their end */
  uint64_t updates; /* that were applied */
} etr_server_status;

/* `shard`: 0 to parallel.servers - 1. The first shard serves a rendezvous of tcp://. Returns before any worker has come. ETR_STATE where
 * another server at this rendezvous has the shard. */
ETR_API int32_t etr_server_start(const etr_job* job, int32_t shard, etr_server** server);

/* ETR_END when the last worker has finished and parallel.size of them have come (without more of them: after parallel.timeout), ETR_OK
 * after `seconds` (0 to 1e6) otherwise. ETR_RANK_LOST where no worker has come within parallel.timeout, or none after the last one was
 * lost. `status` may be NULL; it is filled in all of these cases. */
ETR_API int32_t etr_server_wait(etr_server* server, double seconds, etr_server_status* status);

/* Workers see that the shard is lost. etr_server_wait returns ETR_END. Any thread. */
ETR_API int32_t etr_server_stop(etr_server* server);
ETR_API void etr_server_destroy(etr_server* server); /* stops it */

/* The input pipeline's statistics (see etr_pipeline_stats). Where several processes or devices train together "ranks" has the
 * trainer's "rank", their number ("size"), the "steps" that it has made and the "bytes" of the arrays that it has brought to exchanges
 * meanwhile; with a parameter server "worker" has its "steps" and the "bytes" that it has exchanged. */
ETR_API int32_t etr_trainer_pipeline_stats(etr_trainer* trainer, char** json);

/* Writes one self-contained HTML file that compares runs by their metrics.jsonl, each named itself or by its folder: accuracy and
 * loss over time, over fresh examples, over steps, and the device's idle share; what no run has is left out. `names` and
 * `metrics_paths` have `count` entries; `target_accuracy` is 0 to 1, 0: there is none. `json` (may be NULL) receives the table, a row for
 * each name: times, examples and steps to the target, final and best accuracy and loss (null where there is none). Runs of one
 * name are repetitions with other seeds: their row holds medians, and "speedup_range" the least and the greatest speed-up. */
ETR_API int32_t etr_report_write(const char* title, const char* const* names,
                                 const char* const* metrics_paths, int32_t count,
                                 double target_accuracy, const char* html_path, char** json);

/* ---- studies --------------------------------------------------------------------------------- */

/* A study: many trials of jobs, for conditions that are to be compared, each with hyperparameters that are searched for it alone.
 * What its file says is in docs/studies.md. */
typedef struct etr_study etr_study;

/* Reads a study's file and the jobs that it names, and validates all conditions. `overrides` has `count` texts "key=value", which
 * change the jobs of all trials, as those of etr_job_load do; a key that a search draws, or that the study sets in each trial ("seed",
 * "train.steps", "output" and others, see docs/studies.md), is ETR_INVALID_ARGUMENT. */
ETR_API int32_t etr_study_load(const char* path, const char* const* overrides, int32_t count,
                               etr_study** study);

/* The study with jobs, labels and overrides in place, which is a study file by itself. Any thread. */
ETR_API int32_t etr_study_json(const etr_study* study, char** json);

/* Where it writes unless etr_study_start says otherwise: "runs/studies/" and the stem of its file's name. Any thread. */
ETR_API int32_t etr_study_output_dir(const etr_study* study, char** directory);

/* Prepares to run it on the runtime's device; etr_study_next_event runs it. `directory` (NULL: that of etr_study_output_dir) is made
 * if it is missing. What it holds of the study is not run again, so a study that was stopped or killed goes on, and trials, searches
 * and conditions can be added to one that has ended; `overwrite` (0 or 1) removes that first. `parallel`: trials at once; 0: as the
 * device has room, -1: as the study says. More of them change no result, but with early stopping, which depends on the order in
 * which trials end, and where trials are measured in seconds.
 *
 * ETR_STATE where another process writes into the folder, where it holds something else or another study, where one of its trials was run with
 * another job than the study has now (the message names the key), and where the study was started before. */
ETR_API int32_t etr_study_start(etr_study* study, etr_runtime* runtime, const char* directory,
                                int32_t parallel, int32_t overwrite);

/* Waits until there is something to tell, for `seconds` (0 to 1e6) at most. `json` receives an object whose "kind" is "progress",
 * "trial" (one has ended; "trial" is its line of trials.jsonl), "condition" (its last trial has ended; "result" is its entry of
 * etr_study_results, in which "baseline" and "gain" are null, because other conditions may not have run yet) or, once, "end"; after that ETR_END. All have "done", "total" and "resumed" (trials; those found in the folder),
 * "running", "seconds", "seconds_left" (estimated; null: not known), and the "workload" and "condition" at hand with "best_to_target" and
 * "best_metric" of its search so far.
 *
 * Trials train on threads of the library, also between calls. A trial that fails is counted as such, and the study goes on; where the
 * first ones all fail with the same error, it ends with that, as it does where nothing can be written. */
ETR_API int32_t etr_study_next_event(etr_study* study, double seconds, char** json);

/* Ends the study soon, without the trials that are running: a study that is started again in the same folder begins with them. Any
 * thread; safe in a signal handler. Not while it is being destroyed. ETR_INVALID_ARGUMENT, without a message, where it was not
 * started. */
ETR_API int32_t etr_study_stop(etr_study* study);

/* What the records in `directory` (NULL: that of etr_study_output_dir) say of the study's conditions, also while it runs there and
 * before it is started: the array "conditions" of results.json. Each has "workload", "labels", "name", "metric", "target", "clock",
 * "trials" and their "counts" by status, "to_target" by clock and "best_metric" as {"median", "least", "most", "reached", "of"} over
 * the searches (null: the target was not reached), "best" with the best trial's "point", "gain" over the baseline by clock as {"median",
 * "least", "most", "pairs", "reached"} over pairs of searches (null: infinite, as the baseline did not reach the target), "searches" and
 * "warnings". Conditions without a finished trial are left out. Any thread: also while another one waits in etr_study_next_event. */
ETR_API int32_t etr_study_results(const etr_study* study, const char* directory, char** json);

/* Writes report.html (self-contained), results.json, conditions.csv, trials.csv and the figures in figures/ into `directory` (NULL: that of
 * etr_study_output_dir), from the records that it holds so far, also while the study runs there and before it is started. Of figures/ it
 * removes the files that the results.json there lists and the new report does not have. ETR_STATE, with nothing written, where the folder
 * holds something else or another study. ETR_NOT_FOUND, with nothing made, where there is no study in it. Any thread: also while another
 * one waits in etr_study_next_event. */
ETR_API int32_t etr_study_write_report(const etr_study* study, const char* directory);

ETR_API void etr_study_destroy(etr_study* study); /* stops it */

#ifdef __cplusplus
}
#endif

#endif /* ECHOTRAIN_ECHOTRAIN_H_ */
