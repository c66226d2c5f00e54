#include "pipeline/bad_records.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/json.h"
#include "core/log.h"
#include "core/message.h"
#include "core/platform_files.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/utf8.h"

namespace etr::pipeline {
namespace {

constexpr size_t kListed = 1000;
// The number of records that are distinguished. A further bad record counts each time it is met.
constexpr size_t kTold = 100'000;
constexpr int64_t kShareFrom = 100;  // the share refers to at least this many records

Json to_json(const BadRecord& r) {
  Json out{{"stage", r.stage}, {"shard", r.shard}, {"key", r.key}, {"reason", r.reason}};
  if (r.offset >= 0) out["offset"] = r.offset;
  return out;
}

std::string where_text(const BadRecord& r) {
  return as_message(cat("stage '", r.stage, "', shard '", r.shard, "', key '", r.key, "': ")) +
         r.reason;
}

void append(const std::string& path, const Json& row) {
  platform::OutputFile list(path, platform::OutputFile::Mode::append);
  list.write(row.dump() + "\n");
  list.close();
}

// Identifies a record across epochs: by its origin, or by its index if it has none.
std::string identity(const Item& item) {
  constexpr uint64_t kIndex = (uint64_t{1} << kPassShift) - 1;
  if (!item.origin) return cat("#", item.ordinal & kIndex);
  return cat(*item.origin->shard, '\n', item.origin->key, '\n', item.origin->offset);
}

// A hint for errors caused by the record itself; "" for other errors.
const char* remedy(Code code) {
  const bool of_the_record = code == Code::corrupt_data || code == Code::unsupported;
  return of_the_record ? " (to continue without bad records, set on_error to skip or quarantine)"
                       : "";
}

std::string short_hash(const std::string& text) { return to_hex(sha256(text)).substr(0, 12); }

// Makes `text` safe as part of a file name, at most `most` bytes. If that changes it, appends a
// hash of `whole` to keep names distinct.
std::string file_safe(const std::string& text, size_t most, const std::string& whole) {
  std::string out = text.substr(0, most);
  for (char& c : out)
    if (!is_letter_or_digit(c) && c != '.' && c != '-' && c != '_') c = '_';
  return out == text ? out : out + "-" + short_hash(whole);
}

}  // namespace

BadRecords::BadRecords(ErrorRules rules) : rules_(std::move(rules)) {
  if (uses(ErrorPolicy::quarantine) && rules_.directory.empty())
    fail(Code::invalid_argument, "pipeline: on_error 'quarantine' needs 'quarantine_dir'");
  if (!rules_.list.empty() && !platform::is_file_or_free(rules_.list))
    fail(Code::io, "pipeline: bad_records_file: '", rules_.list,
         "' is not a regular file: name a file that the run may write");
}

bool BadRecords::uses(ErrorPolicy policy) const {
  return rules_.policy == policy ||
         std::any_of(rules_.by_stage.begin(), rules_.by_stage.end(),
                     [&](const auto& row) { return row.second == policy; });
}

// Writes the record's current fields, each to its own file.
void BadRecords::quarantine(const Item& item, const BadRecord& record) {
  // With the hashes, far below the limit of 255 bytes per name.
  constexpr size_t kMostStem = 120, kMostField = 60;
  const std::filesystem::path directory(rules_.directory);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail(Code::io, "cannot create '", rules_.directory, "': ", error.message());
  const std::string whole = identity(item);
  const std::string name =
      item.origin ? std::filesystem::path(as_message(*item.origin->shard)).filename().string() +
                        "-" + item.origin->key
                  : whole;
  std::string stem = file_safe(name, kMostStem, whole);
  // Another folder has a file of the same name.
  if (!stems_.insert(stem).second) stem += "-" + short_hash(whole);
  Json files = Json::array();
  for (const Field& field : item.fields) {
    const std::string file = stem + "." + file_safe(field.name, kMostField, field.name);
    files.push_back(file);
    platform::OutputFile out((directory / file).string(), platform::OutputFile::Mode::replace);
    out.write(field.tensor.bytes());
    out.close();
  }
  Json row = to_json(record);
  if (!files.empty()) row["files"] = std::move(files);
  append((directory / "bad_records.jsonl").string(), row);
}

void BadRecords::count_read(int64_t records, uint64_t epoch) {
  std::scoped_lock lock(mutex_);
  tallies_[epoch].read += records;
}

// Counts a record for the earliest epoch that has met it.
BadRecords::Known& BadRecords::note(const Item& item, const BadRecord& record, uint64_t epoch) {
  ++times_;
  if (item.replica == 0) ++tallies_[epoch].times;  // copies were not read
  const std::string hash = short_hash(identity(item));
  if (const auto found = known_.find(hash); found != known_.end()) {
    Known& known = found->second;
    if (known.place < records_.size()) ++records_[known.place].times;
    if (epoch < known.epoch) {
      --tallies_[std::exchange(known.epoch, epoch)].records;
      ++tallies_[epoch].records;
    }
    return known;
  }
  ++count_;
  ++tallies_[epoch].records;
  const Known known{records_.size() < kListed ? records_.size() : kListed, epoch};
  if (records_.size() < kListed) records_.push_back({record, 1});
  if (known_.size() < kTold) return known_.emplace(hash, known).first->second;
  return untold_ = known;
}

// Returns the error if too many bad records were met in the epochs up to `epoch`, else nullptr.
std::shared_ptr<const Error> BadRecords::excess(uint64_t epoch) const {
  Tally sum = before_;
  for (auto it = tallies_.begin(); it != tallies_.end() && it->first <= epoch; ++it) {
    sum.records += it->second.records;
    sum.times += it->second.times;
    sum.read += it->second.read;
    if (it->second.latest) sum.latest = it->second.latest;
  }
  if (!sum.latest) return nullptr;
  const auto read = static_cast<double>(std::max(sum.read, kShareFrom));
  std::string why;
  if (sum.records > rules_.limit)
    why = cat("bad records: more than max_bad_records = ", rules_.limit);
  else if (static_cast<double>(sum.times) > rules_.share * read)
    why = cat(sum.times, " of ", sum.read,
              " records read are bad, more than max_bad_share = ", rules_.share);
  if (why.empty()) return nullptr;
  return std::make_shared<const Error>(sum.latest->code(), cat(sum.latest->what(), " (", why, ")"));
}

std::shared_ptr<const Error> BadRecords::too_many(uint64_t epoch) const {
  std::scoped_lock lock(mutex_);
  return excess(epoch);
}

// Called once for each tolerated record.
void BadRecords::list(ErrorPolicy policy, bool replaced, const std::string& where, const Item& item,
                      const BadRecord& record) {
  log_line(
      LogLevel::warning,
      (replaced ? "bad record, replaced by the good sample before it: " : "bad record dropped: ") +
          where,
      LogSubject::bad_record);
  if (!rules_.list.empty()) append(rules_.list, to_json(record));
  if (policy == ErrorPolicy::quarantine) quarantine(item, record);
}

bool BadRecords::handle(const std::string& stage, uint64_t position, const Item& item,
                        const Error& error, uint64_t epoch, bool may_replace) {
  if (error.code() == Code::cancelled) throw error;  // not the record's fault
  BadRecord record{stage, "", "", error.what()};
  if (item.origin) {
    record.shard = as_utf8(*item.origin->shard);
    record.key = as_utf8(item.origin->key);
    record.offset = item.origin->offset;
  }
  const std::string where = where_text(record);
  const auto rule = rules_.by_stage.find(position);
  const ErrorPolicy policy = rule == rules_.by_stage.end() ? rules_.policy : rule->second;
  std::scoped_lock lock(mutex_);
  Known& known = note(item, record, epoch);
  // Nor is a lack of memory, but where it was is worth knowing.
  if (policy == ErrorPolicy::fail || error.code() == Code::out_of_memory)
    throw Error(error.code(), where + remedy(error.code()));
  tallies_[epoch].latest = std::make_shared<const Error>(error.code(), where);
  if (const auto too_many = excess(epoch)) throw Error(*too_many);
  const bool replaced = policy == ErrorPolicy::substitute && may_replace;
  if (!std::exchange(known.listed, true)) list(policy, replaced, where, item, record);
  if (!replaced) drop(position, item, epoch);
  return replaced;
}

void BadRecords::note_drop(uint64_t position, const Item& item, uint64_t epoch) {
  std::scoped_lock lock(mutex_);
  drop(position, item, epoch);
}

void BadRecords::drop(uint64_t position, const Item& item, uint64_t epoch) {
  dropped_[epoch].push_back({position, item.ordinal, item.copy()});
}

int64_t BadRecords::count() const {
  std::scoped_lock lock(mutex_);
  return count_;
}

int64_t BadRecords::times() const {
  std::scoped_lock lock(mutex_);
  return times_;
}

std::string BadRecords::summary() const {
  std::scoped_lock lock(mutex_);
  if (records_.empty()) return "";
  return cat(counted(count_, "bad record was", "bad records were"),
             uses(ErrorPolicy::substitute) ? " met" : " dropped", ", the first by ",
             where_text(records_.front().record));
}

Json BadRecords::list() const {
  std::scoped_lock lock(mutex_);
  Json out = Json::array();
  for (const Listed& listed : records_) {
    out.push_back(to_json(listed.record));
    out.back()["occurrences"] = listed.times;
  }
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
  while (!tallies_.empty() && tallies_.begin()->first < epoch) {
    const Tally& left = tallies_.begin()->second;
    before_.records += left.records;
    before_.times += left.times;
    before_.read += left.read;
    tallies_.erase(tallies_.begin());
  }
}

}  // namespace etr::pipeline
