#include "pipeline/sample_cache.h"

#include <utility>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"

namespace etr::pipeline {

void SampleCache::keep(const Item& item) {
  ++misses_;
  if (store(item)) ++kept_;
}

void SampleCache::recall(Item& item) {
  load(item);
  ++hits_;
}

Json SampleCache::stats() const {
  return {{"hits", hits_.load()}, {"misses", misses_.load()}, {"kept", kept_.load()}};
}

OwnCache::OwnCache(int64_t limit_bytes, const std::string& directory) : left_bytes_(limit_bytes) {
  if (!directory.empty()) file_ = std::make_unique<platform::ScratchFile>(directory);
}

bool OwnCache::has(uint64_t record, uint64_t) {
  std::scoped_lock lock(mutex_);
  const auto it = held_.find(record);
  return it != held_.end() && it->second != nullptr;
}

bool OwnCache::store(const Item& item) {
  const uint64_t record = *item.record;
  auto held = std::make_shared<Held>();
  held->origin = item.origin;
  {
    std::scoped_lock lock(mutex_);
    const auto bytes = static_cast<int64_t>(item.size_bytes());
    // An empty entry reserves the record's place while its file is written.
    if (bytes > left_bytes_ || !held_.try_emplace(record, nullptr).second) return false;
    left_bytes_ -= bytes;
    held->offset = file_end_;
    file_end_ += static_cast<uint64_t>(bytes);
  }
  uint64_t at = held->offset;
  for (const Field& field : item.fields) try {
      if (!file_) {
        // A field that views something larger, such as a decompressed block, would keep all of that
        // in memory.
        held->fields.push_back({field.name, field.tensor.compact()});
        continue;
      }
      file_->write(at, field.tensor.bytes());
      at += field.tensor.size_bytes();
      held->metas.push_back({field.name, field.tensor.dtype(), field.tensor.shape()});
    } catch (const Error& error) {  // the sample is good, and goes on
      give_up(record, error);
      return false;
    }
  std::scoped_lock lock(mutex_);
  held_[record] = std::move(held);
  return true;
}

void OwnCache::give_up(uint64_t record, const Error& error) {
  std::scoped_lock lock(mutex_);
  held_.erase(record);
  if (std::exchange(left_bytes_, 0) > 0)
    log_line(LogLevel::warning, cat("the cache keeps no more samples: ", error.what()));
}

void OwnCache::load(Item& item) {
  std::shared_ptr<const Held> held;
  {
    std::scoped_lock lock(mutex_);
    const auto it = held_.find(*item.record);
    if (it == held_.end() || !it->second) fail(Code::internal, "a cached sample is gone");
    held = it->second;
  }
  item.origin = held->origin;
  item.fields = held->fields;
  uint64_t at = held->offset;
  for (const Meta& meta : held->metas) {
    Tensor read(meta.dtype, meta.shape);
    file_->read(at, {static_cast<std::byte*>(read.mutable_data()), read.size_bytes()});
    at += read.size_bytes();
    item.fields.push_back({meta.name, std::move(read)});
  }
}

}  // namespace etr::pipeline
