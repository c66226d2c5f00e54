// Fields as DLPack tensors. The structs are those of DLPack's stable ABI before version 1, which
// NumPy, PyTorch, JAX and TensorFlow exchange in capsules named "dltensor".
#include "handles.h"

using namespace etr;
using namespace etr::capi;

namespace {

struct DLDevice {
  int32_t device_type;  // 1: CPU
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;  // 0 int, 1 unsigned int, 2 float
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; NULL: row-major without gaps
  uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

constexpr int32_t kCpu = 1;

constexpr DLDataType kTypes[] = {{1, 8, 1}, {0, 32, 1}, {2, 32, 1}, {1, 16, 1}};  // by DType

// An exported DLPack tensor with the memory that it keeps alive.
struct Export {
  DLManagedTensor managed{};
  Tensor tensor;
  int64_t shape[Shape::kMaxRank];
};

// Owns an imported tensor for the fields that share it.
struct Import {
  DLManagedTensor* taken = nullptr;
  ~Import() {
    if (taken && taken->deleter) taken->deleter(taken);
  }
};

DType dtype_of(DLDataType type) {
  for (int i = 0; i < static_cast<int>(std::size(kTypes)); ++i)
    if (type.code == kTypes[i].code && type.bits == kTypes[i].bits && type.lanes == 1)
      return static_cast<DType>(i);
  fail(Code::unsupported, "a DLPack tensor of type code ", int{type.code}, " with ", int{type.bits},
       " bits; take u8, u16, i32 or f32");
}

// Checks the rank and returns the shape. Must run before anything else reads the shape.
Shape dlpack_shape(const DLTensor& t, const char* field) {
  if (t.ndim < 0 || t.ndim > static_cast<int32_t>(Shape::kMaxRank) || (t.ndim > 0 && !t.shape))
    fail(Code::invalid_argument, "field '", field, "': a DLPack tensor of ", t.ndim,
         " axes; arrays have at most ", Shape::kMaxRank);
  return Shape(t.shape, t.shape + t.ndim);
}

bool row_major(const DLTensor& t) {
  if (!t.strides) return true;
  int64_t expected = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    if (t.shape[i] != 1 && t.strides[i] != expected) return false;
    expected *= t.shape[i];
  }
  return true;
}

}  // namespace

int32_t etr_batch_to_dlpack(const etr_batch* batch, const char* field, void** managed) {
  return guarded([&] {
    void*& out = required(managed, "managed");
    auto made = std::make_unique<Export>();
    made->tensor =
        pipeline::require_field(required(batch, "batch").item, &required(field, "field"));
    const Shape& shape = made->tensor.shape();
    std::copy(shape.begin(), shape.end(), made->shape);
    DLTensor& t = made->managed.dl_tensor;
    t.data = made->tensor.mutable_data();
    t.device = {kCpu, 0};
    t.ndim = static_cast<int32_t>(shape.size());
    t.dtype = kTypes[static_cast<int>(made->tensor.dtype())];
    t.shape = made->shape;
    made->managed.manager_ctx = made.get();
    made->managed.deleter = [](DLManagedTensor* self) {
      delete static_cast<Export*>(self->manager_ctx);
    };
    out = &made.release()->managed;
  });
}

int32_t etr_batch_set_dlpack(etr_batch* batch, const char* field, void* managed) {
  return guarded([&] {
    pipeline::Item& item = required(batch, "batch").item;
    field_name(field);
    auto* given = static_cast<DLManagedTensor*>(managed);
    const DLTensor& t = required(given, "managed").dl_tensor;
    if (t.device.device_type != kCpu)
      fail(Code::unsupported, "field '", field, "': the DLPack tensor lies on a device of type ",
           t.device.device_type, "; move it to the CPU first");
    const DType dtype = dtype_of(t.dtype);
    const Shape shape = dlpack_shape(t, field);
    const size_t size = size_of(dtype, shape);
    if (!row_major(t))
      fail(Code::unsupported, "field '", field,
           "': the DLPack tensor is not row-major without gaps; make it contiguous first");
    if (!t.data && size > 0)
      fail(Code::invalid_argument, "field '", field, "': the DLPack tensor has no data");
    const auto owner = std::make_shared<Import>();
    const auto* data = static_cast<const std::byte*>(t.data) + t.byte_offset;
    item.set(field, size > 0 ? Tensor(dtype, shape, {owner, data}) : Tensor(dtype, shape));
    owner->taken = given;  // last, because after an error it still belongs to the caller
  });
}
