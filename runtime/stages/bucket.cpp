// Groups samples of similar length, so that a following padded_batch pads little. Holds samples in
// buckets by length and releases a bucket when it has enough for a batch.
#include <algorithm>

#include "core/error.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"field", OptionType::string, nullptr, "field whose first axis is the length of the sample"},
    {"boundaries", OptionType::integers, nullptr,
     "increasing lengths at which a new bucket begins: [16, 32, 64] makes four buckets", 1, 1e12},
    {"size", OptionType::integer, nullptr,
     "samples released together; the size of the batch stage that follows", 1, 1 << 24, "samples"},
};

class Bucket final : public SerialStage {
 public:
  Bucket(const Options& options, const StageContext&)
      : field_(options.string("field")),
        boundaries_(options.integers("boundaries")),
        size_(static_cast<size_t>(options.integer("size"))),
        buckets_(boundaries_.size() + 1) {
    if (std::adjacent_find(boundaries_.begin(), boundaries_.end(), std::greater_equal<>()) !=
        boundaries_.end())
      fail(Code::invalid_argument, "bucket: 'boundaries' must rise from one to the next");
  }

  SerialTraits traits() const override { return {.depends_on_content = true}; }
  double holds_bytes(double item_bytes) const override {
    return item_bytes * static_cast<double>(size_ * buckets_.size());
  }

  void start_epoch(uint64_t) override {
    for (auto& bucket : buckets_) bucket.clear();
  }

  void process(Item&& item, Emitter& out) override {
    const Shape& shape = require_field(item, field_).shape();
    if (shape.empty())
      fail(Code::invalid_argument, "bucket: field '", field_,
           "' is a single value and has no length");
    const auto after = std::upper_bound(boundaries_.begin(), boundaries_.end(), shape[0]);
    auto& bucket = buckets_[static_cast<size_t>(after - boundaries_.begin())];
    bucket.push_back(std::move(item));
    if (bucket.size() == size_) release(bucket, out);
  }

  // Releases the rest from short to long, so that batches across buckets still have similar
  // lengths.
  void finish_pass(Emitter& out) override {
    for (auto& bucket : buckets_) release(bucket, out);
  }

 private:
  static void release(std::vector<Item>& bucket, Emitter& out) {
    for (Item& item : bucket) out.emit(std::move(item));
    bucket.clear();
  }

  const std::string field_;
  const std::vector<int64_t> boundaries_;
  const size_t size_;
  std::vector<std::vector<Item>> buckets_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec bucket_stage;
const StageSpec bucket_stage{"bucket", "gathers samples of similar length for padded batches",
                             StageKind::serial, stages::kOptions, make_stage<stages::Bucket>};

}  // namespace etr::pipeline
