/* EchoTrain: input pipelines with echo nodes, and training on any Vulkan device.
 *
 * Conventions that hold for every function below:
 *
 *  1. Functions return a status: ETR_OK (0), ETR_END (1: there is nothing to return, because an
 *     epoch, a run or a wait has ended), or a negative error. After an error, etr_last_error()
 *     returns a message to the calling thread that names the file, key, shape or option at fault.
 *     Output parameters come last. They are written only on ETR_OK, unless the function's comment
 *     says otherwise. The comments name the errors that are specific to a function. Any function
 *     may also return ETR_INVALID_ARGUMENT (a required argument is NULL, a value is out of range,
 *     JSON or an option is wrong), ETR_STATE (see 4), ETR_OUT_OF_MEMORY or ETR_INTERNAL. For files
 *     and devices see 10.
 *  2. Handles are opaque. The caller destroys what it creates, in any order: an object that another
 *     one still needs stays alive internally. etr_X_destroy(NULL) does nothing.
 *  3. Strings are UTF-8 and end with NUL. Strings that the library returns through `char**` belong
 *     to the caller, who frees them with etr_string_free. Strings passed in are copied.
 *  4. Different handles may be used from different threads at once. A handle serves one thread at a
 *     time: a call on a handle that another thread is using, or that comes from a callback of a
 *     call on the same handle, fails with ETR_STATE and changes nothing. There are two exceptions:
 *     functions marked "any thread", and handles taken as const, which several threads may read at
 *     once. etr_X_destroy may be called from any thread. If another call is using the handle, the
 *     handle is freed when that call returns, and no new call on it may start.
 *  5. Structs begin with struct_size: set it to sizeof the struct before the call. They only grow
 *     at the end, so a program built with an older header keeps working.
 *  6. The library never prints, never exits, never throws across this boundary, and installs no
 *     signal handler. Convention 9 names the one exception. A thread cannot be cancelled
 *     (pthread_cancel) while it is in a call; the cancellation takes effect when the call returns.
 *  7. Sizes are in bytes and times in seconds, unless a name says otherwise. Images are
 *     [N, H, W, C].
 *  8. Stages, layers, models and optimizers are created by name; etr_schema() lists the names and
 *     their options. An unknown name, also in JSON, gives ETR_NOT_FOUND. An unknown option, loss or
 *     kind of schema gives ETR_INVALID_ARGUMENT.
 *  9. A callback that the library keeps (a map function, the log hook) comes with `user_data` and
 *     `destroy`. `destroy` is called exactly once, also after an error. Callbacks must return
 *     normally, not by longjmp. A C++ exception that leaves a map, source or progress function
 *     counts as a failure of that function (ETR_CALLBACK); other callbacks must not throw. A
 *     callback must not end its thread, which usually belongs to the library: pthread_exit ends
 *     the process, with a line on standard error and in the log that names the callback.
 *     Cancelling the thread has no effect.
 *  10. If a file to be read is missing, the call returns ETR_NOT_FOUND. If a file cannot be read or
 *     written, for example because it is a folder, it returns ETR_IO. A function that makes a
 *     device work may also return ETR_DEVICE (a Vulkan call failed, or the driver computes a kernel
 *     wrongly) or ETR_DEVICE_LOST (the device was reset or hangs).
 *
 * Terms:
 *
 *  - An echo node is the stage `echo`. It repeats samples or batches that it has already passed on,
 *    so that training does not wait for slow reading or decoding. A sample is fresh the first time
 *    that it is passed on; each further time it is an echo.
 *  - A pass reads the records of a source once. An epoch is one pass, or several with the stage
 *    `repeat`. (A forward or backward pass, in contrast, runs the model once in that direction.)
 *  - A bad record is one that a stage cannot process, such as a damaged image. With the pipeline
 *    option "on_error" set to "fail", the default, it ends the pipeline with an error; otherwise
 *    it is tolerated, that is dropped, set aside or replaced.
 *  - A product is a matrix product, such as that of a dense layer or of a projection in an
 *    attention layer.
 *  - A kernel is a compute shader. A plan is what the library prepares for batches of one shape:
 *    the kernels to run, and device memory for the intermediate values.
 *  - A rank is one of several processes or devices that train a model together.
 */
#ifndef ECHOTRAIN_ECHOTRAIN_H_
#define ECHOTRAIN_ECHOTRAIN_H_

#include <stdint.h>

#include "echotrain/engine.h"

#if defined(_WIN32) && defined(ETR_BUILDS_LIBRARY) /* only by the library's own build */
#define ETR_API __declspec(dllexport)
#elif defined(_WIN32)
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

/* What a function returns; see convention 1. */
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
  ETR_CALLBACK = -13,   /* a callback failed; see etr_pipeline_add_map */
  ETR_NOT_FINITE = -14, /* a loss or gradient was NaN or infinite; the message says where */
  ETR_RANK_LOST = -15   /* a rank is dead, frozen or unreachable; the message says which */
};

/* Returns the library's version, such as "0.1.0". The string is a constant. */
ETR_API const char* etr_version(void);

/* Returns the message of the last call that failed on this thread, or "" if none has failed. The
 * string is valid until the next call on this thread fails. */
ETR_API const char* etr_last_error(void);

/* Returns the name of a status, such as "invalid argument". The string is a constant. */
ETR_API const char* etr_status_name(int32_t status);

/* Frees a string that the library returned through `char**`. NULL is allowed. */
ETR_API void etr_string_free(char* text);

/* Levels of log lines. */
enum { ETR_LOG_DEBUG = 0, ETR_LOG_INFO = 1, ETR_LOG_WARNING = 2, ETR_LOG_ERROR = 3 };

/* Receives one log line; `level` is one of ETR_LOG_DEBUG to ETR_LOG_ERROR. It is called on the
 * thread that logs, one call at a time. It must not call the library, except etr_log_subject. */
typedef void (*etr_log_function)(void* user_data, int32_t level, const char* message);

/* What a log line is about. A run can log many lines about bad records that it drops. It logs once,
 * at level INFO, how and why the model is partitioned among the ranks (parallel.mesh). */
enum { ETR_LOG_ABOUT_OTHER = 0, ETR_LOG_ABOUT_BAD_RECORD = 1, ETR_LOG_ABOUT_PARTITION = 2 };

/* Returns, inside a log function, what its line is about (ETR_LOG_ABOUT_OTHER and so on).
 * Elsewhere it returns ETR_LOG_ABOUT_OTHER. */
ETR_API int32_t etr_log_subject(void);

/* Sends the log lines of the whole process to `function`. NULL, the default, drops them. `destroy`
 * (may be NULL) is called once with `user_data` when the hook has been replaced; it may call the
 * library. Any thread. */
ETR_API int32_t etr_set_log_hook(etr_log_function function, void* user_data,
                                 void (*destroy)(void* user_data));

/* Allocates memory for samples and batches: `size_bytes` bytes, aligned to `alignment` (64). If it
 * returns NULL, the call or pipeline that needs the memory fails with ETR_OUT_OF_MEMORY. It is
 * called from any thread, several at once. */
typedef void* (*etr_allocate_function)(void* user_data, uint64_t size_bytes, uint64_t alignment);

/* Frees memory that the matching allocate function returned. It is called from any thread, several
 * at once. */
typedef void (*etr_release_function)(void* user_data, void* memory, uint64_t size_bytes);

/* From now on, allocates the memory of samples and batches with these callbacks, in the whole
 * process. This is nearly all the memory that a pipeline uses. NULL for both restores the library's
 * own pools; ETR_INVALID_ARGUMENT if only one is NULL. A block is always freed by the allocator
 * that it came from. `destroy` (may be NULL) is called once with `user_data` when another allocator
 * has been set and the last block has been freed. Any thread. */
ETR_API int32_t etr_set_allocator(etr_allocate_function allocate, etr_release_function release,
                                  void* user_data, void (*destroy)(void* user_data));

/* ---- schemas --------------------------------------------------------------------------------- */

/* Describes what can be configured. `kind` selects the form of `json`:
 *  - "stages", "layers", "models" or "optimizers": an array of {"name", "doc", "options"}. Stages
 *    also have "prepares": whether the stage brings images into the form that the model takes, both
 *    for training and for prediction.
 *  - "job" or "study": an object with one list of options for each section.
 *  - "pack": the list of options of etr_pack.
 *
 * An option is {"name", "type", "required", "default", "min", "max", "unit", "choices", "former",
 * "doc"}; keys that do not apply are missing. "former" is an earlier name, which still works.
 * ETR_INVALID_ARGUMENT for another kind. */
ETR_API int32_t etr_schema(const char* kind, char** json);

/* ---- options --------------------------------------------------------------------------------- */

/* A set of named values for stages, layers and optimizers. Names and values are checked by the
 * functions that use the set. */
typedef struct etr_options etr_options;

/* Creates an empty set. */
ETR_API int32_t etr_options_create(etr_options** options);

/* Creates a set from a JSON object such as {"factor": 2.5, "mode": "fixed"}. ETR_INVALID_ARGUMENT
 * if it is not valid JSON or not an object. */
ETR_API int32_t etr_options_create_from_json(const char* json, etr_options** options);

/* Destroys the set. Any thread. */
ETR_API void etr_options_destroy(etr_options* options);

/* Sets the option `name` to an integer. */
ETR_API int32_t etr_options_set_integer(etr_options* options, const char* name, int64_t value);

/* Sets the option `name` to a floating-point number. */
ETR_API int32_t etr_options_set_number(etr_options* options, const char* name, double value);

/* Sets the option `name` to false (0) or true (any other value). */
ETR_API int32_t etr_options_set_boolean(etr_options* options, const char* name, int32_t value);

/* Sets the option `name` to a string. ETR_INVALID_ARGUMENT if it is not UTF-8. */
ETR_API int32_t etr_options_set_string(etr_options* options, const char* name, const char* value);

/* Sets the option `name` to a list of `count` numbers. */
ETR_API int32_t etr_options_set_numbers(etr_options* options, const char* name,
                                        const double* values, int64_t count);

/* ---- devices and the runtime ----------------------------------------------------------------- */

/* Kinds of devices, as Vulkan names them. */
enum {
  ETR_DEVICE_DISCRETE = 0,
  ETR_DEVICE_INTEGRATED = 1,
  ETR_DEVICE_VIRTUAL = 2,
  ETR_DEVICE_CPU = 3,
  ETR_DEVICE_OTHER = 4
};

/* A Vulkan device; see etr_device_get and etr_runtime_device. */
typedef struct etr_device_info {
  uint32_t struct_size;
  int32_t index;                 /* discrete GPUs come first, CPU devices last */
  int32_t kind;                  /* ETR_DEVICE_* */
  uint32_t api_major, api_minor; /* Vulkan version */
  uint32_t subgroup_size;        /* in invocations */
  uint64_t memory_bytes;         /* of the largest device-local heap */
  char name[256];
  char driver[256];
} etr_device_info;

/* Returns the number of Vulkan devices. ETR_NO_DEVICE if the loader or every driver is missing. */
ETR_API int32_t etr_device_count(int32_t* count);

/* Describes the device `index` (0 to count - 1). ETR_NOT_FOUND if there is none; ETR_NO_DEVICE as
 * for etr_device_count. */
ETR_API int32_t etr_device_get(int32_t index, etr_device_info* info);

/* An open device with its kernels. The trainers of a runtime share it; several threads may create
 * and use them at once. */
typedef struct etr_runtime etr_runtime;

/* Families of kernels. */
enum {
  /* ETR_KERNELS_CPU on CPU devices that can run it; elsewhere ETR_KERNELS_MATRIX if the device has
   * matrix units, otherwise ETR_KERNELS_TILED. */
  ETR_KERNELS_AUTOMATIC = 0,
  /* For CPU devices. Needs subgroups of 8 or 16 invocations with broadcast, and buffer device
   * addresses. */
  ETR_KERNELS_CPU = 1,
  /* For GPUs: products are computed in tiles. Every device can run it. */
  ETR_KERNELS_TILED = 2,
  /* As ETR_KERNELS_TILED, but products in fp16 or bf16 run on the device's matrix units
   * (VK_KHR_cooperative_matrix), which it must have. */
  ETR_KERNELS_MATRIX = 3
};

/* How etr_runtime_create opens a device. Fields that are 0 or NULL have their defaults. */
typedef struct etr_runtime_options {
  uint32_t struct_size;
  int32_t kernels; /* ETR_KERNELS_* */
  /* NULL or "": the first device; a number below 100: the device with that index; other text: the
   * first device whose name contains it (case is ignored). */
  const char* device;
  const char* cache_dir; /* pipeline cache; NULL: the user's cache directory; "": none */
  int32_t validation;    /* not 0: load the validation layer; its messages go to the log hook */
  /* 0: in the first step that uses a kernel, its results are compared with the host's. This is done
   * once for each driver version, and the outcome is kept in the cache. A kernel that the driver
   * computes wrongly is compiled again without the driver's optimizer. Not 0: never compare. */
  int32_t trust_driver;
  /* The most device memory to use; 0: no limit. Calls that need more return ETR_OUT_OF_MEMORY. */
  uint64_t memory_limit_bytes;
  /* A file that etr_runtime_tune wrote; NULL: tuning.json in the cache directory, if it exists;
   * "": none. */
  const char* tuning;
  /* A device that does not finish its work within this many seconds, while the library waits for
   * it, is treated as lost; what was made on it is not freed, because it may still be in use. 0:
   * 300 on GPUs, whose drivers usually report this much earlier, and no limit on CPU devices. */
  double hang_seconds;
} etr_runtime_options;

/* Opens a device. `options` may be NULL. ETR_NO_DEVICE if no device matches; the message lists
 * those that exist. ETR_UNSUPPORTED if the device cannot run the kernels that were asked for;
 * ETR_NOT_FOUND if the validation layer or the tuning file is missing; ETR_CORRUPT_DATA if the
 * tuning file is damaged. */
ETR_API int32_t etr_runtime_create(const etr_runtime_options* options, etr_runtime** runtime);

/* Your own VkDevice, to train on beside your other work. The handles are those of Vulkan
 * (VkInstance and so on); the instance has version 1.1 or later. They remain yours and must outlive
 * the runtime and everything made with it. */
typedef struct etr_vulkan_device {
  uint32_t struct_size;
  uint32_t queue_family;        /* of `queue`; it has VK_QUEUE_COMPUTE_BIT */
  void* get_instance_proc_addr; /* PFN_vkGetInstanceProcAddr; NULL: that of the system's loader */
  void* instance;
  void* physical_device;
  void* device;
  void* queue;
  /* Not 0: the device was created with the features bufferDeviceAddress and shaderInt64, which CPU
   * kernels need. */
  int32_t buffer_addresses;
  /* Not 0: the device was created with cooperativeMatrix, vulkanMemoryModel and whichever of
   * shaderFloat16 and shaderBFloat16CooperativeMatrix it supports. */
  int32_t matrix_units;
  /* Called before and after each vkQueueSubmit, on the thread that trains, so that no two threads
   * use the queue at once. May be NULL if you do not use the queue while a trainer works. */
  void (*lock)(void* user_data);
  void (*unlock)(void* user_data);
  void* user_data;
} etr_vulkan_device;

/* Creates a runtime on your own VkDevice. `options` may be NULL; its `device`, `validation` and
 * `hang_seconds` are ignored. ETR_INVALID_ARGUMENT if the queue's family has no
 * VK_QUEUE_COMPUTE_BIT; other errors are those of etr_runtime_create. */
ETR_API int32_t etr_runtime_create_shared(const etr_vulkan_device* vulkan,
                                          const etr_runtime_options* options,
                                          etr_runtime** runtime);

/* Destroys the runtime. Its trainers and runs remain usable. Any thread. */
ETR_API void etr_runtime_destroy(etr_runtime* runtime);

/* Finds the fastest kernel for each product and convolution that the runtime's trainers have
 * planned so far (with their first batch) and that its tuning does not cover yet. Trying every
 * kernel for one of them takes some tenths of a second. The choices are written to the file `path`
 * (NULL: tuning.json in the user's cache directory); those for other devices stay in it. Trainers
 * that are created later use them, in this runtime and in runtimes that read the file. The file can
 * be shipped with the program.
 *
 * `progress` (may be NULL) is called on this thread after each product, with the kernel that was
 * chosen. If it returns 0, tuning ends early, the choices made so far are written, and the call
 * returns ETR_OK. They are also written if a measurement fails. Until the call returns, do not use
 * the device; creating a trainer or starting a run on this runtime fails with ETR_STATE.
 * ETR_INVALID_ARGUMENT if `path` is NULL and there is no cache directory; ETR_CORRUPT_DATA if the
 * existing file is damaged; ETR_IO if it cannot be written. */
ETR_API int32_t etr_runtime_tune(etr_runtime* runtime, const char* path,
                                 int32_t (*progress)(void* user_data, int64_t done, int64_t total,
                                                     const char* product, const char* kernel),
                                 void* user_data);

/* Describes the runtime's device. Any thread. */
ETR_API int32_t etr_runtime_device(etr_runtime* runtime, etr_device_info* info);

/* Speeds up training on a CPU device (Mesa lavapipe) by about a third: asks its driver for 512-bit
 * vectors if the processor has them and the driver benefits from them (Mesa 25 and later). The
 * command line does this itself.
 *
 * The call lists the devices, which takes some tens of milliseconds, and sets the environment
 * variable LP_NATIVE_VECTOR_WIDTH of this process unless it is set already. Call it first in
 * main(), before other threads exist and before any Vulkan call. On a system without Vulkan
 * devices, too, it returns ETR_OK. */
ETR_API int32_t etr_prefer_wide_cpu_vectors(void);

/* ---- pipelines ------------------------------------------------------------------------------- */

/* A sequence of stages that reads, decodes, echoes and batches samples on its own threads. */
typedef struct etr_pipeline etr_pipeline;

/* Named arrays (fields): a batch, or in a map or source function a single sample. */
typedef struct etr_batch etr_batch;

/* Element types of fields. */
enum { ETR_U8 = 0, ETR_I32 = 1, ETR_F32 = 2, ETR_U16 = 3 };

/* The most dimensions of a field. */
enum { ETR_MAX_RANK = 8 };

/* A dense row-major array in memory that the struct does not own; the memory belongs to a batch or
 * to the caller. Extents may be 0: the array then has no elements, size_bytes is 0, and data may be
 * NULL. The product of the other extents and the element size must be below 2^63. */
typedef struct etr_tensor {
  uint32_t struct_size;
  int32_t dtype; /* ETR_U8, ETR_I32, ETR_F32 or ETR_U16 */
  int32_t rank;  /* number of dimensions */
  int32_t reserved;
  int64_t shape[ETR_MAX_RANK];
  const void* data;
  uint64_t size_bytes;
} etr_tensor;

/* The samples of a batch and where they come from; see etr_batch_get_info. */
typedef struct etr_batch_info {
  uint32_t struct_size;
  int32_t samples; /* 0: a single sample of a pipeline without a batch stage */
  int32_t fresh;   /* samples read from upstream for this batch; 0 if the whole batch is repeated */
  int32_t echoed;  /* samples that an echo node repeated, alone or with their batch */
  int32_t fields;  /* number of fields in host memory */
  uint32_t replica; /* of a single sample: 0 is fresh, n is its n-th echo */
  uint64_t ordinal; /* of the first sample, in the source order of its epoch */
  uint64_t epoch;   /* set only in a map or source function */
  int32_t unique;   /* distinct samples in the batch */
  int32_t reserved;
  /* The mean age of the samples. The age of a sample is the number of fresh samples that echo nodes
   * have received since receiving that sample. */
  double mean_age;
} etr_batch_info;

/* Creates a pipeline without stages. `options` (may be NULL) are those of the job section
 * "pipeline": threads, seed, epochs, queue_items, on_error and so on. ETR_INVALID_ARGUMENT for an
 * option that does not exist or is out of range. */
ETR_API int32_t etr_pipeline_create(const etr_options* options, etr_pipeline** pipeline);

/* Creates a whole pipeline from JSON: {"stages": [{"stage": "webdataset", "pattern": "..."}, ...],
 * ...}. With the option "budget_bytes", it reads a few samples to find out whether that budget is
 * enough.
 *
 * ETR_NOT_FOUND if there is no stage of that name, if a stage names a function of the program, or
 * if the file that the option "tuned" names is missing. ETR_INVALID_ARGUMENT if an option is wrong,
 * if a stage cannot stand in its place, or if the budget is too small. The data is not looked for
 * before etr_pipeline_next, except with "budget_bytes"; etr_pipeline_next lists the errors. */
ETR_API int32_t etr_pipeline_create_from_json(const char* json, etr_pipeline** pipeline);

/* Cancels the pipeline and returns when all work has ended. Inside a map function, of this pipeline
 * or another, it returns at once and the work ends later. Any thread: if another thread is in a
 * call on the pipeline, that call ends with ETR_CANCELLED, and whichever of the two calls returns
 * last waits for the work. */
ETR_API void etr_pipeline_destroy(etr_pipeline* pipeline);

/* Appends a stage; the first one is a source. `options` may be NULL. Nothing is read yet: if
 * "budget_bytes" is not enough, etr_pipeline_next returns ETR_INVALID_ARGUMENT.
 *
 * ETR_NOT_FOUND if there is no such stage, or if the file that the option "tuned" names is missing.
 * ETR_INVALID_ARGUMENT if an option is wrong or missing, or if the stage cannot stand in this
 * place. ETR_STATE once the pipeline is in use, that is after any call below that reads it, waits
 * for it, asks for its length, cancels it, reports on it, saves or restores it. */
ETR_API int32_t etr_pipeline_add(etr_pipeline* pipeline, const char* stage,
                                 const etr_options* options);

/* A callback as a stage. Worker threads call it, several at once, each with one item: a sample
 * (image [H, W, C]), or a whole batch after the stage `batch`. It reads the item's fields and sets
 * new ones.
 *
 * It returns ETR_OK and leaves at least one field, or returns an error status. After an error, the
 * record is a bad one, as if a stage of the library had failed: with on_error "fail" the pipeline
 * ends with ETR_CALLBACK. etr_batch_fail sets the reason. ETR_END is for sources only and counts as
 * an error here.
 *
 * The item belongs to the pipeline and is valid only during the call. A call of etr_batch_destroy
 * on it has no effect and counts as a failure of the function. The function must not use the
 * pipeline. To get the same batches with any number of threads, let its result depend on the item
 * only, and derive random numbers from a seed and the item's epoch, ordinal and replica. */
typedef int32_t (*etr_map_function)(void* user_data, etr_batch* item);

/* Appends a stage `map` that calls `function`. `name`, which must be unique in the pipeline,
 * identifies the stage in errors, statistics and saved positions; etr_batch_create says which names
 * are valid. `destroy` (may be NULL) is called exactly once with `user_data`, on any thread, when
 * the function can no longer be called, also after an error. ETR_INVALID_ARGUMENT if the name is
 * invalid or already used, or if there is no source yet; ETR_STATE as for etr_pipeline_add. */
ETR_API int32_t etr_pipeline_add_map(etr_pipeline* pipeline, const char* name,
                                     etr_map_function function, void* user_data,
                                     void (*destroy)(void* user_data));

/* Adds `function` as the source, before any other stage. It is called on threads of the library,
 * one call at a time, and sets the fields of one sample. etr_batch_get_info gives the epoch, and in
 * `ordinal` the pass (ordinal >> 40) and the number of the sample in it (the lower 40 bits).
 *
 * The function returns ETR_OK with at least one field set, ETR_END if the pass has no more samples
 * (fields are then ignored), or an error status. After an error, or ETR_OK without a field, the
 * record is a bad one. When a saved position is restored, the function is called again from the
 * beginning of the epoch and should give the same samples. Everything else is as for
 * etr_pipeline_add_map. */
ETR_API int32_t etr_pipeline_add_source(etr_pipeline* pipeline, const char* name,
                                        etr_map_function function, void* user_data,
                                        void (*destroy)(void* user_data));

/* Waits for the next batch and returns it; the caller owns it. ETR_END at the end of each epoch;
 * the next call continues with the next epoch. After the last epoch, every further call returns
 * ETR_END at once. (The option "epochs" is the number of epochs; with 0, the default, there is no
 * last one.) So two ETR_END in a row mean that no epoch is left, or that an epoch has no batch.
 *
 * ETR_CANCELLED after a cancellation. Errors of the stages arrive here, after everything that came
 * before them, and further calls return the same error: ETR_NOT_FOUND if no file matches, ETR_IO if
 * one cannot be read, ETR_CORRUPT_DATA or another error for a bad record that is not tolerated,
 * ETR_CALLBACK if a map or source function failed. */
ETR_API int32_t etr_pipeline_next(etr_pipeline* pipeline, etr_batch** batch);

/* Waits, for at most `seconds` (0 to 1e6), until etr_pipeline_next would not block because it has a
 * batch, an end or an error to return. ETR_END if it would still block. This is for programs that
 * must handle other events in the meantime, such as signals. */
ETR_API int32_t etr_pipeline_wait(etr_pipeline* pipeline, double seconds);

/* Returns the number of batches in the epoch of the next batch, provided that no record is dropped,
 * or -1 if it is not known: some sources do not know their number of records before the first pass
 * is over, an epoch may be endless, and echoing on demand depends on timing. ETR_IO if the source
 * cannot be listed, ETR_CANCELLED if the epoch must be replayed and the pipeline has been
 * cancelled. */
ETR_API int32_t etr_pipeline_length(etr_pipeline* pipeline, int64_t* batches);

/* Stops all work and makes a blocked etr_pipeline_next return ETR_CANCELLED. Any thread. */
ETR_API int32_t etr_pipeline_cancel(etr_pipeline* pipeline);

/* Returns statistics as JSON: for each stage the number of items, the busy, starved and blocked
 * seconds, the queue depth and its bounds, and for a cache its hits and misses; the number of fresh
 * and echoed samples; and how long the consumer has waited. Any thread. */
ETR_API int32_t etr_pipeline_stats(etr_pipeline* pipeline, char** json);

/* Explains the speed of a pipeline that has run for a while: what each stage could do, where the
 * bottleneck is, and what more threads, a cache or an echo stage would gain, as predicted from the
 * measurements. `format` is "text" (for people), "svg" (a drawing coloured by load) or "json":
 * {"samples_per_s", "bottleneck": {"limit": "consumer"|"threads"|"stage"|"none", "stage" (null with
 * "none"), "why"}, "pool" (what all threads could do together), "stages", "predictions", ...}.
 * ETR_STATE before the first batch. Any thread. */
ETR_API int32_t etr_pipeline_explain(etr_pipeline* pipeline, const char* format, char** text);

/* Explains the speed of a pipeline, as etr_pipeline_explain does, from `stats`, the JSON that
 * etr_pipeline_stats or etr_run_pipeline_stats returned. ETR_INVALID_ARGUMENT if it is not the
 * statistics of a pipeline; ETR_STATE if they were taken before the first batch. */
ETR_API int32_t etr_explain_stats(const char* stats, const char* format, char** text);

/* Finds good settings for a pipeline by trying them: threads, requests in flight, and batches to
 * prepare ahead. `spec` is JSON as for etr_pipeline_create_from_json. Each trial runs for `seconds`
 * (above 0, at most 1e6) with a consumer that takes `step_ms` milliseconds (0 to 1e6) for a batch.
 * `progress` (may be NULL) is called after each trial with its JSON; returning 0 stops with
 * ETR_CANCELLED. `json` receives {"options", "samples_per_s", "trials"}. Saved as a file, it serves
 * as the pipeline option "tuned". A trial has its settings and "samples_per_s", or "error" if they
 * do not work, for example because the budget is too small for them. If no value of a setting
 * works, the call fails with an error of etr_pipeline_create_from_json or etr_pipeline_next. */
ETR_API int32_t etr_pipeline_tune(const char* spec, double seconds, double step_ms,
                                  int32_t (*progress)(void* user_data, const char* trial),
                                  void* user_data, char** json);

/* Returns the pipeline's work, thread by thread, as a Chrome trace (for chrome://tracing or
 * Perfetto). It holds the newest events, as many as the pipeline option "trace_events" says.
 * ETR_STATE if that is 0, the default. */
ETR_API int32_t etr_pipeline_trace(etr_pipeline* pipeline, char** json);

/* Returns the first 1,000 bad records that were tolerated: a JSON array of {"stage", "shard",
 * "key", "reason", "offset", "occurrences"}. "offset" is in bytes into the decompressed shard, and
 * missing if it is not known. "occurrences" is how often the record was met, once in each epoch. In
 * names that are not UTF-8, invalid bytes are written as a backslash, "x" and two hexadecimal
 * digits. Any thread. */
ETR_API int32_t etr_pipeline_bad_records(etr_pipeline* pipeline, char** json);

/* Returns the position after the last batch that was read, as a small JSON text, for
 * etr_pipeline_restore. If several processes share the samples (options "rank" and "world_size"),
 * each saves its own position. */
ETR_API int32_t etr_pipeline_save(etr_pipeline* pipeline, char** json);

/* Continues from a position that etr_pipeline_save returned for a pipeline of the same spec: the
 * same batches follow.
 *
 * If several processes shared the samples, `json` may also be an array of the positions of all
 * ranks, in order. Any number of processes can restore it, also in the middle of an epoch: the rest
 * of the epoch is distributed anew, so that each sample comes once. ETR_UNSUPPORTED for an array
 * within an epoch if the pipeline has a stage take, skip, bucket or pack_sequences, or if its
 * on_error is "substitute".
 *
 * ETR_STATE after the first batch, and after a call that succeeded; ETR_INVALID_ARGUMENT if the
 * position is of another pipeline or of other data; ETR_CORRUPT_DATA if it is damaged. If it fails
 * on the way to the position, etr_pipeline_next returns the same error; create another pipeline
 * then. */
ETR_API int32_t etr_pipeline_restore(etr_pipeline* pipeline, const char* json);

/* Returns the batch's counts, or the sample's ordinal, epoch and replica. */
ETR_API int32_t etr_batch_get_info(const etr_batch* batch, etr_batch_info* info);

/* Gives access to a field without a copy. The data stays valid until the batch is destroyed or the
 * field is replaced or removed. Image pipelines have "image" and "label". ETR_NOT_FOUND if there is
 * no such field; ETR_STATE if it lies in a Vulkan buffer. */
ETR_API int32_t etr_batch_get(const etr_batch* batch, const char* field, etr_tensor* tensor);

/* Returns the name of the field `index` (0 to etr_batch_info.fields - 1). The string belongs to the
 * batch and stays valid until the batch is changed or destroyed. ETR_NOT_FOUND if there is no such
 * field. */
ETR_API int32_t etr_batch_field_name(const etr_batch* batch, int32_t index, const char** name);

/* Destroys the batch. Any thread. */
ETR_API void etr_batch_destroy(etr_batch* batch);

/* Creates a batch without fields, for trainers that get their data without a pipeline. Fields can
 * also be changed in a map function, or in a batch that was read. The name of a field, like that of
 * a function, has 1 to 1,000 bytes of UTF-8 without control characters; any other name is
 * ETR_INVALID_ARGUMENT. */
ETR_API int32_t etr_batch_create(etr_batch** batch);

/* Sets a field to a copy of `tensor`. ETR_INVALID_ARGUMENT if the field's name is invalid, or if
 * size_bytes is not what dtype and shape need. */
ETR_API int32_t etr_batch_set(etr_batch* batch, const char* field, const etr_tensor* tensor);

/* Sets a field to `tensor` without a copy. The memory must not change and must live until `release`
 * (may be NULL) is called with `user_data`. That happens exactly once, on any thread, also after an
 * error. (After an error of etr_batch_set_dlpack, in contrast, the tensor still belongs to the
 * caller.) Errors are those of etr_batch_set. */
ETR_API int32_t etr_batch_wrap(etr_batch* batch, const char* field, const etr_tensor* tensor,
                               void (*release)(void* user_data), void* user_data);

/* Removes a field. ETR_NOT_FOUND if there is no such field. */
ETR_API int32_t etr_batch_remove(etr_batch* batch, const char* field);

/* A row-major array in a range of your own VkBuffer, on the device of etr_runtime_create_shared. */
typedef struct etr_vulkan_buffer {
  uint32_t struct_size;
  int32_t dtype; /* ETR_I32 or ETR_F32 */
  int32_t rank;  /* number of dimensions */
  int32_t reserved;
  int64_t shape[ETR_MAX_RANK]; /* without extents of 0 */
  void* buffer;    /* VkBuffer; the queue's family owns it, or several families share it */
  uint64_t offset; /* in bytes */
} etr_vulkan_buffer;

/* Sets a field to the contents of a VkBuffer (created with VK_BUFFER_USAGE_TRANSFER_SRC_BIT), for
 * trainers of the runtime that shares its device. A training step copies it on the device, in queue
 * order: submit the work that fills the buffer before etr_trainer_step, and end it with a barrier
 * to VK_ACCESS_TRANSFER_READ_BIT. ETR_INVALID_ARGUMENT if the array is empty or of another type
 * than f32 and i32.
 *
 * The contents must stay until `release` (may be NULL) is called with `user_data`. That happens
 * exactly once, on any thread, also after an error: when the batch has been destroyed and every
 * step on it has ended. The library notices that a step has ended when the program calls
 * etr_trainer_result, when it calls etr_trainer_step while several results have not been taken, or
 * when the trainer is destroyed. The contents may be overwritten sooner, once the step has been
 * started, by work that is submitted to the same queue after a barrier from
 * VK_PIPELINE_STAGE_TRANSFER_BIT. etr_batch_get returns ETR_STATE for such a field. */
ETR_API int32_t etr_batch_wrap_vulkan(etr_batch* batch, const char* field,
                                      const etr_vulkan_buffer* buffer,
                                      void (*release)(void* user_data), void* user_data);

/* Sets the reason that the error's message will give. It is for map and source functions that are
 * about to return an error. */
ETR_API int32_t etr_batch_fail(etr_batch* item, const char* message);

/* Returns the field as a DLPack tensor (DLManagedTensor* of dlpack.h, CPU memory) without a copy.
 * The tensor keeps the memory alive by itself, beyond the batch; call its deleter when done. Do not
 * write to it: other batches may share the memory, because of echoes. Errors are those of
 * etr_batch_get. */
ETR_API int32_t etr_batch_to_dlpack(const etr_batch* batch, const char* field, void** managed);

/* Sets a field to a DLPack tensor (u8, u16, i32 or f32, row-major, in CPU memory) without a copy
 * and takes ownership of it: its deleter is called, on any thread, when the tensor is no longer
 * used. After an error the tensor still belongs to the caller, unlike memory that is passed to
 * etr_batch_wrap. ETR_UNSUPPORTED for other types, layouts and devices. */
ETR_API int32_t etr_batch_set_dlpack(etr_batch* batch, const char* field, void* managed);

/* Packs images root/CLASS/NAME.EXT, shuffled, into shards: PREFIX-000000.tar.zst and so on for the
 * stage `webdataset`, or with the option format "fast" PREFIX-000000.ets for the stage
 * `fast_shard`, whose images decode 1.7 to 3.8 times as fast as PNGs. CLASS/NAME becomes the
 * sample's key.
 *
 * The folder of PREFIX must lie outside of `root`; it is created if it is missing. The file
 * classes.txt, which is written there, lists the classes in the order of their numbers. If it
 * exists already, its numbers are used. `options` (may be NULL) are those of etr_schema("pack").
 * `progress` (may be NULL) is called on this thread; returning 0 stops with ETR_CANCELLED. After
 * any error no shard of this packing is left. `json` (may be NULL) receives {"samples",
 * "validation_samples", "bytes", "packed_bytes", "shards", "classes", "classes_file", "skipped":
 * [{"file", "reason"}]}.
 *
 * ETR_NOT_FOUND if `root` is missing or holds no images. ETR_INVALID_ARGUMENT if the prefix lies
 * inside `root`, if shards of an earlier packing are there (unless the option overwrite is set), or
 * if an existing classes.txt lacks a class. ETR_IO if an image cannot be read or a shard cannot be
 * written. */
ETR_API int32_t etr_pack(const char* root, const char* prefix, const etr_options* options,
                         int32_t (*progress)(void* user_data, int64_t done, int64_t total),
                         void* user_data, char** json);

/* ---- models and optimizers ------------------------------------------------------------------- */

/* A description of a model: layers and a loss. */
typedef struct etr_model etr_model;

/* A description of an optimizer with its learning rate schedule. */
typedef struct etr_optimizer etr_optimizer;

/* Creates a model without layers; add them with etr_model_add. */
ETR_API int32_t etr_model_create(etr_model** model);

/* Creates a model from JSON in the form that jobs use. That is {"layers": [...]}, where a layer may
 * have a "name" and read other layers by "input", or a ready-made model, as listed by
 * etr_schema("models"): {"model": "cifar_resnet", "depth": 8}. Both may have "inputs" (fields of
 * the batch; by default "image") and "loss". ETR_NOT_FOUND if there is no layer or model of that
 * name. With "onnx" (see etr_model_create_from_onnx), errors are also those of that function. */
ETR_API int32_t etr_model_create_from_json(const char* spec, etr_model** model);

/* Creates a model from an ONNX file, for fine-tuning: a trainer made from it begins with the file's
 * weights. The file is read once. Layers are named after the file's weights, so that
 * etr_model_freeze can name them: "layer1.0.conv1.weight". The model's fields have the names of the
 * file's inputs; an image is [N, C, H, W] in the file and a field [N, H, W, C] here. Layers can be
 * added after the file's output; to cut the file before that, or to rename its inputs, give
 * etr_model_create_from_json {"onnx": PATH, "until": VALUE, "inputs": [...], "layers": [...]}.
 * etr_model_json returns the layers without the weights; a trainer made from this JSON can load
 * checkpoints without the file.
 *
 * ETR_NOT_FOUND if the file is missing. ETR_UNSUPPORTED if it has an operator that this library
 * lacks; the message names the node and the operator. ETR_CORRUPT_DATA if the file is damaged; the
 * message says where. */
ETR_API int32_t etr_model_create_from_onnx(const char* path, etr_model** model);

/* Destroys the model. Any thread. */
ETR_API void etr_model_destroy(etr_model* model);

/* Appends a layer. `options` may be NULL. ETR_NOT_FOUND if there is no such layer;
 * ETR_INVALID_ARGUMENT if an option is wrong or missing. */
ETR_API int32_t etr_model_add(etr_model* model, const char* layer, const etr_options* options);

/* Returns the model as JSON; a ready-made model is written with all its layers.
 * ETR_INVALID_ARGUMENT if the model has no layer. */
ETR_API int32_t etr_model_json(const etr_model* model, char** json);

/* Summarises the model for samples of given shapes. `fields` is a JSON object with each field that
 * the model reads, such as {"image": [28, 28, 1]} or {"text": {"dtype": "i32", "shape": [12]}}.
 * `format` is "text" (for people) or "json": {"inputs": [{"name", "dtype", "shape"}], "layers":
 * [{"name", "op", "shape", "parameters"}], "parameters", "frozen", "states"}, where -1 in a shape
 * is the batch axis, "frozen" counts the parameters that are not trained, and states are running
 * statistics. ETR_INVALID_ARGUMENT if a layer does not fit; the message names it. ETR_NOT_FOUND if
 * a pattern of etr_model_freeze or etr_model_set_lora matches nothing. */
ETR_API int32_t etr_model_summary(const etr_model* model, const char* fields, const char* format,
                                  char** text);

/* Sets the loss: "softmax_cross_entropy" (the default; integer labels), "binary_cross_entropy",
 * "mse", "l1", "huber" or "multibox" (of detectors; compares with the field "boxes"). `options`
 * (may be NULL) are those of "loss" in etr_schema("job"). ETR_INVALID_ARGUMENT for another loss, and
 * for an option that this loss does not use. */
ETR_API int32_t etr_model_set_loss(etr_model* model, const char* loss, const etr_options* options);

/* Freezes the parameters whose names match `pattern`, such as "conv2d_1.*", where * stands for any
 * characters: training leaves them as they are, and keeps neither gradients nor optimizer state for
 * them. Running statistics (batch_norm) still change. Call it any number of times before the model
 * is given to a trainer. The call that brings a trainer its first batch returns ETR_NOT_FOUND if a
 * pattern matches no parameter, and ETR_INVALID_ARGUMENT if none is left to train. */
ETR_API int32_t etr_model_freeze(etr_model* model, const char* pattern);

/* Adds low-rank adapters (LoRA, Hu et al. 2021) to dense layers and to the projections of attention
 * layers, and freezes all other parameters. A product there becomes x W + b + (alpha / rank) (x A)
 * B, where A [features, rank] and B [rank, units] are trained. Their names are that of the weight
 * with .lora_a and .lora_b in place of .weight.
 *
 * `options` are those of "lora" in etr_schema("job"): layers (patterns of the products' names, such
 * as "*.query"), rank, alpha, dropout, and train (patterns of other parameters to train). They
 * replace those of an earlier call. Checkpoints hold only what is trained, and load into a model
 * with the same other weights. etr_trainer_export_onnx adds the adapters to the weights.
 * ETR_INVALID_ARGUMENT if parameters have been frozen by etr_model_freeze. The call that brings a
 * trainer its first batch returns ETR_NOT_FOUND if a pattern matches nothing. */
ETR_API int32_t etr_model_set_lora(etr_model* model, const etr_options* options);

/* Keeps the frozen weights of products and convolutions in 8 or 4 bits in device memory; 0 restores
 * f32. They are rounded when they are set or loaded: 32 consecutive elements share a scale of 32
 * bits, and the element of the largest magnitude is kept exactly. Before each use a kernel converts
 * the weight to f32. Reading, saving and exporting give the rounded weights. Embeddings, biases and
 * trained parameters are not quantised. ETR_INVALID_ARGUMENT for any other number of bits. The call
 * that brings a trainer its first batch returns the same if no such weight is frozen. */
ETR_API int32_t etr_model_quantize(etr_model* model, int32_t bits);

/* Creates an optimizer by name. `options` may be NULL, `schedule` may not: it holds the options of
 * the job section "schedule", of which learning_rate is required. ETR_NOT_FOUND if there is no such
 * optimizer; ETR_INVALID_ARGUMENT if an option is wrong or missing. */
ETR_API int32_t etr_optimizer_create(const char* name, const etr_options* options,
                                     const etr_options* schedule, etr_optimizer** optimizer);

/* Destroys the optimizer. Any thread. */
ETR_API void etr_optimizer_destroy(etr_optimizer* optimizer);

/* ---- trainers -------------------------------------------------------------------------------- */

/* A model with its weights and its optimizer on a device. etr_trainer_create makes one for a custom
 * training loop; etr_run_trainer returns the one that a run trains, whose weights can be read and
 * changed between two events of the run.
 *
 * Some functions return ETR_STATE before the first batch, because they need the shapes of the
 * samples. The trainer of a run has them from the beginning: it reads a batch itself. */
typedef struct etr_trainer etr_trainer;

/* The result of an evaluation. loss and accuracy are means over all samples, as those of a step are
 * over its batch (etr_step_result). */
typedef struct etr_eval_result {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t samples;
  double loss, accuracy;
} etr_eval_result;

/* Creates a trainer for a custom training loop. The model and the optimizer are copied: they may be
 * changed or destroyed afterwards, which does not affect the trainer. `total_steps` is the step at
 * which decaying schedules end; 0: unknown. ETR_INVALID_ARGUMENT if it is negative or the model has
 * no layer; ETR_STATE while etr_runtime_tune uses the runtime. */
ETR_API int32_t etr_trainer_create(etr_runtime* runtime, const etr_model* model,
                                   const etr_optimizer* optimizer, uint64_t seed,
                                   int64_t total_steps, etr_trainer** trainer);

/* Destroys the trainer; the run that it belongs to continues. If another thread is in a call on it,
 * this function returns at once, and the trainer is freed when that call returns. Any thread. */
ETR_API void etr_trainer_destroy(etr_trainer* trainer);

/* Returns a copy of the model's parameters and running statistics: a new batch with one f32 field
 * for each, by name and in the model's order. `name` selects one of them; NULL selects all. Waits
 * for the steps in flight. ETR_NOT_FOUND if there is no such name; the message suggests a similar
 * one or lists all. ETR_STATE before the first batch. */
ETR_API int32_t etr_trainer_get_weights(etr_trainer* trainer, const char* name,
                                        etr_batch** weights);

/* Replaces the parameters and running statistics that are fields of `weights`; others keep their
 * values. The optimizer's state is kept, except for the running mean of the weights (the option
 * ema_decay), which is set to the same values. If any field does not fit, nothing changes:
 * ETR_NOT_FOUND if the model has nothing of that name, ETR_INVALID_ARGUMENT if the type or shape
 * differs. ETR_STATE before the first batch; ETR_UNSUPPORTED for fields in Vulkan buffers. */
ETR_API int32_t etr_trainer_set_weights(etr_trainer* trainer, const etr_batch* weights);

/* Changes a hyperparameter from the next step on, at no cost: "momentum", "beta1", "beta2", "decay"
 * or "weight_decay" if the optimizer has an option of that name, or "label_smoothing" of the loss
 * softmax_cross_entropy. The value overrides what the schedule says (momentum_end and the like).
 * Checkpoints keep it, and a checkpoint that is loaded brings its own values.
 *
 * In a run of several processes, all of them must make the same call between the same steps (after
 * an event of kind evaluation or checkpoint). If their calls differ, all get ETR_INVALID_ARGUMENT.
 * ETR_NOT_FOUND if there is no such hyperparameter; the message lists those that exist.
 * ETR_INVALID_ARGUMENT also if the value is out of the option's range, if the optimizer began with
 * momentum 0 and keeps no velocity, and for weight_decay on a worker of the algorithm downpour,
 * whose servers apply their own. */
ETR_API int32_t etr_trainer_set_hyperparameter(etr_trainer* trainer, const char* name,
                                               double value);

/* Runs the model in evaluation mode on `batch`, which has any number of rows and the fields that
 * the model reads. Returns a new batch with the field "output": f32 [N, outputs], the result of the
 * last layer. For a classifier these are logits, before the softmax. Waits for the steps in flight.
 * ETR_NOT_FOUND if a field is missing; ETR_INVALID_ARGUMENT if one does not fit the model;
 * ETR_UNSUPPORTED if this trainer has only a stage of the model (parallel.mesh). */
ETR_API int32_t etr_trainer_predict(etr_trainer* trainer, const etr_batch* batch,
                                    etr_batch** outputs);

/* Runs the model as etr_trainer_predict does, and writes the result into your own VkBuffer: f32 [N,
 * outputs], described as for etr_batch_wrap_vulkan but created with
 * VK_BUFFER_USAGE_TRANSFER_DST_BIT. Returns when the buffer is written. Work that reads the
 * buffer's earlier contents must have been submitted before this call. ETR_STATE if the trainer's
 * runtime was not created by etr_runtime_create_shared; other errors are those of
 * etr_trainer_predict. */
ETR_API int32_t etr_trainer_predict_vulkan(etr_trainer* trainer, const etr_batch* batch,
                                           const etr_vulkan_buffer* output);

/* Decodes the outputs of a detector (model ssd, layers box_head), as returned by
 * etr_trainer_predict, into a new batch with the field "boxes": f32 [N, max_detections, 6]. A row
 * is label, left, top, right, bottom (as shares of the image) and score. The best boxes come first;
 * unused rows have the label -1.
 *
 * A box counts if its score, the probability of its class, is at least `score_threshold` (usually
 * 0.5). Of two boxes of the same class whose intersection over union is above `iou_threshold`
 * (usually 0.45), only the better one is kept. Both thresholds are 0 to 1. ETR_NOT_FOUND if there
 * is no field "output"; ETR_INVALID_ARGUMENT if it does not come from a detector. Any thread. */
ETR_API int32_t etr_detections(const etr_batch* outputs, double score_threshold,
                               double iou_threshold, int32_t max_detections, etr_batch** boxes);

/* Evaluates one whole epoch of `pipeline`. If an epoch has begun (an earlier evaluation was
 * stopped, or the program has read batches), its rest is skipped and the next epoch is evaluated;
 * ETR_INVALID_ARGUMENT if there is none. Training, by contrast, continues where the pipeline
 * stands. ETR_CANCELLED after etr_pipeline_cancel. Messages of other errors begin with
 * "evaluation: ". */
ETR_API int32_t etr_trainer_evaluate(etr_trainer* trainer, etr_pipeline* pipeline,
                                     etr_eval_result* result);

/* Reports the progress of etr_trainer_evaluate. `progress` is called after each batch, on the
 * thread that evaluates; `done` counts batches. `batches` is their number, or -1 if it is not
 * known. While batches are skipped (see etr_trainer_evaluate), `done` is 0. Returning 0 stops the
 * evaluation, and etr_trainer_evaluate returns ETR_CANCELLED. NULL removes the callback.
 *
 * `destroy` (may be NULL) is called exactly once with `user_data`: when the callback is replaced
 * or removed, when the trainer is destroyed, or in this call if it fails or `progress` is NULL. */
ETR_API int32_t etr_trainer_on_evaluation(etr_trainer* trainer,
                                          int32_t (*progress)(void* user_data, int64_t done,
                                                              int64_t batches),
                                          void* user_data, void (*destroy)(void* user_data));

/* Summarises the model like etr_model_summary, with the shapes of the first batch. ETR_STATE before
 * the first batch. */
ETR_API int32_t etr_trainer_summary(etr_trainer* trainer, const char* format, char** text);

/* Exports the model with its weights as an ONNX file (opset 17), for other runtimes. The inputs
 * have the names of their fields, images are [N, H, W, C] as here, there is one output "output",
 * and the batch size N is dynamic. Batch normalisation is folded. Waits for the steps in flight.
 * ETR_STATE before the first batch, ETR_UNSUPPORTED with the name of the layer that ONNX cannot
 * express, ETR_IO if the file cannot be written. */
ETR_API int32_t etr_trainer_export_onnx(etr_trainer* trainer, const char* path);

/* Saves a checkpoint in a new folder below `directory`: the weights (safetensors), the optimizer's
 * state and the step count. The two checkpoints that were written last are kept, whatever their
 * steps. Folders that no trainer wrote and damaged checkpoints do not count and are not removed.
 * Waits for the steps in flight. ETR_IO if the folder or a file cannot be written. ETR_STATE before
 * the first batch, while another run or trainer saves there, and if the folder has checkpoints of a
 * run: this one would replace them, and lacks data that the run needs to resume. */
ETR_API int32_t etr_trainer_save(etr_trainer* trainer, const char* directory);

/* Loads the newest intact checkpoint below `directory`, before or after the first step.
 * ETR_NOT_FOUND if there is none; ETR_CORRUPT_DATA if all are damaged; ETR_IO if it cannot be read.
 *
 * ETR_INVALID_ARGUMENT if the checkpoint belongs to another model or optimizer; the message names
 * the difference. (Checkpoints of versions that did not write the optimizer's name are matched by
 * the optimizer's state alone.) To continue with another optimizer, load the checkpoint into a
 * trainer with the one that made it, and transfer the weights with etr_trainer_get_weights and
 * etr_trainer_set_weights. */
ETR_API int32_t etr_trainer_load(etr_trainer* trainer, const char* directory);

/* Loads initial weights from `path`, a safetensors file with the state_dict of a PyTorch model.
 * Call it before the first batch; ETR_STATE later. A tensor is looked up under its name in the
 * model, with the last part as in PyTorch (weight, bias, running_mean, weight_ih_l0, ...). Layouts
 * are converted (PyTorch flattens images channel by channel); F16 and BF16 become f32.
 *
 * `names` (JSON, or NULL) maps prefixes of the model's names to those in the file: {"backbone.":
 * "model.encoder.", "head": ""}. Tensors whose prefix is mapped to "" keep their initial values.
 *
 * ETR_NOT_FOUND if the file is missing; ETR_CORRUPT_DATA if it is not a safetensors file or is
 * damaged; ETR_UNSUPPORTED if it has tensors of other types. The call that brings the first batch
 * returns ETR_NOT_FOUND if a tensor is missing, and ETR_INVALID_ARGUMENT if one does not fit. */
ETR_API int32_t etr_trainer_load_pytorch(etr_trainer* trainer, const char* path, const char* names);

/* ---- custom training loops ------------------------------------------------------------------- */

/* The functions of this section make training steps, with a trainer from etr_trainer_create. For
 * the trainer of a run, which makes its own steps, they return ETR_STATE.
 *
 * A step is a call of etr_trainer_step, whose result etr_trainer_result returns. It can also be
 * made pass by pass: for a loss that the program computes, or for several models whose gradients
 * flow into each other. It then consists of any number of etr_trainer_forward and
 * etr_trainer_backward, and of one etr_trainer_update. */

/* The result of a step. loss is the mean over the batch's samples, and accuracy the share of those
 * that are classified correctly (0 for models that do not classify). */
typedef struct etr_step_result {
  uint32_t struct_size;
  int32_t samples;
  uint64_t step; /* 1 is the first */
  double loss, accuracy, learning_rate;
} etr_step_result;

/* Starts a training step on `batch` and returns while the device works. Up to three steps are in
 * flight: if there are three already, the call first waits until the oldest has ended. The batch
 * may be destroyed at once. Its fields are those that the model and the loss read: by default
 * image, f32 [N, ...], and label, i32 [N], or f32 for losses such as mse. The step discards
 * gradients that no etr_trainer_update has used.
 *
 * Take the results with etr_trainer_result, though not necessarily after each step. Only that
 * function reports a loss or gradient that is not finite: until then, later calls of
 * etr_trainer_step return ETR_OK, but their steps do not change the weights. The trainer keeps the
 * fields' memory for a few steps, and that of a step that was not finite until this is reported.
 *
 * Batches may differ in N. A batch with fewer samples than the largest so far is filled up with
 * repeated samples, so that batch statistics remain meaningful; the repetitions have no other
 * effect. The shape of the samples may differ if no parameter depends on it. Each new shape is
 * planned once, which takes a while; the plans of the eight most recently used shapes are kept.
 * ETR_NOT_FOUND if a field is missing, ETR_INVALID_ARGUMENT if one does not fit; the message names
 * it. */
ETR_API int32_t etr_trainer_step(etr_trainer* trainer, const etr_batch* batch);

/* Returns the oldest finished step that has not been returned yet. If there is none: with `wait` 0,
 * returns ETR_END; otherwise waits for one, and returns ETR_END if no step is in flight.
 *
 * ETR_NOT_FINITE if the step's loss or a gradient was NaN or infinite; the message names what
 * produced it. The results of earlier steps come first. Neither that step nor the steps that were
 * in flight after it have changed the weights. These steps give no results, and training may
 * continue. */
ETR_API int32_t etr_trainer_result(etr_trainer* trainer, int32_t wait, etr_step_result* result);

/* Runs the model in training mode on `batch`, on exactly its samples, and returns a new batch with
 * the field "output": f32 [N, ...], the result of the last layer. Dropout and running statistics
 * work as in a step; the fields of the loss are not read. With `input_gradients` other than 0,
 * etr_trainer_backward can also return the gradients of the inputs, which takes more time.
 *
 * Waits for the device. Each new shape of a batch is planned once, which takes a while; the plans
 * of the four most recently used shapes are kept. ETR_NOT_FOUND if a field is missing,
 * ETR_INVALID_ARGUMENT if one does not fit; the message names it. ETR_UNSUPPORTED in precision fp16
 * (bf16 works), for batches of an echo node with the option `device`, and if the optimizer has the
 * option accumulate or proximal. */
ETR_API int32_t etr_trainer_forward(etr_trainer* trainer, const etr_batch* batch,
                                    int32_t input_gradients, etr_batch** outputs);

/* Computes the gradients of the parameters from `output_gradient`, whose field "output" is the
 * gradient of the loss with respect to the latest output, f32 in the same shape. Whether the loss
 * is a sum or a mean over the samples is up to the program. Call it once per etr_trainer_forward,
 * before the weights change; ETR_STATE otherwise. ETR_NOT_FOUND if there is no field "output";
 * ETR_INVALID_ARGUMENT if it does not fit.
 *
 * With `accumulate` 0 the gradients replace those that were computed since the last update;
 * otherwise they are added to those. `inputs` (may be NULL) receives a new batch with the gradient
 * of each f32 field that the model reads, under the field's name; ETR_STATE if etr_trainer_forward
 * was called without `input_gradients`. Waits for the device only in this case. */
ETR_API int32_t etr_trainer_backward(etr_trainer* trainer, const etr_batch* output_gradient,
                                     int32_t accumulate, etr_batch** inputs);

/* Updates the weights with the gradients computed since the last update, and waits. This completes
 * a step, which counts in schedules and checkpoints. `result` (may be NULL) receives its number,
 * the samples of its forward passes and the learning rate; loss and accuracy are NaN. Afterwards
 * there are no gradients. ETR_STATE if there are none (a call of etr_trainer_step discards them),
 * or if the results of earlier steps have not been taken. ETR_NOT_FINITE if a gradient was NaN or
 * infinite; the weights are then as they were, and the gradients are gone. */
ETR_API int32_t etr_trainer_update(etr_trainer* trainer, etr_step_result* result);

/* Returns a copy of the gradients computed since the last update: a new batch with one f32 field
 * for each parameter that is trained, by name and in the model's order. `name` selects one of them;
 * NULL selects all. ETR_NOT_FOUND if there is no such name; the message suggests a similar one or
 * lists all. ETR_INVALID_ARGUMENT if it is frozen or a running statistic; ETR_STATE if there are no
 * gradients. */
ETR_API int32_t etr_trainer_get_gradients(etr_trainer* trainer, const char* name,
                                          etr_batch** gradients);

/* Replaces the gradients that are fields of `gradients`, for example to clip them in another way;
 * others keep their values. If any field does not fit, nothing changes: ETR_NOT_FOUND if there is
 * no trained parameter of that name, ETR_INVALID_ARGUMENT if the type or shape differs. ETR_STATE
 * if there are no gradients; ETR_UNSUPPORTED for fields in Vulkan buffers. */
ETR_API int32_t etr_trainer_set_gradients(etr_trainer* trainer, const etr_batch* gradients);

/* Measures where the time of a training step goes: runs `steps` steps on `batch`, kernel by kernel,
 * and returns the median times. These steps train, so use a trainer that is discarded afterwards.
 * `format` is "text" (for people), "json" ({"seconds", "roof", "ops": [{"op", "kernel", "calls",
 * "seconds", "flops_per_s", "bytes_per_s", "of_roof"}]}) or "trace", one step as a Chrome trace.
 * ETR_UNSUPPORTED if the device has no timestamps; ETR_STATE if the results of earlier steps have
 * not been taken; ETR_NOT_FINITE as etr_trainer_result. */
ETR_API int32_t etr_trainer_profile(etr_trainer* trainer, const etr_batch* batch, int32_t steps,
                                    const char* format, char** text);

/* ---- jobs ------------------------------------------------------------------------------------ */

/* A job: pipeline, model, optimizer, schedule, evaluation and output as one document. */
typedef struct etr_job etr_job;

/* Reads and validates a job file. `overrides` are `count` strings "key=value", as for --set on the
 * command line. If the file names no output.dir, the job gets one: "runs/" and the stem of the
 * file's name. ETR_NOT_FOUND if the file is missing, or if the job names a stage, layer, model or
 * optimizer that does not exist. ETR_IO if the file cannot be read, for example because it is a
 * folder. ETR_INVALID_ARGUMENT if it is not valid JSON, or if a key, a value or an override is
 * wrong. The data is not looked for before a run of the job, except if the pipeline has the option
 * "budget_bytes" (with the errors of etr_pipeline_next). */
ETR_API int32_t etr_job_load(const char* path, const char* const* overrides, int32_t count,
                             etr_job** job);

/* Parses and validates a job from JSON text. `overrides` and errors are as for etr_job_load. */
ETR_API int32_t etr_job_parse(const char* json, const char* const* overrides, int32_t count,
                              etr_job** job);

/* Destroys the job. Any thread. */
ETR_API void etr_job_destroy(etr_job* job);

/* Returns the job as JSON, with overrides and variables applied. */
ETR_API int32_t etr_job_json(const etr_job* job, char** json);

/* Returns the folder that a run of the job writes into: "" if the job says that nothing is written,
 * NULL if the job does not say. In the latter case a run writes nothing either, and logs a warning.
 * Free the string with etr_string_free. */
ETR_API int32_t etr_job_output_dir(const etr_job* job, char** directory);

/* Measures a job for a few seconds and advises on echoing: whether it helps, where an echo node
 * should stand and with which factor, and what else would help first. The pipeline is measured
 * alone, and the model on batches already in memory. `seconds` (above 0, at most 1e6) is the length
 * of each measurement. With `check` other than 0, the job and the changed job are also run in
 * turns. Writes no file, except that the pipeline fills caches on disk as a run would.
 *
 * `progress` (may be NULL) is told what is being done, or "" while that continues; returning 0
 * stops with ETR_CANCELLED. `json` receives an object:
 *  - "helps": whether echoing helps. "upstream_to_step_ratio" is the time that the pipeline takes
 *    for an example divided by that of the training step; "why" explains the decision.
 *  - "echo": the recommended node, or null. "keep_echo": whether the job's own nodes stay, because
 *    they do just as well. "candidates": all places for a node, with the predicted gain, best
 *    first.
 *  - "other_advice": what else would help, best first; "batch": the same for the batch size.
 *  - "baseline", "without_echo" and "changed": predictions for the job as it is, without its echo
 *    nodes, and as advised. "job" is the changed job, "changes" says how it differs, and "checked"
 *    has the rates of "baseline" and "changed" if `check` was not 0.
 *  - "measured" and "assumptions": what the predictions are based on. "text": all of it for people.
 * Until 0.2, some keys are also written under their former names: "r" (upstream_to_step_ratio),
 * "keeps" (keep_echo), "edges" (candidates), "others" (other_advice) and "as_it_is" (baseline).
 *
 * ETR_UNSUPPORTED for jobs of several ranks and for pipelines without batches; ETR_STATE if no
 * batch came in time. Errors of the data are those of etr_pipeline_next. */
ETR_API int32_t etr_job_advise(etr_runtime* runtime, const etr_job* job, double seconds,
                               int32_t check,
                               int32_t (*progress)(void* user_data, const char* what),
                               void* user_data, char** json);

/* ---- runs ------------------------------------------------------------------------------------ */

/* A job that runs. It and the trainers that etr_run_trainer returns count as one handle for
 * convention 4: while a thread is in a call on one of them, calls of other threads on any of them
 * return ETR_STATE. */
typedef struct etr_run etr_run;

/* Kinds of events of a run; see etr_run_next_event. */
enum {
  ETR_EVENT_PROGRESS = 0,
  ETR_EVENT_EVALUATION = 1,
  ETR_EVENT_CHECKPOINT = 2,
  ETR_EVENT_END = 3
};

/* The state of a run at one moment. loss and accuracy are means over the steps since the last
 * event. */
typedef struct etr_event {
  uint32_t struct_size;
  int32_t kind; /* ETR_EVENT_* */
  uint64_t step, epoch;
  /* The step at which 'steps', 'epochs' or 'fresh' end the run (an estimate if samples are echoed),
   * or the planned number of steps; 0: unknown. */
  uint64_t total_steps;
  double seconds; /* of training, without evaluation, checkpoints and compiling in the first step */
  double loss, accuracy, learning_rate;
  double examples_per_second;       /* since the last event, without the first step */
  double device_wait_share;         /* share of training time so far in which the device was idle */
  uint64_t examples, fresh, echoed; /* since the start of the run */
  int64_t bad_records;              /* distinct records, however often each was met */
  double eval_loss, eval_accuracy;  /* of the latest evaluation */
  int32_t target_reached;
  int32_t reserved;
} etr_event;

/* How a run begins. output.dir holds one run: its metrics.jsonl, event files and checkpoints. One
 * run at a time writes there, from its start until its ETR_EVENT_END, its failure or its
 * destruction. A second one, in this process or another, gets ETR_STATE. */
enum {
  /* From the beginning. ETR_STATE if output.dir holds an earlier run. */
  ETR_START_NEW = 0,
  /* From the newest checkpoint in output.dir, continuing its files. ETR_NOT_FOUND if there is none.
   * If the run is complete, ETR_EVENT_END is the first event, and nothing is evaluated or written
   * again. */
  ETR_START_RESUME = 1,
  /* From the beginning, in place of an earlier run. When the first step is done, what that run
   * wrote is removed, and nothing else. ETR_STATE if output.dir holds a file or folder that no run
   * wrote and whose name a run would use. */
  ETR_START_OVERWRITE = 2,
  /* With the weights of the newest checkpoint (ETR_NOT_FOUND if there is none), to evaluate,
   * predict and export. The training data may have changed. Nothing is written, and the run has no
   * events: etr_run_next_event returns ETR_STATE. */
  ETR_START_EVALUATE = 3,
  /* From the beginning, and nothing is written; for etr_run_profile. */
  ETR_START_TRIAL = 4
};

/* Starts a run of the job. `start` is one of ETR_START_NEW to ETR_START_TRIAL, whose comments name
 * the errors. ETR_IO also if output.dir cannot be created; ETR_STATE while etr_runtime_tune uses
 * the runtime; ETR_RANK_LOST if other ranks do not come within parallel.timeout. The data is first
 * read by etr_run_next_event. */
ETR_API int32_t etr_run_start(etr_runtime* runtime, const etr_job* job, int32_t start,
                              etr_run** run);

/* Starts a run as one of several ranks that train together over the program's own transport.
 * `engine` is this rank's end of it; echotrain/engine.h has the contract. All ranks make this call
 * at the same time. The job need not have a section "parallel". If it has one, options about how
 * ranks find each other are ignored; the others (timeout, bucket_mb) apply.
 *
 * The run owns the engine: its destroy is called exactly once, also if this call fails. The table
 * itself is copied. The engine's functions are called on the thread that calls the run or its
 * trainers and on threads of the library. While in them, the program may stop the run
 * (etr_run_stop) or destroy it, which takes effect when they have returned. Other calls on runs and
 * trainers return ETR_STATE, because the run is waiting for the function. Errors are those of
 * etr_run_start. */
ETR_API int32_t etr_run_start_with_engine(etr_runtime* runtime, const etr_job* job, int32_t start,
                                          const etr_engine* engine, etr_run** run);

/* Trains until there is an event to report. After ETR_EVENT_END it returns ETR_END. If the run
 * fails, it returns the error; what was written stays valid. Such errors are those of
 * etr_pipeline_next for the job's data, ETR_NOT_FINITE, ETR_IO if something cannot be written,
 * ETR_RANK_LOST, and those of the device (see convention 10). */
ETR_API int32_t etr_run_next_event(etr_run* run, etr_event* event);

/* Trains until there is an event to report, as etr_run_next_event does, but returns an
 * ETR_EVENT_PROGRESS after `seconds` at the latest (0 to 1e6; 0: as etr_run_next_event), for
 * programs with something else to do, such as drawing frames. The first step, for which the driver
 * compiles kernels, evaluations and checkpoints are not divided and may take longer. The device
 * continues between calls: up to three steps are in flight. Errors are those of
 * etr_run_next_event. */
ETR_API int32_t etr_run_next_event_within(etr_run* run, double seconds, etr_event* event);

/* Asks the run to end gracefully and soon: with a checkpoint, if the job writes any, but without
 * waiting for an evaluation or for data that does not come. ETR_INVALID_ARGUMENT, without a
 * message, if `run` is NULL. Sets no message for etr_last_error. Any thread; safe in a signal
 * handler, but not while the run is being destroyed. */
ETR_API int32_t etr_run_stop(etr_run* run);

/* Evaluates the job's evaluation pipeline from its beginning. ETR_STATE if the job has none;
 * ETR_CANCELLED after etr_run_stop, even while no data comes. Messages of other errors begin with
 * "evaluation: ". */
ETR_API int32_t etr_run_evaluate(etr_run* run, etr_eval_result* result);

/* Reports the progress of the run's evaluations, those of the job and those of etr_run_evaluate, as
 * etr_trainer_on_evaluation does. Returning 0 stops the evaluation: the run continues without it,
 * and etr_run_evaluate returns ETR_CANCELLED. `destroy` is also called when the run is
 * destroyed. */
ETR_API int32_t etr_run_on_evaluation(etr_run* run,
                                      int32_t (*progress)(void* user_data, int64_t done,
                                                          int64_t batches),
                                      void* user_data, void (*destroy)(void* user_data));

/* Measures where the time of a training step goes, as etr_trainer_profile does, on a batch of the
 * job's pipeline, for which it waits. These steps train, so the run must have been started with
 * ETR_START_TRIAL: ETR_STATE otherwise, and if the pipeline gives no batch. ETR_UNSUPPORTED if the
 * device has no timestamps; ETR_CANCELLED after etr_run_stop while no batch comes, unless several
 * ranks train together. */
ETR_API int32_t etr_run_profile(etr_run* run, int32_t steps, const char* format, char** text);

/* Returns the statistics of the run's input pipeline, as etr_pipeline_stats does. If several
 * processes or devices train together, "ranks" has this one's "rank", the number of ranks ("size"),
 * the "steps" made so far, and the "bytes" of the arrays that this rank has contributed to
 * exchanges. With a parameter server, "worker" has the worker's "steps" and the "bytes" that it
 * exchanged. */
ETR_API int32_t etr_run_pipeline_stats(etr_run* run, char** json);

/* Returns the run's trainer, to read and set weights and hyperparameters, to predict, evaluate,
 * save and export. What is set takes effect in the run's next step. A run makes its own steps, so
 * the functions of the section "custom training loops" return ETR_STATE for this trainer.
 *
 * Before the run's first step, functions that need the shapes of the weights (to read or set
 * weights, for a summary or an export) wait for a batch of the job's pipeline and take them from
 * that. They return ETR_CANCELLED after etr_run_stop while no batch comes, unless several ranks
 * train together.
 *
 * The caller destroys the trainer, before or after the run; see etr_run_destroy. */
ETR_API int32_t etr_run_trainer(etr_run* run, etr_trainer** trainer);

/* Ends and destroys the run. If it had not reached ETR_EVENT_END, progress since the newest
 * checkpoint is lost.
 *
 * Its trainers remain usable, with the run's last weights. But if several ranks or the workers of a
 * parameter server trained together and had not reached the end, later calls on its trainers return
 * ETR_STATE. If another thread is in a call on the run or on such a trainer, this call returns at
 * once; that call ends soon, as after etr_run_stop, and the run with it. Any thread. */
ETR_API void etr_run_destroy(etr_run* run);

/* ---- parameter servers ----------------------------------------------------------------------- */

/* One shard of a job's parameter server (parallel.algorithm is downpour or easgd). It holds its
 * part of the parameters, and serves the workers, which are trainers of the job, on its own
 * threads. */
typedef struct etr_server etr_server;

/* The workers of a shard and what they have sent; see etr_server_wait. */
typedef struct etr_server_status {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t workers;  /* present now */
  int64_t joined;   /* since the start */
  int64_t finished; /* of those that left: how many had finished */
  uint64_t updates; /* applied so far */
} etr_server_status;

/* Starts the shard `shard` (0 to parallel.servers - 1), and returns before any worker has come. The
 * first shard also serves a tcp:// rendezvous. ETR_STATE if another server at this rendezvous has
 * the shard; ETR_INVALID_ARGUMENT if the job has no parameter server. */
ETR_API int32_t etr_server_start(const etr_job* job, int32_t shard, etr_server** server);

/* Waits for the end of the run, for at most `seconds` (0 to 1e6). ETR_OK if the run goes on.
 * ETR_END when the last worker has finished and parallel.size workers have come (if fewer have
 * come, only after another parallel.timeout), or after etr_server_stop. ETR_RANK_LOST if no worker
 * came within parallel.timeout, or none after the last one was lost. `status` may be NULL; it is
 * filled in all of these cases. */
ETR_API int32_t etr_server_wait(etr_server* server, double seconds, etr_server_status* status);

/* Stops the shard. Workers that are still training treat it as lost (ETR_RANK_LOST), and
 * etr_server_wait returns ETR_END. Any thread. */
ETR_API int32_t etr_server_stop(etr_server* server);

/* Stops and destroys the shard. Any thread; an etr_server_wait that waits on another thread returns
 * soon. */
ETR_API void etr_server_destroy(etr_server* server);

/* ---- reports --------------------------------------------------------------------------------- */

/* Compares runs in one self-contained HTML file: accuracy and loss over time, over fresh examples
 * and over steps, and the device's idle share. A chart for which no run has data is left out.
 * `names` and `metrics_paths` have `count` entries; a path is that of a metrics.jsonl or of its
 * folder. `target_accuracy` is 0 to 1; 0: none.
 *
 * `json` (may be NULL) receives the table, with a row for each name: time, examples and steps to
 * the target, final and best accuracy and loss (null if there is none). Runs of the same name are
 * repetitions with other seeds: their row holds medians, and "speedup_range" the least and the
 * greatest speed-up.
 *
 * ETR_NOT_FOUND if a metrics file is missing; ETR_CORRUPT_DATA if one is damaged;
 * ETR_INVALID_ARGUMENT if there are no runs, or if one has neither steps nor evaluations; ETR_IO if
 * the HTML file cannot be written. */
ETR_API int32_t etr_report_write(const char* title, const char* const* names,
                                 const char* const* metrics_paths, int32_t count,
                                 double target_accuracy, const char* html_path, char** json);

/* ---- studies --------------------------------------------------------------------------------- */

/* A study: many trials of jobs that compare conditions. Hyperparameters are searched for each
 * condition separately. docs/studies.md describes the file. */
typedef struct etr_study etr_study;

/* Reads a study file and the jobs that it names, and validates all conditions. `overrides` are
 * `count` strings "key=value" that change the jobs of all trials, as in etr_job_load.
 * ETR_INVALID_ARGUMENT also for a key that a search draws or that the study sets in each trial
 * ("seed", "train.steps", "output" and others, see docs/studies.md). ETR_NOT_FOUND if the file or a
 * job that it names is missing; other errors are those of etr_job_load. */
ETR_API int32_t etr_study_load(const char* path, const char* const* overrides, int32_t count,
                               etr_study** study);

/* Returns the study with jobs, labels and overrides filled in, which is a complete study file. Any
 * thread. */
ETR_API int32_t etr_study_json(const etr_study* study, char** json);

/* Returns the folder that the study writes into unless etr_study_start names another one:
 * "runs/studies/" and the stem of the file's name. Any thread. */
ETR_API int32_t etr_study_output_dir(const etr_study* study, char** directory);

/* Prepares the study to run on the runtime's device; etr_study_next_event runs it. `directory`
 * (NULL: that of etr_study_output_dir) is created if it is missing. Trials that it already holds
 * are not run again. So a study that was stopped or killed continues, and trials, searches and
 * conditions can be added to a study that has ended. `overwrite` 1 runs all trials again, and moves
 * what the folder holds to `replaced` in it; 0 does not.
 *
 * `parallel` is the number of trials that run at once; 0: as many as the device has room for, -1:
 * as the study says. The number changes results only with early stopping, which depends on the
 * order in which trials end, and if trials are measured in seconds.
 *
 * ETR_STATE if another process writes into the folder, if it holds something else or another study,
 * if one of its trials was run with another job than the study has now (the message names the key),
 * or if this handle was started before. ETR_IO if the folder cannot be written. */
ETR_API int32_t etr_study_start(etr_study* study, etr_runtime* runtime, const char* directory,
                                int32_t parallel, int32_t overwrite);

/* Waits for an event, for at most `seconds` (0 to 1e6), and returns it in `json`, an object. Its
 * "kind" is one of:
 *  - "progress": nothing else has happened.
 *  - "trial": a trial has ended; "trial" is its line of trials.jsonl.
 *  - "condition": the last trial of a condition has ended; "result" is its entry of
 *    etr_study_results, with "baseline" and "gain" null, because other conditions may not have run
 *    yet.
 *  - "end": the study has ended. This event comes once; after it, the call returns ETR_END.
 *
 * All events have "done", "total" and "resumed" (trials; the last: those found in the folder),
 * "running" and "parallel" (trials now, and at most), "seconds", "seconds_left" (an estimate; null:
 * unknown), and the current "workload" and "condition" with its "metric" and "clock". "best_metric"
 * and "best_to_target" (in units of the clock) are those of the current search so far.
 *
 * Trials train on threads of the library, also between calls. A trial that fails is counted as
 * failed, and the study continues. If the first trials all fail with the same error, or if nothing
 * can be written, the study ends with that error. ETR_STATE if the study was not started. */
ETR_API int32_t etr_study_next_event(etr_study* study, double seconds, char** json);

/* Ends the study at the next etr_study_next_event and abandons the trials that are running. If the
 * study is started again in the same folder, it begins with those trials. ETR_INVALID_ARGUMENT,
 * without a message, if it was not started. Any thread; safe in a signal handler, but not while the
 * study is being destroyed. */
ETR_API int32_t etr_study_stop(etr_study* study);

/* Returns the results by condition: the array "conditions" of results.json, from the records in
 * `directory` (NULL: that of etr_study_start, and before it that of etr_study_output_dir). It can
 * be called before the study is started and while it runs there, also while another thread waits in
 * etr_study_next_event. Any thread.
 *
 * Each condition has "workload", "labels", "name", "metric", "target", "clock", "trials" (and how
 * many are "planned"), their "counts" by status, "best" with the "point" of the best trial,
 * "searches" and "warnings".
 *
 * "to_target" (by clock) and "best_metric" are {"median", "min", "max", "reached", "count"} over
 * the searches; null: the target was not reached. "gain" over the baseline (by clock) is {"median",
 * "min", "max", "pairs", "reached"} over pairs of searches; null: infinite, because the baseline
 * did not reach the target. Conditions without a finished trial are left out; the array is empty if
 * the folder holds no trials of the study, or does not exist. ETR_STATE if one of its trials was
 * run with another job than the study has now. */
ETR_API int32_t etr_study_results(const etr_study* study, const char* directory, char** json);

/* Writes report.html (self-contained), results.json, conditions.csv, trials.csv and the figures in
 * figures/ into `directory` (NULL: as for etr_study_results), from the records that it holds so
 * far. Files in figures/ that the previous results.json lists and the new report does not have are
 * removed. It can be called when etr_study_results can. Any thread.
 *
 * ETR_STATE, with nothing written, if the folder holds something else, another study, or a trial
 * that was run with another job than the study has now; ETR_NOT_FOUND, with nothing created, if
 * there is no study in it. */
ETR_API int32_t etr_study_write_report(const etr_study* study, const char* directory);

/* Stops and destroys the study. Any thread; an etr_study_next_event that waits on another thread
 * returns soon. */
ETR_API void etr_study_destroy(etr_study* study);

/* ---- deprecated ------------------------------------------------------------------------------ */

/* These functions will be removed in version 0.2. Those whose names begin with etr_trainer_ treat a
 * run and its trainer as one handle: an etr_trainer that etr_trainer_start_job,
 * etr_trainer_create_from_job or etr_trainer_start_job_over returns. For such a handle,
 * etr_trainer_evaluate with a NULL pipeline stands for etr_run_evaluate, etr_trainer_profile with a
 * NULL batch for etr_run_profile, and etr_trainer_on_evaluation also does what
 * etr_run_on_evaluation does.
 *
 * Compilers warn of calls, unless ETR_NO_DEPRECATION_WARNINGS is defined before the header is
 * included. */
#if defined(ETR_NO_DEPRECATION_WARNINGS)
#define ETR_DEPRECATED(successor)
#elif defined(_MSC_VER)
#define ETR_DEPRECATED(successor) __declspec(deprecated("use " successor))
#elif defined(__GNUC__)
#define ETR_DEPRECATED(successor) __attribute__((deprecated("use " successor)))
#else
#define ETR_DEPRECATED(successor)
#endif

/* Use etr_run_start, and etr_run_trainer for the trainer. */
ETR_DEPRECATED("etr_run_start")
ETR_API int32_t etr_trainer_start_job(etr_runtime* runtime, const etr_job* job, int32_t start,
                                      etr_trainer** trainer);

/* Use etr_run_start, with ETR_START_RESUME if `resume` is not 0, else with ETR_START_NEW. */
ETR_DEPRECATED("etr_run_start")
ETR_API int32_t etr_trainer_create_from_job(etr_runtime* runtime, const etr_job* job,
                                            int32_t resume, etr_trainer** trainer);

/* Use etr_run_start_with_engine. */
ETR_DEPRECATED("etr_run_start_with_engine")
ETR_API int32_t etr_trainer_start_job_over(etr_runtime* runtime, const etr_job* job, int32_t start,
                                           const etr_engine* engine, etr_trainer** trainer);

/* Use etr_run_next_event. */
ETR_DEPRECATED("etr_run_next_event")
ETR_API int32_t etr_trainer_next_event(etr_trainer* trainer, etr_event* event);

/* Use etr_run_next_event_within. */
ETR_DEPRECATED("etr_run_next_event_within")
ETR_API int32_t etr_trainer_next_event_within(etr_trainer* trainer, double seconds,
                                              etr_event* event);

/* Use etr_run_stop. */
ETR_DEPRECATED("etr_run_stop")
ETR_API int32_t etr_trainer_stop(etr_trainer* trainer);

/* Use etr_run_pipeline_stats. */
ETR_DEPRECATED("etr_run_pipeline_stats")
ETR_API int32_t etr_trainer_pipeline_stats(etr_trainer* trainer, char** json);

/* Use etr_pack, with the options per_shard, level, seed and overwrite: this packs images into tar
 * archives, as etr_pack does, and replaces the shards of an earlier packing. `zstd_level` is the
 * compression level; 0 writes plain .tar files. */
ETR_DEPRECATED("etr_pack")
ETR_API int32_t etr_pack_folder(const char* root, const char* prefix, int64_t samples_per_shard,
                                int32_t zstd_level, uint64_t seed,
                                int32_t (*progress)(void* user_data, int64_t done, int64_t total),
                                void* user_data, char** json);

#ifdef __cplusplus
}
#endif

#endif /* ECHOTRAIN_ECHOTRAIN_H_ */
