/* Trains inside a program that uses Vulkan itself: on its device and queue, from its buffers,
 * without a copy to the host.
 *
 *   cc -std=c99 own_device.c $(pkg-config --cflags --libs echotrain) \
 *     -Wl,-rpath,$(pkg-config --variable=libdir echotrain) -lvulkan -o own_device
 *
 * vkCmdFillBuffer and vkCmdUpdateBuffer stand in for the program's own work: it makes points (x, y)
 * of two classes in one buffer and their labels in another, and later reads the model's output from
 * a third. */
#include <stdio.h>
#include <stdlib.h>
#include <vulkan/vulkan.h>

#include "echotrain/echotrain.h"

enum { ROWS = 64 };

static VkPhysicalDevice physical;
static VkDevice device;
static VkQueue queue;
static VkCommandPool pool;

static void check(int32_t status) {
  if (status >= 0) return;
  fprintf(stderr, "error: %s\n", etr_last_error());
  exit(1);
}

static void check_vulkan(VkResult result) {
  if (result == VK_SUCCESS) return;
  fprintf(stderr, "error: Vulkan says %d\n", (int)result);
  exit(1);
}

/* Takes the results of the steps that have ended, or with `wait` of all steps. Keeps the last. */
static void take_results(etr_trainer* trainer, int32_t wait, etr_step_result* last) {
  int32_t status;
  while ((status = etr_trainer_result(trainer, wait, last)) == ETR_OK) continue;
  check(status); /* the loss may not be finite */
}

/* Makes a device with one queue. Kernels for CPU devices need buffer addresses; GPUs do not. */
static VkInstance open_device(void) {
  const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                 .apiVersion = VK_API_VERSION_1_2};
  const VkInstanceCreateInfo instance_info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                              .pApplicationInfo = &app};
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue_info = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
      .queueCount = 1, /* family 0; a real program looks for one with compute */
      .pQueuePriorities = &priority};
  VkPhysicalDeviceVulkan12Features addresses = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
      .bufferDeviceAddress = VK_TRUE};
  const VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                              .pNext = &addresses,
                                              .features = {.shaderInt64 = VK_TRUE}};
  const VkDeviceCreateInfo device_info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                          .pNext = &features,
                                          .queueCreateInfoCount = 1,
                                          .pQueueCreateInfos = &queue_info};
  const VkCommandPoolCreateInfo pool_info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  VkInstance instance;
  uint32_t count = 1;
  check_vulkan(vkCreateInstance(&instance_info, NULL, &instance));
  vkEnumeratePhysicalDevices(instance, &count, &physical); /* the first */
  if (count == 0) fprintf(stderr, "error: no Vulkan device\n"), exit(1);
  check_vulkan(vkCreateDevice(physical, &device_info, NULL, &device));
  vkGetDeviceQueue(device, 0, 0, &queue);
  check_vulkan(vkCreateCommandPool(device, &pool_info, NULL, &pool));
  return instance;
}

typedef struct {
  VkBuffer buffer;
  VkDeviceMemory memory;
} Buffer;

/* Allocates host-visible memory, so that the program can check the result at its end. */
static Buffer make_buffer(VkDeviceSize size) {
  const VkBufferCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
      .size = size,
      .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  const VkMemoryPropertyFlags wanted =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  VkPhysicalDeviceMemoryProperties types;
  VkMemoryRequirements needs;
  VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
  Buffer out;
  check_vulkan(vkCreateBuffer(device, &info, NULL, &out.buffer));
  vkGetBufferMemoryRequirements(device, out.buffer, &needs);
  vkGetPhysicalDeviceMemoryProperties(physical, &types);
  memory.allocationSize = needs.size;
  while (!(needs.memoryTypeBits >> memory.memoryTypeIndex & 1) ||
         (types.memoryTypes[memory.memoryTypeIndex].propertyFlags & wanted) != wanted)
    ++memory.memoryTypeIndex;
  check_vulkan(vkAllocateMemory(device, &memory, NULL, &out.memory));
  check_vulkan(vkBindBufferMemory(device, out.buffer, out.memory, 0));
  return out;
}

static void free_buffer(Buffer b) {
  vkDestroyBuffer(device, b.buffer, NULL);
  vkFreeMemory(device, b.memory, NULL);
}

/* Submits the program's own work on the device, without a wait. It begins with a barrier, because
 * the last step may still read the buffers, and ends with the one that etr_batch_wrap_vulkan
 * requires. */
static void make_points(Buffer points, Buffer labels) {
  const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = pool,
                                            .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                            .commandBufferCount = 1};
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                   .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT};
  float xy[ROWS][2];
  int32_t label[ROWS];
  VkCommandBuffer commands;
  for (int i = 0; i < ROWS; ++i) {
    xy[i][0] = (float)rand() / RAND_MAX - 0.5f;
    xy[i][1] = (float)rand() / RAND_MAX - 0.5f;
    label[i] = xy[i][0] * xy[i][1] > 0; /* opposite quadrants: not linearly separable */
  }
  check_vulkan(vkAllocateCommandBuffers(device, &info, &commands));
  check_vulkan(vkBeginCommandBuffer(commands, &begin));
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0,
                       0, NULL, 0, NULL, 0, NULL);
  vkCmdUpdateBuffer(commands, points.buffer, 0, sizeof xy, xy);
  vkCmdUpdateBuffer(commands, labels.buffer, 0, sizeof label, label);
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0,
                       1, &barrier, 0, NULL, 0, NULL);
  check_vulkan(vkEndCommandBuffer(commands));
  const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &commands};
  check_vulkan(vkQueueSubmit(queue, 1, &submit, VK_NULL_HANDLE));
}

static etr_vulkan_buffer array(Buffer of, int32_t dtype, int32_t rank, int64_t columns) {
  etr_vulkan_buffer out = {.struct_size = sizeof out,
                           .dtype = dtype,
                           .rank = rank,
                           .shape = {ROWS, columns},
                           .buffer = of.buffer};
  return out;
}

int main(void) {
  const VkInstance instance = open_device();
  const etr_vulkan_device shared = {.struct_size = sizeof shared,
                                    .instance = instance,
                                    .physical_device = physical,
                                    .device = device,
                                    .queue = queue,
                                    .buffer_addresses = 1};
  etr_runtime* runtime;
  etr_model* model;
  etr_options* schedule;
  etr_optimizer* optimizer;
  etr_trainer* trainer;
  etr_step_result result = {.struct_size = sizeof result};
  check(etr_runtime_create_shared(&shared, NULL, &runtime));
  check(etr_model_create_from_json(
      "{\"inputs\": [\"point\"], \"layers\": [{\"layer\": \"dense\", \"units\": 32},"
      " {\"layer\": \"activation\", \"function\": \"tanh\"}, {\"layer\": \"dense\", \"units\": "
      "2}]}",
      &model));
  check(etr_options_create_from_json("{\"learning_rate\": 0.02}", &schedule));
  check(etr_optimizer_create("adam", NULL, schedule, &optimizer));
  check(etr_trainer_create(runtime, model, optimizer, 1, 0, &trainer));

  const Buffer points = make_buffer(ROWS * 2 * sizeof(float)),
               labels = make_buffer(ROWS * sizeof(int32_t)),
               logits = make_buffer(ROWS * 2 * sizeof(float));
  const etr_vulkan_buffer point = array(points, ETR_F32, 2, 2),
                          label = array(labels, ETR_I32, 1, 0),
                          answer = array(logits, ETR_F32, 2, 2);
  etr_batch* batch; /* one batch for all steps, since the buffers are the same */
  check(etr_batch_create(&batch));
  check(etr_batch_wrap_vulkan(batch, "point", &point, NULL, NULL));
  check(etr_batch_wrap_vulkan(batch, "label", &label, NULL, NULL));
  for (int step = 0; step < 300; ++step) {
    make_points(points, labels);
    check(etr_trainer_step(
        trainer, batch)); /* copies on the device, then trains; the queue keeps the order */
    take_results(trainer, 0, &result);
  }
  take_results(trainer, 1, &result);
  printf("step %llu loss %.4f\n", (unsigned long long)result.step, result.loss);

  make_points(points, labels); /* new points */
  check(etr_trainer_predict_vulkan(trainer, batch, &answer));
  void *said, *wanted;
  int right = 0;
  check_vulkan(vkMapMemory(device, logits.memory, 0, VK_WHOLE_SIZE, 0, &said));
  check_vulkan(vkMapMemory(device, labels.memory, 0, VK_WHOLE_SIZE, 0, &wanted));
  for (int i = 0; i < ROWS; ++i)
    right += (((float*)said)[2 * i + 1] > ((float*)said)[2 * i]) == ((int32_t*)wanted)[i];
  printf("%d of %d new points right\n", right, ROWS);

  etr_batch_destroy(batch);
  etr_trainer_destroy(trainer);
  etr_optimizer_destroy(optimizer);
  etr_options_destroy(schedule);
  etr_model_destroy(model);
  etr_runtime_destroy(runtime); /* before the device that it uses */
  free_buffer(points);
  free_buffer(labels);
  free_buffer(logits);
  vkDestroyCommandPool(device, pool, NULL);
  vkDestroyDevice(device, NULL);
  vkDestroyInstance(instance, NULL);
  return right < ROWS * 9 / 10;
}
