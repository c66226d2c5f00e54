// Steps on batches.
#include <array>
#include <cmath>

#include "world.h"

namespace walk {
namespace {

// DLPack's structs before version 1, as far as they are needed.
struct DlTensor {
  void* data;
  int32_t device_type, device_id;  // 1: CPU
  int32_t rank;
  uint8_t type_code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
  void* context;
  void (*deleter)(DlTensor* self);
};

// Memory of the program behind a field.
struct Memory : UserData {
  std::array<float, 12> values{};
  int64_t shape[2] = {4, 3};
  DlTensor tensor{};
};

constexpr size_t kElementSize[] = {1, 4, 4, 2};

const std::string& long_name() {
  static const std::string name(1001, 'n');
  return name;
}

struct Name {
  const char* text;
  bool valid;
};

Name field_name(Walk& walk) {
  return walk.random.of<Name>({{"image", true},
                               {"image", true},
                               {"label", true},
                               {"output", true},
                               {"x", true},
                               {"", false},
                               {"a\x01", false},
                               {"\xff", false},
                               {long_name().c_str(), false},
                               {nullptr, false}});
}

// A name that the batch has, if there is one, or any other.
std::string some_field(Walk& walk, const Batch* batch) {
  if (batch && !batch->fields.empty() && !walk.random.one_in(4)) {
    auto field = batch->fields.begin();
    std::advance(field, static_cast<int64_t>(walk.random.below(batch->fields.size())));
    return field->first;
  }
  return walk.random.of<const char*>({"image", "label", "nowhere", ""});
}

std::string detail_of(const char* name) {
  if (!name) return "NULL";
  return std::string("\"") + (std::strlen(name) > 40 ? "a long name" : name) + "\"";
}

// An array as the program describes it, and whether the description is right.
struct Described {
  etr_tensor tensor{};
  bool valid = true;
  Field field;
};

Described describe(Walk& walk, const void* data, uint64_t bytes) {
  Described out;
  out.tensor.struct_size = sizeof out.tensor;
  out.tensor.dtype = static_cast<int32_t>(walk.random.below(4));
  out.tensor.rank = static_cast<int32_t>(walk.random.below(3));
  uint64_t size = kElementSize[out.tensor.dtype];
  for (int i = 0; i < out.tensor.rank; ++i) {
    out.tensor.shape[i] = walk.random.one_in(10) ? 0 : walk.random.between(1, 3);
    size *= static_cast<uint64_t>(out.tensor.shape[i]);
  }
  if (size > bytes) walk.trace.fail("an array of the walk is too small");
  out.tensor.data = data;
  out.tensor.size_bytes = size;
  out.field = {out.tensor.dtype, {out.tensor.shape, out.tensor.shape + out.tensor.rank}, false};
  out.valid = false;
  switch (walk.random.below(16)) {
    case 0: out.tensor.dtype = 4; break;
    case 1: out.tensor.rank = -1; break;
    case 2: out.tensor.rank = ETR_MAX_RANK + 1; break;
    case 3: out.tensor.size_bytes += 1; break;
    case 4: out.tensor.struct_size = 0; break;
    case 5:
      out.tensor.rank = 3;
      for (int i = 0; i < 3; ++i) out.tensor.shape[i] = int64_t{1} << 40;
      break;
    case 6:
      out.tensor.rank = 1;
      out.tensor.shape[0] = -1;
      break;
    case 7:
      out.tensor.data = nullptr;
      out.valid = size == 0;
      break;
    default: out.valid = true;
  }
  return out;
}

void create_batch(Walk& walk) {
  if (walk.random.one_in(2)) {
    rows_of(walk, walk.random.between(1, 5));
    return;
  }
  if (etr_batch* const made = walk.made<etr_batch>("etr_batch_create", "", kOk, etr_batch_create))
    walk.world->batches.add(walk.random, batch_of(walk, made));
}

void set_field(Walk& walk) {
  static const float values[16] = {1, 2, 3, 4};
  Batch* const record = walk.world->batches.any(walk.random);
  etr_batch* const batch = walk.handle(record);
  const Name name = field_name(walk);
  const Described given = describe(walk, values, sizeof values);
  const bool valid = name.valid && given.valid;
  Memory* const memory = walk.random.one_in(2) ? walk.keep(std::make_unique<Memory>()) : nullptr;
  const int32_t status = walk.call(
      memory ? "etr_batch_wrap" : "etr_batch_set", detail_of(name.text),
      valid ? Walk::needs(batch, kOk) : kInvalid, [&] {
        return memory ? etr_batch_wrap(batch, name.text, &given.tensor, UserData::destroy, memory)
                      : etr_batch_set(batch, name.text, &given.tensor);
      });
  if (status == ETR_OK) {
    record->fields[name.text] = given.field;
    return;
  }
  if (memory && memory->destroyed != 1)
    walk.trace.fail("etr_batch_wrap has failed and not released the memory");
}

void wrap_vulkan(Walk& walk) {
  Batch* const record = walk.world->batches.any(walk.random);
  etr_batch* const batch = walk.handle(record);
  const Name name = field_name(walk);
  etr_vulkan_buffer buffer{};
  buffer.struct_size = sizeof buffer;
  buffer.dtype = ETR_F32;
  buffer.rank = 2;
  buffer.shape[0] = 4;
  buffer.shape[1] = 6;
  static int no_buffer;
  buffer.buffer = &no_buffer;  // never looked at: no runtime of the walk shares a device
  const bool valid = !walk.random.one_in(3);
  if (!valid) walk.random.one_in(2) ? void(buffer.dtype = ETR_U8) : void(buffer.shape[0] = 0);
  Memory* const memory = walk.keep(std::make_unique<Memory>());
  const int32_t status = walk.call(
      "etr_batch_wrap_vulkan", detail_of(name.text),
      valid && name.valid ? Walk::needs(batch, kOk) : kInvalid,
      [&] { return etr_batch_wrap_vulkan(batch, name.text, &buffer, UserData::destroy, memory); });
  if (status == ETR_OK)
    record->fields[name.text] = {ETR_F32, {4, 6}, true};
  else if (memory->destroyed != 1)
    walk.trace.fail("etr_batch_wrap_vulkan has failed and not released the memory");
}

void get_field(Walk& walk) {
  Batch* const record = walk.world->batches.any(walk.random);
  etr_batch* const batch = walk.handle(record);
  const std::string name = some_field(walk, record);
  const auto* const field =
      batch && record->fields.contains(name) ? &record->fields[name] : nullptr;
  const Codes allowed = Walk::needs(batch, !field ? kNotFound : field->in_vulkan ? kState : kOk);
  if (walk.random.one_in(3)) {
    void* const tensor =
        walk.made<void>("etr_batch_to_dlpack", detail_of(name.c_str()), allowed,
                        [&](void** out) { return etr_batch_to_dlpack(batch, name.c_str(), out); });
    if (!tensor) return;
    walk.world->tensors.push_back(tensor);
    if (walk.world->tensors.size() <= 8) return;
    free_tensor(walk.world->tensors.front());
    walk.world->tensors.erase(walk.world->tensors.begin());
    return;
  }
  etr_tensor tensor{};
  if (!walk.filled<etr_tensor>(
          "etr_batch_get", detail_of(name.c_str()), allowed,
          [&](etr_tensor* out) { return etr_batch_get(batch, name.c_str(), out); }, &tensor))
    return;
  if (tensor.dtype != field->dtype || tensor.rank != static_cast<int32_t>(field->shape.size()))
    walk.trace.fail("etr_batch_get: the field '" + name + "' is not what was set");
  for (size_t i = 0; i < field->shape.size(); ++i)
    if (tensor.shape[i] != field->shape[i])
      walk.trace.fail("etr_batch_get: the shape of '" + name + "' is not what was set");
}

void look_at_batch(Walk& walk) {
  Batch* const record = walk.world->batches.any(walk.random);
  etr_batch* const batch = walk.handle(record);
  int32_t fields = 0;
  if (record)
    for (const auto& [name, field] : record->fields) fields += !field.in_vulkan;
  if (walk.random.one_in(2)) {
    etr_batch_info info{};
    if (walk.filled<etr_batch_info>(
            "etr_batch_get_info", "", Walk::needs(batch, kOk),
            [&](etr_batch_info* out) { return etr_batch_get_info(batch, out); }, &info) &&
        info.fields != fields)
      walk.trace.fail("etr_batch_get_info: " + std::to_string(info.fields) + " fields, not " +
                      std::to_string(fields));
    return;
  }
  const auto index = static_cast<int32_t>(walk.random.between(-1, fields));
  const char* const name = walk.made<const char>(
      "etr_batch_field_name", std::to_string(index),
      Walk::needs(batch, index >= 0 && index < fields ? kOk : kNotFound),
      [&](const char** out) { return etr_batch_field_name(batch, index, out); });
  if (name && !record->fields.contains(name))
    walk.trace.fail(std::string("etr_batch_field_name: '") + name + "' was not set");
}

void remove_field(Walk& walk) {
  Batch* const record = walk.world->batches.any(walk.random);
  etr_batch* const batch = walk.handle(record);
  const std::string name = some_field(walk, record);
  const bool has = record && record->fields.contains(name);
  if (walk.call("etr_batch_remove", detail_of(name.c_str()),
                Walk::needs(batch, has ? kOk : kNotFound),
                [&] { return etr_batch_remove(batch, name.c_str()); }) == ETR_OK)
    record->fields.erase(name);
}

// Outside of a function, too: the reason is then of no use.
void fail_batch(Walk& walk) {
  etr_batch* const batch = walk.handle(walk.world->batches.any(walk.random));
  const char* const reason = walk.random.of<const char*>({"mine", "", "\xff", nullptr});
  walk.call("etr_batch_fail", detail_of(reason), Walk::needs(batch, Walk::needs(reason, kOk)),
            [&] { return etr_batch_fail(batch, reason); });
}

void give_tensor(Walk& walk) {
  Batch* const record = walk.world->batches.any(walk.random);
  etr_batch* const batch = walk.handle(record);
  const Name name = field_name(walk);
  Memory* const memory = walk.keep(std::make_unique<Memory>());
  static int64_t strides[] = {1, 4};
  memory->tensor = {memory->values.data(),
                    1,
                    0,
                    2,
                    2,
                    32,
                    1,
                    memory->shape,
                    nullptr,
                    0,
                    memory,
                    [](DlTensor* self) { UserData::destroy(self->context); }};
  Codes allowed = kOk;
  switch (walk.random.below(12)) {
    case 0:
      memory->tensor.device_type = 2;
      allowed = kUnsupported;
      break;
    case 1:
      memory->tensor.bits = 64;
      allowed = kUnsupported;
      break;
    case 2:
      memory->tensor.strides = strides;
      allowed = kUnsupported;
      break;
    case 3:
      memory->tensor.rank = ETR_MAX_RANK + 1;
      allowed = kInvalid;
      break;
    case 4:
      memory->tensor.data = nullptr;
      allowed = kInvalid;
      break;
    case 5:
      memory->tensor.shape = nullptr;
      allowed = kInvalid;
      break;
    default: break;
  }
  if (!batch || !name.valid) allowed = Walk::failing(allowed);
  if (walk.call("etr_batch_set_dlpack", detail_of(name.text), allowed, [&] {
        return etr_batch_set_dlpack(batch, name.text, &memory->tensor);
      }) == ETR_OK) {
    record->fields[name.text] = {ETR_F32, {4, 3}, false};
    return;
  }
  if (memory->destroyed != 0)
    walk.trace.fail("etr_batch_set_dlpack has failed and released the tensor");
  memory->tensor.deleter(&memory->tensor);
}

void find_detections(Walk& walk) {
  Batch* const record = walk.world->batches.any(walk.random);
  etr_batch* const batch = walk.handle(record);
  const double share = walk.random.of({0.5, 0.0, 1.0, -0.5, 2.0, std::nan("")});
  const auto most = static_cast<int32_t>(walk.random.between(-1, 5));
  etr_batch* const made = walk.made<etr_batch>(
      "etr_detections", std::to_string(share) + ", " + std::to_string(most),
      Walk::needs(batch, kOk | kInvalid | kNotFound | kState),
      [&](etr_batch** out) { return etr_detections(batch, share, 0.5, most, out); });
  if (made) walk.world->batches.add(walk.random, batch_of(walk, made));
}

}  // namespace

void free_tensor(void* managed) {
  auto* const tensor = static_cast<DlTensor*>(managed);
  tensor->deleter(tensor);
}

std::unique_ptr<Batch> batch_of(Walk& walk, etr_batch* made) {
  auto out =
      std::unique_ptr<Batch>(new Batch{{walk, made, "etr_batch_destroy", etr_batch_destroy}});
  etr_batch_info info{};
  info.struct_size = sizeof info;
  if (etr_batch_get_info(made, &info) != ETR_OK) walk.trace.fail("a batch without info");
  for (int32_t i = 0; i < info.fields; ++i) {
    const char* name = nullptr;
    etr_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    if (etr_batch_field_name(made, i, &name) != ETR_OK ||
        etr_batch_get(made, name, &tensor) != ETR_OK)
      walk.trace.fail("a field that cannot be read");
    out->fields[name] = {tensor.dtype, {tensor.shape, tensor.shape + tensor.rank}, false};
  }
  return out;
}

void set_rows(Walk& walk, etr_batch* batch, int64_t rows, bool with_nan) {
  std::vector<float> image(static_cast<size_t>(rows) * 6);
  std::vector<int32_t> label(static_cast<size_t>(rows));
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i % 7) * 0.25f;
  for (size_t i = 0; i < label.size(); ++i) label[i] = static_cast<int32_t>(i % 2);
  if (with_nan) image[0] = std::nanf("");
  etr_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = ETR_F32;
  tensor.rank = 2;
  tensor.shape[0] = rows;
  tensor.shape[1] = 6;
  tensor.data = image.data();
  tensor.size_bytes = image.size() * sizeof(float);
  walk.call("etr_batch_set", "\"image\"", kOk,
            [&] { return etr_batch_set(batch, "image", &tensor); });
  tensor.dtype = ETR_I32;
  tensor.rank = 1;
  tensor.data = label.data();
  tensor.size_bytes = label.size() * sizeof(int32_t);
  walk.call("etr_batch_set", "\"label\"", kOk,
            [&] { return etr_batch_set(batch, "label", &tensor); });
}

Batch* rows_of(Walk& walk, int64_t rows) {
  etr_batch* made = nullptr;
  walk.call("etr_batch_create", "", kOk, [&] { return etr_batch_create(&made); });
  set_rows(walk, made, rows, false);
  return walk.world->batches.add(walk.random, batch_of(walk, made));
}

const std::vector<Step> kBatchSteps = {
    {25, create_batch}, {60, set_field},     {15, wrap_vulkan},
    {60, get_field},    {50, look_at_batch}, {25, remove_field},
    {15, fail_batch},   {25, give_tensor},   {10, find_detections}};

}  // namespace walk
