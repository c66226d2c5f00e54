#include "train/program_buffer.h"

#include <utility>

#include "core/error.h"

namespace etr::train {
namespace {

class ProgramBuffer final : public pipeline::Opaque {
 public:
  ProgramBuffer(const gpu::Buffer& range, std::shared_ptr<void> owner)
      : range_(range), owner_(std::move(owner)) {}
  const char* where() const override { return "a Vulkan buffer"; }
  const gpu::Buffer& range() const { return range_; }
  const std::shared_ptr<void>& owner() const { return owner_; }

 private:
  gpu::Buffer range_;
  std::shared_ptr<void> owner_;
};

const ProgramBuffer& contents_of(const pipeline::OpaqueField& field) {
  const auto* contents = dynamic_cast<const ProgramBuffer*>(field.contents.get());
  if (!contents)
    fail(Code::unsupported, "field '", field.name, "' lies in ", field.contents->where(),
         ", which trainers do not read");
  return *contents;
}

}  // namespace

pipeline::OpaqueField field_in_buffer(const std::string& name, DType dtype, const Shape& shape,
                                      void* buffer, uint64_t offset, std::shared_ptr<void> owner) {
  gpu::Buffer range;
  range.handle = static_cast<VkBuffer_T*>(buffer);
  range.offset = offset;
  range.size_bytes = static_cast<uint64_t>(element_count(shape)) * dtype_size(dtype);
  return {name, dtype, shape, std::make_shared<ProgramBuffer>(range, std::move(owner))};
}

const gpu::Buffer& buffer_of(const pipeline::OpaqueField& field) {
  return contents_of(field).range();
}

pipeline::OpaqueField rows_of_buffer(const pipeline::OpaqueField& field, int64_t begin,
                                     int64_t count) {
  const ProgramBuffer& whole = contents_of(field);
  const uint64_t row = whole.range().size_bytes / static_cast<uint64_t>(field.shape[0]);
  pipeline::OpaqueField out = field;
  out.shape[0] = count;
  out.contents = std::make_shared<ProgramBuffer>(
      whole.range().slice(static_cast<uint64_t>(begin) * row, static_cast<uint64_t>(count) * row),
      whole.owner());
  return out;
}

}  // namespace etr::train
