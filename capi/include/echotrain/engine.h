/* Engines: tables of functions that move data between the processes of a group.
 *
 * EchoTrain has engines of its own (threads of one process, Gloo, MPI). A program with another
 * transport (mpi4py, Ray, NCCL, ...) fills the same table and passes it to
 * etr_run_start_with_engine. This header contains types only and is valid C99 and C++.
 *
 * The contract:
 *
 *  1. A group has `size` ranks, 0 to size - 1; an engine is one rank's end of it. All ranks call
 *     the same collective functions (all_reduce, reduce_scatter, all_gather, broadcast, barrier,
 *     split) in the same order, with matching counts, types and roots.
 *  2. A function returns when its work is done, or with an error. An engine serves one thread at a
 *     time, except that abort, allocate and release may be called from any thread. Different
 *     engines, such as those that split() makes, may serve different threads at once.
 *  3. A function returns 0 (ETR_OK), or fills `error` and returns a negative status of echotrain.h.
 *     It ends within `timeout_s` seconds plus one. If ranks are missing or lost, it returns
 *     ETR_RANK_LOST and lists them in `error`.
 *  4. After a function has failed, the engine is dead: it no longer touches the caller's memory,
 *     which may be freed, and only its abort and destroy are called. The other ranks soon get an
 *     error, too.
 *  5. A sum has the same bits on all ranks, and on every call in which the same number of ranks sum
 *     the same values.
 *  6. Functions do not throw, print, exit, or leave by longjmp.
 *  7. The table only grows at its end; `struct_size` says how many of its bytes are valid. A
 *     function that receives a table to fill (etr_engine_open, split) writes no more than the
 *     `struct_size` that it finds there, and sets `struct_size` to what it has filled.
 *  8. Every engine has abort and destroy. Other functions may be NULL or return ETR_UNSUPPORTED; an
 *     operation that needs such a function then fails with an error that names it. Data-parallel
 *     training needs all_reduce, all_gather, broadcast and split, and with sharded gradients
 *     (parallel.zero_stage 2) also reduce_scatter.
 *  9. An engine's functions must not call the run that they serve or its trainers, except
 *     etr_run_stop, etr_run_destroy and etr_trainer_destroy; other calls return ETR_STATE.
 */
#ifndef ECHOTRAIN_ENGINE_H_
#define ECHOTRAIN_ENGINE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The element types of reductions. */
enum {
  ETR_NUMBER_F32 = 0,
  ETR_NUMBER_F64 = 1,
  ETR_NUMBER_I32 = 2,
  ETR_NUMBER_I64 = 3,
  ETR_NUMBER_F16 = 4, /* IEEE 754 binary16 */
  ETR_NUMBER_BF16 = 5 /* bfloat16 */
};

/* Integer sums wrap around. Sums of F16 and BF16 are rounded to nearest, ties to even, either after
 * each addition or once at the end. If an operand is NaN, a minimum or maximum is either NaN or one
 * of the other operands. */
enum { ETR_REDUCE_SUM = 0, ETR_REDUCE_MIN = 1, ETR_REDUCE_MAX = 2 };

/* Limits of an engine. */
enum {
  ETR_ENGINE_MISSING_MAX = 64,
  ETR_ENGINE_TAG_MAX = 32767 /* of messages; every MPI supports this value */
};

/* Why an operation failed. The engine fills it in. */
typedef struct etr_engine_error {
  uint32_t struct_size;
  int32_t missing_count; /* number of missing ranks; the list below has the first of them */
  int32_t missing[ETR_ENGINE_MISSING_MAX];
  char message[1024]; /* UTF-8, ends with NUL: what happened, and what to do about it */
} etr_engine_error;

/* One rank's end of a group. `context` is passed to each function. The owner of the table calls
 * destroy once, at the end. */
typedef struct etr_engine {
  uint32_t struct_size;
  int32_t rank;
  int32_t size;
  int32_t reserved; /* 0 */
  void* context;

  /* Replaces data[i] by the reduction of data[i] over all ranks. */
  int32_t (*all_reduce)(void* context, void* data, uint64_t count, int32_t number,
                        int32_t reduction, double timeout_s, etr_engine_error* error);

  /* Reduces `data`, which has counts[0] + ... + counts[size - 1] numbers, over all ranks. Rank r
   * receives the r-th part of the result, counts[r] numbers, in `part`. */
  int32_t (*reduce_scatter)(void* context, const void* data, const uint64_t* counts, void* part,
                            int32_t number, int32_t reduction, double timeout_s,
                            etr_engine_error* error);

  /* Concatenates the ranks' parts, in rank order, in `data`. Rank r provides sizes[r] bytes in
   * `part`, which may already lie at its place in `data`. */
  int32_t (*all_gather)(void* context, const void* part, const uint64_t* sizes, void* data,
                        double timeout_s, etr_engine_error* error);

  /* Copies `data` from the rank `root` to all ranks. */
  int32_t (*broadcast)(void* context, void* data, uint64_t size_bytes, int32_t root,
                       double timeout_s, etr_engine_error* error);

  /* Returns when all ranks have called it. */
  int32_t (*barrier)(void* context, double timeout_s, etr_engine_error* error);

  /* Sends to the rank `to`. Between two ranks the n-th send with a tag matches the n-th receive
   * with that tag. A send may wait for its receive. Tags are 0 to ETR_ENGINE_TAG_MAX. */
  int32_t (*send)(void* context, const void* data, uint64_t size_bytes, int32_t to, uint32_t tag,
                  double timeout_s, etr_engine_error* error);

  /* Receives from the rank `from`; see send. */
  int32_t (*receive)(void* context, void* data, uint64_t size_bytes, int32_t from, uint32_t tag,
                     double timeout_s, etr_engine_error* error);

  /* Fills `part` with an engine for the ranks that pass the same colour, ordered by key, then by
   * rank. A rank with a negative colour belongs to no group: part->size is then 0, and nothing else
   * in it is set. All ranks make this call, also those with a negative colour. */
  int32_t (*split)(void* context, int32_t colour, int32_t key, double timeout_s,
                   struct etr_engine* part, etr_engine_error* error);

  /* Ends the engine: functions that are waiting, here and on other ranks, return an error with this
   * reason. Any thread, at any time before destroy; repeated calls do no harm. */
  void (*abort)(void* context, const char* reason);

  /* Waits, for a few seconds at most, until the other ranks have received what this one sent, and
   * frees the engine. */
  void (*destroy)(void* context);

  /* Allocates `size_bytes` bytes (at least one) that the engine can use in place. They begin at a
   * page boundary and share their pages with no other data. All functions accept any memory, but
   * some engines, for example those that work in another process, have to copy memory that does not
   * come from here.
   *
   * If allocate() fails, the engine remains usable. If another function fails, the memory remains
   * valid, with undefined contents. Any thread. allocate and release are optional, but only
   * together: without them, both are NULL, or `struct_size` ends before them. */
  int32_t (*allocate)(void* context, uint64_t size_bytes, void** memory, etr_engine_error* error);

  /* Frees memory that allocate() returned; called before destroy. Any thread, but not while a
   * function works on that memory. */
  void (*release)(void* context, void* memory);
} etr_engine;

/* The type of the function `etr_engine_open` that a plug-in library exports. It joins the group
 * that the JSON object `spec` describes and fills `engine`. */
typedef int32_t (*etr_engine_open_function)(const char* spec, etr_engine* engine,
                                            etr_engine_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ECHOTRAIN_ENGINE_H_ */
