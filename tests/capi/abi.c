/* What programs that were compiled before rely on: sizes, offsets and numbers. A change here breaks
 * them. */
#include <echotrain/echotrain.h>
#include <echotrain/engine.h>
#include <stddef.h>

#define SAME(name, condition) typedef char name[(condition) ? 1 : -1]

SAME(device_info, sizeof(etr_device_info) == 544 && offsetof(etr_device_info, name) == 32);
SAME(runtime_options, sizeof(etr_runtime_options) == 56 &&
                          offsetof(etr_runtime_options, device) == 8 &&
                          offsetof(etr_runtime_options, memory_limit_bytes) == 32 &&
                          offsetof(etr_runtime_options, tuning) == 40 &&
                          offsetof(etr_runtime_options, hang_seconds) == 48);
SAME(vulkan_device, sizeof(etr_vulkan_device) == 80 &&
                        offsetof(etr_vulkan_device, instance) == 16 &&
                        offsetof(etr_vulkan_device, lock) == 56);
SAME(tensor, sizeof(etr_tensor) == 96 && offsetof(etr_tensor, data) == 80);
SAME(vulkan_buffer, sizeof(etr_vulkan_buffer) == 96 && offsetof(etr_vulkan_buffer, buffer) == 80);
SAME(batch_info, sizeof(etr_batch_info) == 56 && offsetof(etr_batch_info, ordinal) == 24 &&
                     offsetof(etr_batch_info, mean_age) == 48);
SAME(step_result, sizeof(etr_step_result) == 40 && offsetof(etr_step_result, loss) == 16);
SAME(eval_result, sizeof(etr_eval_result) == 32 && offsetof(etr_eval_result, loss) == 16);
SAME(event, sizeof(etr_event) == 136 && offsetof(etr_event, loss) == 40);

SAME(status, ETR_OK == 0 && ETR_END == 1 && ETR_INVALID_ARGUMENT == -1 && ETR_NOT_FOUND == -2 &&
                 ETR_IO == -3 && ETR_CORRUPT_DATA == -4 && ETR_OUT_OF_MEMORY == -5 &&
                 ETR_NO_DEVICE == -6 && ETR_DEVICE == -7 && ETR_DEVICE_LOST == -8 &&
                 ETR_CANCELLED == -9 && ETR_STATE == -10 && ETR_UNSUPPORTED == -11 &&
                 ETR_INTERNAL == -12 && ETR_CALLBACK == -13 && ETR_NOT_FINITE == -14 &&
                 ETR_RANK_LOST == -15);
SAME(dtypes, ETR_U8 == 0 && ETR_I32 == 1 && ETR_F32 == 2 && ETR_U16 == 3 && ETR_MAX_RANK == 8);
SAME(kernels, ETR_KERNELS_AUTOMATIC == 0 && ETR_KERNELS_CPU == 1 && ETR_KERNELS_TILED == 2);
SAME(events, ETR_EVENT_PROGRESS == 0 && ETR_EVENT_EVALUATION == 1 && ETR_EVENT_CHECKPOINT == 2 &&
                 ETR_EVENT_END == 3);
SAME(devices, ETR_DEVICE_DISCRETE == 0 && ETR_DEVICE_INTEGRATED == 1 && ETR_DEVICE_VIRTUAL == 2 &&
                  ETR_DEVICE_CPU == 3 && ETR_DEVICE_OTHER == 4);
SAME(levels, ETR_LOG_DEBUG == 0 && ETR_LOG_INFO == 1 && ETR_LOG_WARNING == 2 && ETR_LOG_ERROR == 3);
SAME(engine, sizeof(etr_engine) == 120 && offsetof(etr_engine, allocate) == 104 &&
                 offsetof(etr_engine, context) == 16 && offsetof(etr_engine, all_reduce) == 24 &&
                 offsetof(etr_engine, destroy) == 96);
SAME(engine_error, sizeof(etr_engine_error) == 1288 && offsetof(etr_engine_error, message) == 264);
SAME(engine_numbers, ETR_NUMBER_F32 == 0 && ETR_NUMBER_F64 == 1 && ETR_NUMBER_I32 == 2 &&
                         ETR_NUMBER_I64 == 3 && ETR_NUMBER_F16 == 4 && ETR_NUMBER_BF16 == 5 &&
                         ETR_REDUCE_SUM == 0 && ETR_REDUCE_MIN == 1 &&
                         ETR_REDUCE_MAX == 2);
