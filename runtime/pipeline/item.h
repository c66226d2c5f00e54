// The items of a pipeline: samples, and batches of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/image_view.h"
#include "tensor/tensor.h"

namespace etr::pipeline {

// A sample's origin, named in every error about it.
struct Origin {
  std::shared_ptr<const std::string> shard;  // file or folder; shared between its samples
  std::string key;                           // the sample's name in the shard
  int64_t offset = -1;                       // in bytes of the uncompressed shard; -1: unknown
};

struct Field {
  std::string name;
  Tensor tensor;
};

// Contents outside host memory. Only the program and the consumer know what they mean. Destroyed
// when no longer needed.
class Opaque {
 public:
  virtual ~Opaque() = default;
  virtual const char* where() const = 0;  // the kind of memory, for errors
};

struct OpaqueField {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::shared_ptr<const Opaque> contents;
};

// How a batch was composed.
struct BatchInfo {
  int32_t size = 0;     // samples, without padding
  int32_t fresh = 0;    // of these, newly read from upstream
  int32_t echoed = 0;   // of these, repeated by an echo node, singly or with the batch
  int32_t unique = 0;   // of these, different samples
  double mean_age = 0;  // mean of Item::age
};

// Copying an Item shares its tensors. Stages replace fields and never write into them.
struct Item {
  // (pass << 40 | index): the sample's number in the epoch's source order. Seeds its random
  // numbers.
  uint64_t ordinal = 0;
  uint32_t replica = 0;  // 0: fresh; n: its n-th echo
  // For a batch: its number among the batches that its stage made in the epoch. Two batches may
  // have the same ordinal, because they begin with copies of one sample.
  uint32_t batch_number = 0;
  int64_t age = 0;  // fresh samples that echo nodes received after this one
  // While a position is restored, samples that are not needed again travel without payload.
  bool ghost = false;
  bool dropped = false;    // set by a map stage to drop the sample
  bool overtakes = false;  // may precede samples that come earlier in order; see stage `overtake`
  bool missing = false;    // bad; to be replaced by the last good sample before it
  // The source's number of the record, the same in every epoch, if records are numbered.
  std::optional<uint64_t> record;
  uint64_t stamp = 0;   // see Source::stamp(); only with a shared cache
  bool cached = false;  // a cache downstream has this sample, so it travels there without payload
  std::shared_ptr<const Origin> origin;
  std::vector<Field> fields;
  // If the consumer performs the last image operations (echo with 'device'): those operations, one
  // view for a sample, one per sample for a batch. There is no field "image" then.
  std::shared_ptr<const std::vector<ImageView>> views;
  // More fields, with other names than `fields`. Only in batches made by a program.
  std::vector<OpaqueField> opaque;
  BatchInfo batch;              // size == 0: a single sample
  std::shared_ptr<void> token;  // only when restoring: alive while a stage holds this sample
  // Only when restoring, for a batch: its samples' ordinals and replicas.
  std::shared_ptr<const std::vector<std::pair<uint64_t, uint32_t>>> copies;

  // Together with the ordinal, identifies the item among all that a stage gets in an epoch.
  uint64_t copy() const { return uint64_t{batch_number} << 32 | replica; }

  const Tensor* find(std::string_view name) const {
    for (const Field& field : fields)
      if (field.name == name) return &field.tensor;
    return nullptr;
  }
  const OpaqueField* find_opaque(std::string_view name) const {
    for (const OpaqueField& field : opaque)
      if (field.name == name) return &field;
    return nullptr;
  }
  void set(OpaqueField field) {
    remove(field.name);
    opaque.push_back(std::move(field));
  }
  void set(const std::string& name, Tensor tensor) {
    if (!opaque.empty()) remove(name);
    for (Field& field : fields)
      if (field.name == name) {
        field.tensor = std::move(tensor);
        return;
      }
    fields.push_back({name, std::move(tensor)});
  }
  // Moves an existing field out, to be changed and put back with set(). Copies it if it is shared.
  Tensor take_writable(const std::string& name) {
    for (Field& field : fields)
      if (field.name == name) return std::move(field.tensor).writable();
    return {};
  }
  // Changes the view of a single sample, after unsharing it from the other replicas.
  template <typename Change>
  void change_view(const Change& change) {
    auto changed = std::make_shared<std::vector<ImageView>>(*views);
    change(changed->front());
    views = std::move(changed);
  }
  void remove(const std::string& name) {
    std::erase_if(fields, [&](const Field& field) { return field.name == name; });
    std::erase_if(opaque, [&](const OpaqueField& field) { return field.name == name; });
  }
  // Copies fields that are views of larger memory, to free the rest.
  void compact() {
    for (Field& field : fields) field.tensor = field.tensor.compact();
  }
  size_t size_bytes() const {
    size_t total = 0;
    for (const Field& field : fields) total += field.tensor.size_bytes();
    if (views)
      for (const ImageView& view : *views) total += view.image->size_bytes();
    return total;
  }
};

constexpr unsigned kPassShift = 40;

}  // namespace etr::pipeline
