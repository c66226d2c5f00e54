#include "train/batch_fields.h"

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "core/text.h"
#include "pipeline/stage.h"
#include "train/program_buffer.h"

namespace etr::train {
namespace {

bool is_deferred(const pipeline::Item& batch, const std::string& name) {
  return batch.find(name + "_scale") && batch.find(name + "_shift");
}

bool is_viewed(const pipeline::Item& batch, const std::string& name) {
  return batch.views && name == kImage;
}

void check_deferred(const pipeline::Item& batch, const std::string& name, int64_t channels) {
  for (const std::string& part : {name + "_scale", name + "_shift"}) {
    const Tensor& of = *batch.find(part);
    const bool fits = of.dtype() == DType::f32 && of.shape().size() == 1 &&
                      (of.count() == 1 || of.count() == channels) &&
                      of.count() == batch.find(name + "_scale")->count();
    if (!fits)
      fail(Code::invalid_argument, "field '", part, "' is ", dtype_name(of.dtype()), " ",
           shape_text(of.shape()), "; images of ", counted(channels, "channel"),
           " take f32 [1] or f32 [", channels, "]");
  }
}

void check_views(const pipeline::Item& batch, const graph::Value& value) {
  const pipeline::ImageView& view = batch.views->front();
  const Shape shape{value.shape[0], view.height, view.width, view.image->shape()[2]};
  if (!is_deferred(batch, value.name))
    fail(Code::invalid_argument,
         "the images are bytes: put a normalize stage after batch, for echo with 'device' too");
  if (shape != value.shape)
    fail(Code::invalid_argument, "field '", value.name, "' is ",
         counted(batch.views->size(), "image"), " of ", view.height, " x ", view.width,
         "; this model works on f32 ", batch_text({value.shape.begin() + 1, value.shape.end()}));
  check_deferred(batch, value.name, value.shape.back());
}

// A field's type and shape, wherever the field lies.
struct Kind {
  DType dtype;
  Shape shape;
};

Kind kind_of(const pipeline::Item& batch, const std::string& name) {
  if (const pipeline::OpaqueField* field = batch.find_opaque(name))
    return {field->dtype, field->shape};
  const Tensor& tensor = pipeline::require_field(batch, name);
  return {tensor.dtype(), tensor.shape()};
}

nn::Fields fields_of(const pipeline::Item& batch, const std::vector<std::string>& names) {
  nn::Fields fields;
  for (const std::string& name : names) {
    if (is_viewed(batch, name)) {
      const pipeline::ImageView& view = batch.views->front();
      fields[name] = {DType::f32, {view.height, view.width, view.image->shape()[2]}};
      continue;
    }
    const auto [dtype, shape] = kind_of(batch, name);
    if (shape.empty() || (dtype == DType::f32 && shape.size() < 2))
      fail(Code::invalid_argument, "field '", name, "' is ", shape_text(shape),
           "; training takes batches [N, ...]: end the pipeline with a batch stage");
    if (shape[0] == 0)
      fail(Code::invalid_argument, "field '", name, "' is ", dtype_name(dtype), " ",
           shape_text(shape), ": the batch is empty");
    if (std::find(shape.begin(), shape.end(), 0) != shape.end())
      fail(Code::invalid_argument, "field '", name, "' is ", dtype_name(dtype), " ",
           shape_text(shape), ": its samples have no elements");
    if (dtype == DType::u16)
      fail(Code::invalid_argument, "field '", name, "' is u16 ", shape_text(shape),
           "; models work on f32: put a normalize or cast stage in the pipeline");
    fields[name] = {dtype == DType::u8 ? DType::f32 : dtype, Shape(shape.begin() + 1, shape.end())};
  }
  return fields;
}

void check_field(const pipeline::Item& batch, const graph::Value& value, const nn::ModelGraph& net,
                 bool classifies, int64_t rows) {
  if (is_viewed(batch, value.name)) return check_views(batch, value);
  const bool in_buffer = batch.find_opaque(value.name);
  const bool deferred = value.dtype == DType::f32 && !in_buffer && is_deferred(batch, value.name);
  const DType wanted = deferred ? DType::u8 : value.dtype;
  const auto [dtype, given] = kind_of(batch, value.name);
  Shape shape = value.shape;
  shape[0] = given.empty() ? 0 : given[0];
  if (dtype != wanted || given != shape) {
    const bool is_target = net.target >= 0 && value.name == net.graph.value(net.target).name;
    const char* hint = "";
    if (!is_target && wanted == DType::f32 && (dtype == DType::u8 || dtype == DType::u16))
      hint = in_buffer ? " (convert it to float first)"
                       : " (put a normalize stage in the pipeline; in a batch of your own do what "
                         "it does: (x / 255 - mean) / std)";
    else if (is_target && !classifies)
      hint = " (set one_hot in the label stage)";
    fail(Code::invalid_argument, "field '", value.name, "' is ", dtype_name(dtype), " ",
         shape_text(given), "; this model works on ", dtype_name(wanted), " ",
         batch_text({value.shape.begin() + 1, value.shape.end()}), hint);
  }
  if (given[0] != rows)
    fail(Code::invalid_argument, "field '", value.name, "' is ", dtype_name(dtype), " ",
         shape_text(given), " in a batch of ", rows, " samples, by its other fields");
  if (deferred) check_deferred(batch, value.name, value.shape.back());
}

}  // namespace

Place place_of(const pipeline::Item& batch, const std::string& name) {
  if (is_viewed(batch, name)) return Place::views;
  if (batch.find_opaque(name)) return Place::buffer;
  const Tensor* field = batch.find(name);
  return field && field->dtype() == DType::u8 && is_deferred(batch, name) ? Place::bytes
                                                                          : Place::host;
}

Seen look_at(const pipeline::Item& batch, const nn::Model& model) {
  return {fields_of(batch, model.inputs()), rows_of(batch, model.inputs()[0])};
}

std::string batch_text(const Shape& sample) {
  return sample.empty() ? "[N]" : "[N, " + shape_text(sample).substr(1);
}

std::string fields_text(const nn::Fields& fields) {
  std::string out;
  for (const auto& [name, field] : fields)
    out += cat(out.empty() ? "" : ", ", name, " ", dtype_name(field.dtype), " ",
               shape_text(field.sample));
  return out;
}

int64_t rows_of(const pipeline::Item& batch, const std::string& name) {
  return is_viewed(batch, name) ? static_cast<int64_t>(batch.views->size())
                                : kind_of(batch, name).shape[0];
}

SampleCounts counts_of(const pipeline::Item& batch, const std::string& name) {
  const int64_t samples = rows_of(batch, name);
  if (batch.batch.size == 0) return {samples, samples, 0};
  return {samples, batch.batch.fresh, batch.batch.echoed};
}

int64_t fingerprint_of(const pipeline::Item& batch) {
  uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a
  const auto take = [&](std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001B3ull;
  };
  constexpr size_t kMost = 4096;  // bytes of each field
  for (const pipeline::Field& field : batch.fields) {
    const auto size = static_cast<size_t>(field.tensor.size_bytes());
    take(std::as_bytes(std::span(field.name)));
    take(std::as_bytes(std::span(&size, 1)));
    take({static_cast<const std::byte*>(field.tensor.data()), std::min(size, kMost)});
  }
  return static_cast<int64_t>(hash);
}

pipeline::Item part_of(const pipeline::Item& batch, const std::vector<std::string>& names,
                       int64_t begin, int64_t count) {
  pipeline::Item part = batch;
  const auto named = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto rows = [&](Shape shape) {
    shape[0] = count;
    return shape;
  };
  for (pipeline::Field& field : part.fields) {
    if (!named(field.name)) continue;
    const Tensor whole = field.tensor;
    const size_t row = whole.size_bytes() / static_cast<size_t>(whole.shape()[0]);
    const auto held = std::make_shared<const Tensor>(whole);
    const auto* data = whole.bytes().data() + static_cast<size_t>(begin) * row;
    field.tensor = Tensor(whole.dtype(), rows(whole.shape()), {held, data});
  }
  for (pipeline::OpaqueField& field : part.opaque)
    if (named(field.name)) field = rows_of_buffer(field, begin, count);
  if (batch.views && named(kImage))
    part.views = std::make_shared<std::vector<pipeline::ImageView>>(
        batch.views->begin() + begin, batch.views->begin() + begin + count);
  return part;
}

void check_fields(const pipeline::Item& batch, const nn::ModelGraph& net,
                  const std::vector<graph::ValueId>& values, const nn::Model& model,
                  const gpu::Device& device) {
  const int64_t rows = rows_of(batch, model.inputs()[0]);
  for (const graph::ValueId id : values) {
    const graph::Value& value = net.graph.value(id);
    check_field(batch, value, net, model.loss().classifies(), rows);
    if (batch.find_opaque(value.name) && !device.options().host)
      fail(Code::state, "field '", value.name,
           "' lies in a Vulkan buffer, but the trainer has a device of its own: make its runtime "
           "with etr_runtime_create_shared");
  }
}

}  // namespace etr::train
