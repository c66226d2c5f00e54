#include "pipeline/shared_cache.h"

#include <utility>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "pipeline/cache_upstream.h"
#include "pipeline/sample_bytes.h"

namespace etr::pipeline {
namespace {

constexpr int kFormat = 1;

std::string key_of(const Item& item) { return item.origin ? item.origin->key : ""; }

}  // namespace

SharedCache::SharedCache(std::string folder, int64_t limit_bytes, std::string version)
    : identity_{std::move(folder), ""},
      limit_bytes_(static_cast<uint64_t>(limit_bytes)),
      version_(std::move(version)) {}

void SharedCache::check_stages(const Json& stages) const {
  if (version_.empty() && calls_functions(stages))
    fail(Code::invalid_argument,
         "the cache stands after 'map', and a shared one is found again by later runs, whose "
         "function may be another: give the cache a 'version', and change it with the function");
}

void SharedCache::open(const Json& upstream) {
  Json what = upstream;
  what["format"] = kFormat;
  what["library"] = ECHOTRAIN_VERSION;
  what["version"] = version_;
  identity_.upstream = claim_cache_folder(identity_.folder, what);
  opened_ = true;
  refresh();
  const std::scoped_lock lock(mutex_);
  log_line(LogLevel::info, cat("the shared cache '", identity_.folder, "' has ",
                               counted(static_cast<int64_t>(held_.size()), "sample")));
}

std::optional<SharedCache::Held> SharedCache::find(uint64_t record) const {
  const std::scoped_lock lock(mutex_);
  const auto it = held_.find(record);
  return it == held_.end() ? std::nullopt : std::optional(it->second);
}

// Like find(), but also reads the entries that other processes have added since.
std::optional<SharedCache::Held> SharedCache::find_anew(uint64_t record, uint64_t stamp) {
  auto held = find(record);
  if (held && held->entry.stamp == stamp) return held;
  refresh();
  held = find(record);
  return held && held->entry.stamp == stamp ? held : std::nullopt;
}

// Verifies the checksum before it returns true, because the source then does not read the record.
bool SharedCache::has(uint64_t record, uint64_t stamp) {
  if (!opened_) return false;
  const auto held = find_anew(record, stamp);
  if (!held || held->checked) return held.has_value();
  if (!is_good(*held)) return false;
  const std::scoped_lock lock(mutex_);
  const auto it = held_.find(record);
  if (it == held_.end() || it->second.entry.place != held->entry.place) return false;
  return it->second.checked = true;
}

bool SharedCache::is_good(const Held& held) try {
  Item unused;
  unused.record = held.entry.record;
  read_sample(held.entry, unused);
  return true;
} catch (const Error& error) {
  withdraw(held.entry, error.what());
  return false;
}

void SharedCache::refresh() {
  const std::scoped_lock lock(refresh_mutex_);
  while (open_part(next_part_)) ++next_part_;
  for (const auto& [number, part] : parts_)
    if (part) part->read_entries([this](const CacheEntry& entry) { take(entry); });
}

// Requires refresh_mutex_; parts are added only here. Returns false if the part does not exist yet.
bool SharedCache::open_part(uint32_t number) {
  if (parts_.contains(number)) return true;
  std::shared_ptr<CachePart> part;
  try {
    part = CachePart::open(identity_, number);
    if (!part) return false;
  } catch (const Error& error) {
    log_line(LogLevel::warning, cat("a part of the shared cache is not used: ", error.what()));
  }
  const std::scoped_lock lock(mutex_);
  parts_.emplace(number, std::move(part));
  return true;
}

// If a record has two entries, the first wins, unless the record's file was changed in between.
void SharedCache::take(const CacheEntry& entry) {
  const std::scoped_lock lock(mutex_);
  const auto it = held_.find(entry.record);
  if (entry.bytes == 0) {
    withdrawn_.insert(entry.place);
    if (it != held_.end() && it->second.entry.place == entry.place) held_.erase(it);
    return;
  }
  if (withdrawn_.contains(entry.place)) return;
  if (it == held_.end())
    held_.emplace(entry.record, Held{entry});
  else if (it->second.entry.stamp != entry.stamp)
    it->second = Held{entry};
}

std::shared_ptr<CachePart> SharedCache::part(uint32_t number) const {
  const std::scoped_lock lock(mutex_);
  const auto it = parts_.find(number);
  if (it == parts_.end() || !it->second)
    fail(Code::internal, "part ", number, " of the shared cache is gone");
  return it->second;
}

void SharedCache::read_sample(const CacheEntry& entry, Item& item) const {
  const auto from = part(entry.place.part);
  const auto damaged = [&](const auto& why) {
    fail(Code::corrupt_data, "'", from->data_path(), "', byte ", entry.offset,
         ": the sample of record ", entry.record, " is damaged: ", why);
  };
  if (entry.head_bytes > entry.bytes || entry.bytes > from->data_bytes())
    damaged("the file is shorter than the sample");
  std::vector<std::byte> head(entry.head_bytes);
  from->read(entry.offset, head);
  uint64_t at = entry.offset + head.size();
  uint32_t crc = crc32c(head);
  try {
    read_sample_head(head, entry.bytes - head.size(), item);
  } catch (const Error& error) {
    damaged(error.what());
  }
  for (Field& field : item.fields) {
    const std::span<std::byte> bytes(static_cast<std::byte*>(field.tensor.mutable_data()),
                                     field.tensor.size_bytes());
    from->read(at, bytes);
    at += bytes.size();
    crc = crc32c(bytes, crc);
  }
  if (crc != entry.crc) damaged("its checksum does not match");
}

void SharedCache::load(Item& item) {
  const auto held = find(*item.record);
  if (!held)
    fail(Code::corrupt_data, "the shared cache '", identity_.folder, "' has lost record ",
         *item.record, " since it was found there; the next run makes it again");
  try {
    read_sample(held->entry, item);
  } catch (const Error& error) {
    withdraw(held->entry, error.what());
    fail(error.code(), "the shared cache '", identity_.folder,
         "' was damaged while it was used: ", error.what(),
         "; the sample is made again when it is wanted next");
  }
}

bool SharedCache::store(const Item& item) {
  if (!opened_ || !writes_ || find_anew(*item.record, item.stamp)) return false;
  try {
    return write(item);
  } catch (const Error& error) {
    stop_writing(error.what());
    return false;
  }
}

bool SharedCache::write(const Item& item) {
  const std::vector<std::byte> head = sample_head(item);
  CacheEntry entry;
  entry.record = *item.record;
  entry.stamp = item.stamp;
  entry.bytes = head.size();
  entry.head_bytes = static_cast<uint32_t>(head.size());
  entry.crc = crc32c(head);
  for (const Field& field : item.fields) {
    entry.bytes += field.tensor.size_bytes();
    entry.crc = crc32c(field.tensor.bytes(), entry.crc);
  }
  const auto offset = reserve(entry.bytes);
  if (!offset) return false;
  entry.offset = *offset;
  writer_->write(*offset, head);
  uint64_t at = *offset + head.size();
  for (const Field& field : item.fields) {
    writer_->write(at, field.tensor.bytes());
    at += field.tensor.size_bytes();
  }
  if (const auto stale = find(*item.record); stale && stale->entry.stamp != item.stamp)
    withdraw(stale->entry, cat("the file of '", key_of(item), "' has been changed"));
  writer_->add(entry);
  take(entry);
  const std::scoped_lock lock(mutex_);
  if (const auto it = held_.find(entry.record);
      it != held_.end() && it->second.entry.place == entry.place)
    it->second.checked = true;
  return true;
}

bool SharedCache::fits(uint64_t more) const {
  const auto bytes = cached_bytes(identity_.folder);
  if (!bytes) fail(Code::io, "cannot list '", identity_.folder, "'");
  return *bytes + more <= limit_bytes_;
}

// Reserves space for `bytes`. The file grows before the total is computed, so that of two processes
// that take the last space concurrently at least one sees the other.
std::optional<uint64_t> SharedCache::reserve(uint64_t bytes) {
  const std::scoped_lock lock(writer_mutex_);
  if (told_full_ && !fits(bytes)) return std::nullopt;
  CacheWriter& to = writer();
  const uint64_t offset = to.end();
  to.resize(offset + bytes);
  if (fits(0)) return offset;
  to.resize(offset);
  if (!told_full_.exchange(true))
    log_line(LogLevel::info, cat("the shared cache '", identity_.folder, "' is full (",
                                 limit_bytes_, " bytes): further samples are prepared each time"));
  return std::nullopt;
}

// Requires writer_mutex_.
CacheWriter& SharedCache::writer() {
  if (writer_) return *writer_;
  auto made = std::make_unique<CacheWriter>(identity_);
  const std::scoped_lock lock(refresh_mutex_);
  if (!open_part(made->part()) || !parts_.at(made->part()))
    fail(Code::io, "part ", made->part(), " of it cannot be read");
  writer_ = std::move(made);
  return *writer_;
}

// Withdraws the entry here, and for other processes if the withdrawal can be written.
void SharedCache::withdraw(const CacheEntry& entry, const std::string& why) {
  CacheEntry withdrawal;
  withdrawal.record = entry.record;
  withdrawal.place = entry.place;
  take(withdrawal);
  {
    const std::scoped_lock lock(mutex_);
    ++withdrawals_;
  }
  if (!told_withdrawal_.exchange(true))
    log_line(LogLevel::warning,
             cat("a sample of the shared cache '", identity_.folder, "' is made again: ", why,
                 ". Further ones are counted in the statistics ('withdrawn')"));
  if (!writes_) return;
  try {
    const std::scoped_lock lock(writer_mutex_);
    writer().add(withdrawal);
  } catch (const Error& error) {
    stop_writing(error.what());
  }
}

void SharedCache::stop_writing(const std::string& why) {
  if (!writes_.exchange(false)) return;
  log_line(LogLevel::warning, cat("the shared cache '", identity_.folder,
                                  "' takes no further samples of this process: ", why));
}

Json SharedCache::stats() const {
  Json out = SampleCache::stats();
  const uint64_t bytes = cached_bytes(identity_.folder).value_or(0);
  const std::scoped_lock lock(mutex_);
  out["samples"] = held_.size();
  out["bytes"] = bytes;
  out["withdrawn"] = withdrawals_;
  return out;
}

}  // namespace etr::pipeline
