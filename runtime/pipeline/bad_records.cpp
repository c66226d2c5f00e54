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
constexpr int64_t kShareFrom = 100;  // records: a share of fewer says nothing

Json to_json(const BadRecord& r) {
  Json out{{"stage", r.stage}, {"shard", r.shard}, {"key", r.key}, {"reason", r.reason}};
  if (r.offset >= 0) out["offset"] = r.offset;
  return out;
}

void append(const std::filesystem::path& path, const BadRecord& record) {
  std::ofstream list(path, std::ios::app);
  list << to_json(record).dump() << "\n";
  if (!list.flush()) fail(Code::io, "cannot write the list of bad records, '", path.string(), "'");
}

std::string file_safe(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  return text;
}

}  // namespace

BadRecords::BadRecords(ErrorRules rules) : rules_(std::move(rules)) {
  if (uses(ErrorPolicy::quarantine) && rules_.directory.empty())
    fail(Code::invalid_argument, "pipeline: on_error 'quarantine' needs 'quarantine_dir'");
}

bool BadRecords::uses(ErrorPolicy policy) const {
  return rules_.policy == policy ||
         std::any_of(rules_.by_stage.begin(), rules_.by_stage.end(),
                     [&](const auto& row) { return row.second == policy; });
}

void BadRecords::quarantine(const Item& item, const BadRecord& record) const {
  const std::filesystem::path directory(rules_.directory);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail(Code::io, "cannot create '", rules_.directory, "': ", error.message());
  const std::string stem =
      file_safe(std::filesystem::path(record.shard).filename().string() + "-" + record.key);
  for (const Field& field : item.fields) {
    std::ofstream out(directory / (stem + "." + file_safe(field.name)), std::ios::binary);
    const auto bytes = field.tensor.bytes();
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    if (!out) fail(Code::io, "cannot write to the quarantine directory '", rules_.directory, "'");
  }
  append(directory / "bad_records.jsonl", record);
}

bool BadRecords::handle(const std::string& stage, uint64_t position, const Item& item,
                        const Error& error, uint64_t epoch) {
  BadRecord record{stage, "", "", error.what()};
  if (item.origin) {
    record.shard = *item.origin->shard;
    record.key = item.origin->key;
    record.offset = item.origin->offset;
  }
  const std::string where = cat("stage '", stage, "', shard '", record.shard, "', key '",
                                record.key, "': ", record.reason);
  const auto rule = rules_.by_stage.find(position);
  const ErrorPolicy policy = rule == rules_.by_stage.end() ? rules_.policy : rule->second;
  std::scoped_lock lock(mutex_);
  ++count_;
  if (records_.size() < kListed) records_.push_back(record);
  if (policy == ErrorPolicy::fail) throw Error(error.code(), where);
  if (count_ > rules_.limit)
    throw Error(error.code(),
                cat(where, " (bad records: more than max_bad_records = ", rules_.limit, ")"));
  const auto read = static_cast<double>(std::max(read_.load(), kShareFrom));
  if (static_cast<double>(count_) > rules_.share * read)
    throw Error(error.code(),
                cat(where, " (", count_, " of ", read_.load(),
                    " records are bad, more than max_bad_share = ", rules_.share, ")"));
  log_line(LogLevel::warning, "bad record dropped: " + where);
  if (!rules_.list.empty()) append(rules_.list, record);
  if (policy == ErrorPolicy::quarantine) quarantine(item, record);
  if (policy == ErrorPolicy::substitute) return true;
  dropped_[epoch].emplace_back(position, item.ordinal);
  return false;
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

void BadRecords::restore_dropped(uint64_t epoch, const std::vector<Drop>& drops) {
  std::scoped_lock lock(mutex_);
  dropped_[epoch] = drops;
}

void BadRecords::forget_before(uint64_t epoch) {
  std::scoped_lock lock(mutex_);
  dropped_.erase(dropped_.begin(), dropped_.lower_bound(epoch));
}

}  // namespace etr::pipeline
