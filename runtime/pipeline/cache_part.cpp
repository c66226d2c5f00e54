#include "pipeline/cache_part.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/log.h"
#include "core/platform_files.h"

namespace etr::pipeline {
namespace {

constexpr uint32_t kVersion = 1;
constexpr uint32_t kMostParts = 4096;

// File layout, little endian.
struct Header {
  std::array<char, 8> magic{'E', 'T', 'R', 'C', 'A', 'C', 'H', 'E'};
  uint32_t version = kVersion;
  uint32_t part = 0;
  std::array<char, 32> upstream{};
  std::array<char, 12> reserved{};
  uint32_t crc = 0;  // of the preceding members
};
static_assert(sizeof(Header) == 64);

struct Row {
  uint64_t record = 0, stamp = 0, offset = 0, bytes = 0;
  uint32_t head_bytes = 0, part = 0, sample_crc = 0;
  uint32_t crc = 0;  // of the preceding members
};
static_assert(sizeof(Row) == 48);

template <typename T>
uint32_t crc_of(const T& whole) {
  return crc32c(std::as_bytes(std::span(&whole, 1)).first(sizeof whole - sizeof whole.crc));
}

template <typename T>
std::span<std::byte> bytes_of(T& whole) {
  return std::as_writable_bytes(std::span(&whole, 1));
}

std::string path_of(const CacheIdentity& identity, uint32_t number, const char* ending) {
  return (std::filesystem::path(identity.folder) / cat("part-", number, ending)).string();
}

bool has_files(const CacheIdentity& identity, uint32_t number) {
  std::error_code ignored;
  const auto is_there = [&](const char* ending) {
    const auto status = std::filesystem::symlink_status(path_of(identity, number, ending), ignored);
    return std::filesystem::exists(status);
  };
  return is_there(".data") || is_there(".index");
}

Header header_of(const CacheIdentity& identity, uint32_t number) {
  Header header;
  header.part = number;
  std::copy_n(identity.upstream.begin(), header.upstream.size(), header.upstream.begin());
  header.crc = crc_of(header);
  return header;
}

// Returns false if the header is incomplete.
bool check_header(const platform::SharedFile& file, const Header& expected) {
  Header header;
  if (file.read(0, bytes_of(header)) < sizeof header) return false;
  if (std::memcmp(&header, &expected, sizeof header) == 0) return true;
  const bool ours = header.magic == expected.magic && header.crc == crc_of(header);
  fail(Code::corrupt_data, "'", file.path(), "' ",
       !ours                        ? "is not a part of a shared cache, or is damaged"
       : header.version != kVersion ? cat("has version ", header.version, "; this is ", kVersion)
       : header.upstream != expected.upstream ? "belongs to another cache"
                                              : "has another number");
}

// In a withdrawal, part and offset are the place of the withdrawn entry.
CacheEntry entry_of(const Row& row, uint64_t number) {
  CacheEntry entry;
  entry.record = row.record;
  entry.stamp = row.stamp;
  entry.place = {row.part, row.bytes ? number : row.offset};
  entry.offset = row.offset;
  entry.bytes = row.bytes;
  entry.head_bytes = row.head_bytes;
  entry.crc = row.sample_crc;
  return entry;
}

Row row_of(const CacheEntry& entry) {
  Row row;
  row.record = entry.record;
  row.stamp = entry.stamp;
  row.offset = entry.bytes ? entry.offset : entry.place.row;
  row.bytes = entry.bytes;
  row.head_bytes = entry.head_bytes;
  row.part = entry.place.part;
  row.sample_crc = entry.crc;
  row.crc = crc_of(row);
  return row;
}

}  // namespace

// Lists the folder instead of counting up: numbers may have gaps, because another process may still
// be creating the files of a lower part.
std::optional<uint64_t> cached_bytes(const std::string& folder) {
  uint64_t total = 0;
  std::error_code error, gone;
  for (const auto& entry : platform::list_folder(folder, error)) {
    if (!entry.name.ends_with(".data")) continue;
    const uint64_t size = std::filesystem::file_size(folder + "/" + entry.name, gone);
    if (!gone) total += size - std::min<uint64_t>(size, sizeof(Header));
  }
  return error ? std::nullopt : std::optional(total);
}

CachePart::CachePart(const std::string& index, const std::string& data, uint32_t number)
    : index_(index, platform::SharedFile::Mode::read),
      data_(data, platform::SharedFile::Mode::read),
      number_(number) {}

std::unique_ptr<CachePart> CachePart::open(const CacheIdentity& identity, uint32_t number) try {
  std::unique_ptr<CachePart> part(new CachePart(path_of(identity, number, ".index"),
                                                path_of(identity, number, ".data"), number));
  const Header expected = header_of(identity, number);
  return check_header(part->index_, expected) && check_header(part->data_, expected)
             ? std::move(part)
             : nullptr;
} catch (const Error& error) {
  if (error.code() == Code::not_found) return nullptr;
  throw;
}

void CachePart::read_entries(const std::function<void(const CacheEntry&)>& take) try {
  read_rows(take);
} catch (const Error& error) {
  note_damage(error.what());
}

// A row with a wrong checksum at the end may be incomplete; one before others is damaged.
void CachePart::read_rows(const std::function<void(const CacheEntry&)>& take) {
  const uint64_t size = index_.size();
  if (size < sizeof(Header) + sizeof(Row)) return;
  const uint64_t rows = (size - sizeof(Header)) / sizeof(Row);
  std::vector<Row> read(std::min<uint64_t>(rows - std::min(rows, next_), 4096));
  while (next_ < rows) {
    const size_t wanted = std::min<uint64_t>(read.size(), rows - next_);
    const size_t bytes = index_.read(sizeof(Header) + next_ * sizeof(Row),
                                     std::as_writable_bytes(std::span(read).first(wanted)));
    const size_t whole = bytes / sizeof(Row);
    for (size_t i = 0; i < whole; ++i) {
      const bool good =
          read[i].crc == crc_of(read[i]) && (read[i].bytes == 0 || read[i].part == number_);
      if (!good && next_ + 1 == rows) return;
      const uint64_t row = next_++;
      if (good)
        take(entry_of(read[i], row));
      else
        note_damage(cat("'", index_.path(), "', entry ", row, " does not match its checksum"));
    }
    if (whole == 0) return;  // the file was truncated
  }
}

void CachePart::note_damage(const std::string& why) {
  if (std::exchange(told_, true)) return;
  log_line(LogLevel::warning,
           cat("the shared cache has lost samples, which are prepared again: ", why));
}

void CachePart::read(uint64_t offset, std::span<std::byte> bytes) const {
  if (data_.read(offset, bytes) < bytes.size())
    fail(Code::corrupt_data, "'", data_.path(), "' ends at byte ", data_.size(),
         ", before the sample does");
}

CacheWriter::CacheWriter(const CacheIdentity& identity) {
  for (uint32_t number = 0; number < kMostParts; ++number)
    if (claim(identity, number)) return;
  fail(Code::io, "none of the ", kMostParts, " parts of the shared cache '", identity.folder,
       "' can be written");
}

// Returns nullptr if another process writes the part, or the files belong to another user or are
// not writable.
std::unique_ptr<platform::FileLock> CacheWriter::open_files(const CacheIdentity& identity,
                                                            uint32_t number, bool is_there) try {
  std::string holder;
  auto lock = platform::FileLock::take(path_of(identity, number, ".lock"), holder, true);
  if (!lock) return nullptr;
  using platform::SharedFile;
  data_.emplace(path_of(identity, number, ".data"), SharedFile::Mode::write);
  index_.emplace(path_of(identity, number, ".index"), SharedFile::Mode::write);
  return lock;
} catch (const Error& error) {
  if (!is_there || error.code() == Code::unsupported) throw;
  return nullptr;
}

// A killed writer may have left bytes beyond its last entry. An incomplete entry is overwritten;
// data without an entry is skipped.
bool CacheWriter::claim(const CacheIdentity& identity, uint32_t number) {
  const bool is_there = has_files(identity, number);
  auto lock = open_files(identity, number, is_there);
  if (!lock) return false;
  Header header = header_of(identity, number);
  try {
    if (!check_header(*data_, header)) data_->write(0, bytes_of(header));
    if (!check_header(*index_, header)) index_->write(0, bytes_of(header));
  } catch (const Error& error) {
    if (error.code() != Code::corrupt_data) throw;
    return false;
  }
  rows_ = (index_->size() - sizeof header) / sizeof(Row);
  end_ = data_->size();
  part_ = number;
  lock_ = std::move(lock);
  return true;
}

void CacheWriter::resize(uint64_t end) {
  data_->resize(end);
  end_ = end;
}

void CacheWriter::add(CacheEntry& entry) {
  const std::scoped_lock lock(mutex_);
  if (entry.bytes) entry.place = {part_, rows_};
  Row row = row_of(entry);
  index_->write(sizeof(Header) + rows_ * sizeof(Row), bytes_of(row));
  ++rows_;
}

}  // namespace etr::pipeline
