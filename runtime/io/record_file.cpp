#include "io/record_file.h"

#include <atomic>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/memory.h"
#include "io/remote_file.h"

namespace etr::io {
namespace {

namespace fs = std::filesystem;

// The maximum number of files kept open, as a process may have only about 1,000. Further files are
// opened for each record.
constexpr int kMostOpen = 256;
std::atomic<int> files_open{0};
std::atomic<uint64_t> bytes_kept{0};

bool keep(uint64_t bytes, uint64_t most) {
  uint64_t before = bytes_kept;
  do
    if (bytes > most || before > most - bytes) return false;
  while (!bytes_kept.compare_exchange_weak(before, before + bytes));
  return true;
}

}  // namespace

RecordFile::RecordFile(const std::string& path, const ReadOptions& options)
    : path_(path), interrupt_(options.interrupt) {
  require_sized(path);
  std::error_code unknown;  // ignored: opening reports the error
  const bool plain = !is_remote(path) && !is_compressed(path) && fs::is_regular_file(path, unknown);
  const uint64_t bytes = plain ? fs::file_size(path, unknown) : 0;
  const uint64_t most = options.budget_bytes > 0 ? options.budget_bytes / 16 : kMostKept;
  if (!plain || keep(bytes, most)) {
    try {
      whole_ = read_whole(path, options);
    } catch (...) {
      bytes_kept -= bytes;
      throw;
    }
    kept_ = bytes;
    size_ = whole_.size;
    return;
  }
  auto file = std::make_unique<platform::InputFile>(path, interrupt_);
  opened_ = file->state();
  size_ = opened_.bytes;
  if (++files_open <= kMostOpen)
    file_ = std::move(file);
  else
    --files_open;
}

RecordFile::~RecordFile() {
  if (file_) --files_open;
  bytes_kept -= kept_;
}

std::shared_ptr<const std::byte> RecordFile::read(uint64_t offset, size_t size) const {
  if (offset > size_ || size > size_ - offset)
    fail(Code::internal, "'", path_, "': bytes ", offset, " to ", offset, " + ", size,
         " lie outside of it");
  if (whole_.data) return {whole_.data, whole_.data.get() + offset};
  const auto bytes = allocate_bytes(size);
  if (file_)
    read_from(*file_, offset, {bytes.get(), size});
  else
    read_from(platform::InputFile(path_, interrupt_), offset, {bytes.get(), size});
  return bytes;
}

void RecordFile::read_from(const platform::InputFile& file, uint64_t offset,
                           std::span<std::byte> out) const {
  if (file.state() != opened_)
    fail(Code::io, "'", path_, "' was replaced or written to while it was read: it had ", size_,
         " bytes when it was opened and has ", file.size());
  file.read_at(offset, out);
  file.require_unchanged();
}

}  // namespace etr::io
