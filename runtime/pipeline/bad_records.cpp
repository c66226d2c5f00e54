#include "pipeline/bad_records.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "core/log.h"

namespace etr::pipeline {
namespace {

constexpr size_t kListed = 1000;

Json to_json(const BadRecord& r) {
  return {{"stage", r.stage}, {"shard", r.shard}, {"key", r.key}, {"reason", r.reason}};
}

std::string file_safe(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  return text;
}

}  // namespace

BadRecords::BadRecords(ErrorPolicy policy, int64_t limit, std::string directory)
    : policy_(policy), limit_(limit), directory_(std::move(directory)) {
  if (policy_ == ErrorPolicy::quarantine && directory_.empty())
    fail(Code::invalid_argument, "pipeline: on_error 'quarantine' needs 'quarantine_dir'");
}

void BadRecords::quarantine(const Item& item, const BadRecord& record) const {
  const std::filesystem::path directory(directory_);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail(Code::io, "cannot create '", directory_, "': ", error.message());
  const std::string stem =
      file_safe(std::filesystem::path(record.shard).filename().string() + "-" + record.key);
  for (const Field& field : item.fields) {
    std::ofstream out(directory / (stem + "." + file_safe(field.name)), std::ios::binary);
    const auto bytes = field.tensor.bytes();
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    if (!out) fail(Code::io, "cannot write to the quarantine directory '", directory_, "'");
  }
  std::ofstream list(directory / "bad_records.jsonl", std::ios::app);
  list << to_json(record).dump() << "\n";
  if (!list.flush()) fail(Code::io, "cannot write to the quarantine directory '", directory_, "'");
}

void BadRecords::handle(const std::string& stage, uint64_t position, const Item& item,
                        const Error& error, uint64_t epoch) {
  const BadRecord record{stage, item.origin ? *item.origin->shard : "",
                         item.origin ? item.origin->key : "", error.what()};
  const std::string where = cat("stage '", stage, "', shard '", record.shard, "', key '",
                                record.key, "': ", record.reason);
  std::scoped_lock lock(mutex_);
  ++count_;
  if (records_.size() < kListed) records_.push_back(record);
  if (policy_ == ErrorPolicy::fail) throw Error(error.code(), where);
  if (count_ > limit_)
    throw Error(error.code(),
                cat(where, " (more than max_bad_records = ", limit_, " records are bad)"));
  log_line(LogLevel::warning, "bad record dropped: " + where);
  dropped_[epoch].emplace_back(position, item.ordinal);
  if (policy_ == ErrorPolicy::quarantine) quarantine(item, record);
}

void BadRecords::note_drop(uint64_t position, uint64_t ordinal, uint64_t epoch) {
  std::scoped_lock lock(mutex_);
  dropped_[epoch].emplace_back(position, ordinal);
}

int64_t BadRecords::count() const {
  std::scoped_lock lock(mutex_);
  return count_;
}

Json BadRecords::list() const {
  std::scoped_lock lock(mutex_);
  Json out = Json::array();
  for (const BadRecord& record : records_) out.push_back(to_json(record));
  return out;
}

std::vector<Drop> BadRecords::dropped(uint64_t epoch) const {
  std::scoped_lock lock(mutex_);
  const auto it = dropped_.find(epoch);
  if (it == dropped_.end()) return {};
  std::vector<Drop> out = it->second;
  std::sort(out.begin(), out.end());
  return out;
}

void BadRecords::forget_before(uint64_t epoch) {
  std::scoped_lock lock(mutex_);
  dropped_.erase(dropped_.begin(), dropped_.lower_bound(epoch));
}

}  // namespace etr::pipeline
