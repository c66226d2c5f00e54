// What travels through a pipeline: samples, and batches of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/image_view.h"
#include "tensor/tensor.h"

namespace etr::pipeline {

// Where a sample came from; named in every error about it.
struct Origin {
  std::shared_ptr<const std::string> shard;  // file or folder; shared by its samples
  std::string key;                           // the sample's name in it
  int64_t offset = -1;                       // in bytes, of the (decompressed) shard; -1: not known
};

struct Field {
  std::string name;
  Tensor tensor;
};

// Contents that do not lie in host memory. What they are is between the program and the consumer that reads them; destroyed
// when nobody needs them any more.
class Opaque {
 public:
  virtual ~Opaque() = default;
  virtual const char* where() const = 0;  // what they lie in, for errors
};

struct OpaqueField {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::shared_ptr<const Opaque> contents;
};

// How a batch came about.
struct BatchInfo {
  int32_t size = 0;     // samples in it, padding not counted
  int32_t fresh = 0;    // of which read from upstream for it
  int32_t echoed = 0;   // of which repeated by an echo node, alone or with the batch
  int32_t unique = 0;   // different samples among them
  double mean_age = 0;  // of its samples, see Item::age
};

// Copying an Item shares its tensors; stages replace fields, they never write into them.
struct Item {
  // (pass << 40 | index): the sample's number in the epoch's source order. Keys its random numbers.
  uint64_t ordinal = 0;
  uint32_t replica = 0;  // 0: fresh; n: the n-th echo of it
  int64_t age = 0;       // fresh samples that echo nodes have received since they received this one
  // While a saved position is restored, samples that nobody needs again travel without payload.
  bool ghost = false;
  bool dropped = false;  // set by a map stage: the sample goes no further
  bool overtakes =
      false;  // it goes before samples that come before it in order; see the stage `overtake`
  bool missing = false;  // bad: the last good sample before it will stand in for it
  // The source's number of the record, the same in every epoch, where it has one.
  std::optional<uint64_t> record;
  uint64_t stamp = 0;   // see Source::stamp(); only where a shared cache is
  bool cached = false;  // a cache further on has this sample: it travels there without payload
  std::shared_ptr<const Origin> origin;
  std::vector<Field> fields;
  // Where the consumer takes the last steps of the images (echo with 'device'): what there is to do, for a
  // sample one, for a batch one each. There is no field "image" then.
  std::shared_ptr<const std::vector<ImageView>> views;
  // Beside `fields`, by other names; only in batches that a program made.
  std::vector<OpaqueField> opaque;
  BatchInfo batch;              // batch.size == 0: a single sample
  std::shared_ptr<void> token;  // restoring only: alive while a stage holds this sample
  // Restoring only: of a batch, its samples' ordinals and replicas.
  std::shared_ptr<const std::vector<std::pair<uint64_t, uint32_t>>> copies;

  const Tensor* find(const std::string& name) const {
    for (const Field& field : fields)
      if (field.name == name) return &field.tensor;
    return nullptr;
  }
  const OpaqueField* find_opaque(const std::string& name) const {
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
  // Moves a field that is there out, to be changed and put back with set(); a copy where it is
  // shared.
  Tensor take_writable(const std::string& name) {
    for (Field& field : fields)
      if (field.name == name) return std::move(field.tensor).writable();
    return {};
  }
  // The view of a single sample, to be changed: replicas share theirs until then.
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
  // Fields that are parts of something larger become memory of their own.
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
