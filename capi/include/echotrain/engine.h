/* What moves data between the processes of a group: a table of functions, an engine.
 *
 * EchoTrain brings engines (threads of one process, Gloo, MPI). A program that has a transport of its own (mpi4py, Ray, NCCL, ...)
 * fills the same table, and hands it to etr_trainer_start_job_over. This header has types only, and is C99 and C++.
 *
 * The contract:
 *
 *  1. A group has `size` ranks, 0 to size - 1; an engine is one rank's end of it. Every rank calls the same collective functions
 *     (all_reduce, reduce_scatter, all_gather, broadcast, barrier, split) in the same order, with matching counts, types and roots.
 *  2. A function returns when its work is done, or with an error. It serves one thread at a time. Different engines, such as those
 *     that split() makes, serve different threads at once.
 *  3. A function returns 0 (ETR_OK), or one of the negative statuses of echotrain.h after it has filled `error`. It ends within
 *     `timeout_s` seconds and one more. Ranks that did not come, or are gone, are ETR_RANK_LOST, and listed in `error`.
 *  4. After an error of one function the engine is dead: its memory may be freed, and of its functions only abort and destroy are
 *     called. The engine no longer touches the caller's memory. The other ranks get an error soon, too.
 *  5. A sum has the same bits on all ranks, and whenever ranks of the same number sum the same values.
 *  6. Nothing throws, prints, exits, or leaves by longjmp.
 *  7. The table grows at its end; `struct_size` says how much of it there is. Whoever is handed a table to fill (etr_engine_open, split)
 *     writes no more of it than the `struct_size` that it finds there, and sets `struct_size` to what it has filled.
 *  8. An engine has abort and destroy. Other functions may be NULL, or return ETR_UNSUPPORTED: what needs them is then an error that
 *     names them. Data-parallel training takes all_reduce, all_gather, broadcast and split, and where it shares out gradients
 *     (parallel.zero_stage 2) reduce_scatter, too.
 *  9. Its functions make no calls on the trainer that they serve, but etr_trainer_stop and etr_trainer_destroy: ETR_STATE.
 */
#ifndef ECHOTRAIN_ENGINE_H_
#define ECHOTRAIN_ENGINE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a reduction works on. */
enum {
  ETR_NUMBER_F32 = 0,
  ETR_NUMBER_F64 = 1,
  ETR_NUMBER_I32 = 2,
  ETR_NUMBER_I64 = 3,
  ETR_NUMBER_F16 = 4, /* IEEE 754 binary16 */
  ETR_NUMBER_BF16 = 5 /* bfloat16 */
};

/* Sums of integers wrap around. Sums of F16 and BF16 are rounded to the nearest, of two the even one: after each addition, or once. The least and the largest of numbers where one is NaN are either NaN or one of the others. */
enum { ETR_REDUCE_SUM = 0, ETR_REDUCE_MIN = 1, ETR_REDUCE_MAX = 2 };

enum {
  ETR_ENGINE_MISSING_MAX = 64,
  ETR_ENGINE_TAG_MAX = 32767 /* of messages: what every MPI has */
};

typedef struct etr_engine_error {
  uint32_t struct_size;
  int32_t missing_count; /* ranks that are missing; the list below has the first of them */
  int32_t missing[ETR_ENGINE_MISSING_MAX];
  char message[1024]; /* UTF-8, ends with NUL: what happened, and what to do */
} etr_engine_error;

/* One rank's end of a group. `context` is handed to each function. Whoever has the table calls destroy once, at the end. */
typedef struct etr_engine {
  uint32_t struct_size;
  int32_t rank;
  int32_t size;
  int32_t reserved; /* 0 */
  void* context;

  /* data[i] becomes the reduction of all ranks' data[i]. */
  int32_t (*all_reduce)(void* context, void* data, uint64_t count, int32_t number,
                        int32_t reduction, double timeout_s, etr_engine_error* error);

  /* `data` has counts[0] + ... + counts[size - 1] numbers; rank r gets the reduction of the r-th part of it in `part`. */
  int32_t (*reduce_scatter)(void* context, const void* data, const uint64_t* counts, void* part,
                            int32_t number, int32_t reduction, double timeout_s,
                            etr_engine_error* error);

  /* Rank r gives sizes[r] bytes in `part`; `data` gets those of all ranks, in their order. `part` may lie at
   * its place in `data` already. */
  int32_t (*all_gather)(void* context, const void* part, const uint64_t* sizes, void* data,
                        double timeout_s, etr_engine_error* error);

  /* `data` becomes that of the rank `root`. */
  int32_t (*broadcast)(void* context, void* data, uint64_t size_bytes, int32_t root,
                       double timeout_s, etr_engine_error* error);

  /* Returns when all ranks have called it. */
  int32_t (*barrier)(void* context, double timeout_s, etr_engine_error* error);

  /* From one rank to another: the n-th send with a tag meets the n-th receive with it. A send may wait for its receive.
   * Tags go up to ETR_ENGINE_TAG_MAX. */
  int32_t (*send)(void* context, const void* data, uint64_t size_bytes, int32_t to, uint32_t tag,
                  double timeout_s, etr_engine_error* error);
  int32_t (*receive)(void* context, void* data, uint64_t size_bytes, int32_t from, uint32_t tag,
                     double timeout_s, etr_engine_error* error);

  /* Fills `part` with an engine of the ranks that give the same colour, ordered by key, then by rank. A negative colour belongs to
   * no group: part->size is 0 then, and nothing else of it is set. All ranks call it, those with a negative colour too. */
  int32_t (*split)(void* context, int32_t colour, int32_t key, double timeout_s,
                   struct etr_engine* part, etr_engine_error* error);

  /* Ends the engine: the function that waits, here and on other ranks, returns an error with this reason. Any thread, at any time
   * before destroy; more than once does no harm. */
  void (*abort)(void* context, const char* reason);

  /* Waits, at most a few seconds, until the other ranks have what this one sent, and frees the engine. */
  void (*destroy)(void* context);

  /* Optional, both or neither: NULL, or a `struct_size` that ends before them. Memory on which the engine works where it lies. All
   * functions take any memory, but for other memory some engines have to copy (as one that works in another process).
   *
   * allocate() gives `size_bytes` bytes, one at least, that begin at a page and share their pages with nothing. After an error of
   * allocate() the engine lives on; after that of another function the memory is still there, with undefined contents. release() takes
   * back what allocate() gave, before destroy. Any thread; not while a function works on that memory. */
  int32_t (*allocate)(void* context, uint64_t size_bytes, void** memory, etr_engine_error* error);
  void (*release)(void* context, void* memory);
} etr_engine;

/* What a plug-in library exports under the name `etr_engine_open`: joins the group that the JSON object `spec` describes. */
typedef int32_t (*etr_engine_open_function)(const char* spec, etr_engine* engine,
                                            etr_engine_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ECHOTRAIN_ENGINE_H_ */
