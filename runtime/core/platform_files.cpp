#include "core/platform_files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "core/platform.h"
#include "core/platform_calls.h"

namespace etr::platform {
namespace {

[[noreturn]] void fail_errno(const char* what, const std::string& path) {
  const int number = errno;
  fail(number == ENOENT ? Code::not_found : Code::io, what, " '", path, "': ", errno_text(number));
}

[[noreturn]] void fail_shortened(const std::string& path, uint64_t end, uint64_t size) {
  fail(Code::io, "'", path, "' ends at byte ", end, " and had ", size,
       " bytes when it was opened: it was shortened while it was read");
}

FileState state_in(const FileInfo& info) { return {info.size, info.changed_ns}; }

void require_path(const std::string& path) {
  if (path.empty()) fail(Code::invalid_argument, "the path of a file is empty");
}

// Opens an input. A missing file gets a hint, since its path may be relative to another folder.
int open_input(const std::string& path) {
  require_path(path);
  const int file = open_file(path, OpenFor::reading);
  if (file < 0 && errno == ENOENT)
    fail(Code::not_found, "cannot open '", path, "': ", errno_text(ENOENT), missing_hint(path));
  if (file < 0) fail_errno("cannot open", path);
  return file;
}

constexpr size_t kWaiting = size_t{64} << 10;  // buffer size of an OutputFile, in bytes
constexpr size_t kAtOnce = size_t{8} << 20;    // bytes read between two checks of the interrupt

}  // namespace

InputFile::InputFile(const std::string& path, const Interrupt* interrupt)
    : path_(path), interrupt_(interrupt), file_(open_input(path)) {
  const std::optional<FileInfo> info = info_of(file_);
  regular_ = info && info->kind == FileKind::regular;
  if (regular_) state_ = state_in(*info);
  if (info && info->kind != FileKind::other) return;
  const std::string why = info ? "it is not a file" : errno_text(errno);
  close_file(file_);
  fail(Code::io, "cannot read '", path, "': ", why);
}

InputFile::~InputFile() { close_file(file_); }

void InputFile::check_interrupt() const {
  if (interrupt_ && interrupt_->stopped())
    fail(Code::cancelled, "reading '", path_, "' was cancelled");
}

void InputFile::wait_for_bytes() const {
  if (!platform::wait_for_bytes(file_, interrupt_ ? interrupt_->descriptor() : -1))
    fail_errno("cannot wait for", path_);
  check_interrupt();
}

// Returns 0 at the end.
size_t InputFile::read_some(std::span<std::byte> out) const {
  while (true) {
    if (!regular_) wait_for_bytes();
    const int64_t n = platform::read_some(file_, out);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EAGAIN) fail_errno("cannot read", path_);
  }
}

size_t InputFile::read(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    check_interrupt();
    const size_t n = read_some(out.subspan(done, std::min(kAtOnce, out.size() - done)));
    if (n == 0) {
      const auto at = static_cast<uint64_t>(std::max<int64_t>(position_of(file_), 0));
      if (at < size()) fail_shortened(path_, at, size());
      break;
    }
    done += n;
  }
  return done;
}

void InputFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    check_interrupt();
    const int64_t n = platform::read_some(file_, out.first(std::min(kAtOnce, out.size())),
                                          static_cast<int64_t>(offset));
    if (n < 0) fail_errno("cannot read", path_);
    if (n == 0) fail_shortened(path_, offset, size());
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void InputFile::require_unchanged() const {
  if (!regular_) return;
  const std::optional<FileInfo> info = info_of(file_);
  if (!info) fail_errno("cannot ask for the size of", path_);
  if (state_in(*info) != state_)
    fail(Code::io, "'", path_, "' was written to while it was read, and has ", info->size,
         " bytes now; what was read may be old, new or a mixture");
}

std::shared_ptr<const std::byte> read_bytes(const std::string& path, size_t& size_bytes,
                                            uint64_t limit_bytes, const char* limit,
                                            const Interrupt* interrupt) {
  InputFile file(path, interrupt);
  if (!file.is_regular()) fail(Code::io, "'", path, "' is not a regular file");
  if (file.size() > limit_bytes)
    fail(Code::unsupported, "'", path, "' has ", file.size(), " bytes; the limit is ", limit_bytes,
         " (", limit, ")");
  const auto bytes = allocate_bytes(static_cast<size_t>(file.size()));
  size_bytes = file.read({bytes.get(), static_cast<size_t>(file.size())});
  file.require_unchanged();
  return bytes;
}

namespace {

std::string read_up_to(const std::string& path, uint64_t limit_bytes) {
  InputFile file(path);
  if (!file.is_regular()) fail(Code::io, "'", path, "' is not a regular file");
  if (file.size() > limit_bytes)
    fail(Code::unsupported, "'", path, "' has ", file.size(),
         " bytes, too many for what is read from it: at most ", limit_bytes);
  std::string text(static_cast<size_t>(file.size()), '\0');
  text.resize(file.read(std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

std::string read_file(const std::string& path) {
  return read_up_to(path, std::numeric_limits<uint64_t>::max());
}

std::string read_document(const std::string& path) { return read_up_to(path, kMostOfDocument); }

bool is_file_or_free(const std::string& path) {
  std::error_code unknown;  // opening it will say why
  const std::filesystem::file_status status = std::filesystem::status(path, unknown);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status) ||
         std::filesystem::canonical(path, unknown) == "/dev/null";
}

void shorten_file(const std::string& path, uint64_t bytes) {
  std::error_code error;
  std::filesystem::resize_file(path, bytes, error);
  if (error) fail(Code::io, "cannot shorten '", path, "': ", error.message());
}

namespace {

// The size of the file up to and including its last newline; 0 if it has none.
uint64_t end_of_whole_lines(const InputFile& file) {
  constexpr uint64_t kPiece = 1 << 16;
  std::string piece;
  for (uint64_t end = file.size(); end > 0; end -= piece.size()) {
    piece.resize(static_cast<size_t>(std::min(end, kPiece)));
    const uint64_t begin = end - piece.size();
    file.read_at(begin, std::as_writable_bytes(std::span(piece)));
    if (const size_t newline = piece.rfind('\n'); newline != std::string::npos)
      return begin + newline + 1;
  }
  return 0;
}

}  // namespace

void cut_unfinished_line(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return;
  const InputFile file(path);
  const uint64_t end = end_of_whole_lines(file);
  if (end == file.size()) return;
  char first = 0;
  file.read_at(end, std::as_writable_bytes(std::span(&first, 1)));
  if (first == '{') shorten_file(path, end);
}

OutputFile::OutputFile(const std::string& path, Mode mode, std::string name)
    : path_(path),
      name_(std::move(name)),
      file_(open_file(path, mode == Mode::append ? OpenFor::appending : OpenFor::replacing)) {
  if (file_ < 0) fail(Code::io, "cannot create '", name_, "': ", errno_text(errno));
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  write_all(file_, waiting_);
  close_file(file_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (waiting_.size() + bytes.size() > kWaiting) flush();
  if (bytes.size() < kWaiting)
    waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  else if (!write_all(file_, bytes))
    fail_errno("cannot write", name_);
}

void OutputFile::flush() {
  // Cleared even if writing fails: no retry.
  const std::vector<std::byte> bytes = std::exchange(waiting_, {});
  if (!write_all(file_, bytes)) fail_errno("cannot write", name_);
}

void OutputFile::sync() {
  flush();
  if (!flush_file(file_)) fail_errno("cannot flush", name_);
}

void OutputFile::close() {
  flush();
  if (!close_file(std::exchange(file_, -1))) fail_errno("cannot close", name_);
}

bool OutputFile::is_in_place() const {
  const auto open = info_of(file_), there = info_of(path_);
  return open && there && open->volume == there->volume && open->identity == there->identity;
}

namespace {

void write_synced(const std::string& path, const std::string& name,
                  std::span<const std::byte> bytes) {
  OutputFile file(path, OutputFile::Mode::replace, name);
  file.write(bytes);
  file.sync();
  file.close();
}

}  // namespace

void write_file_synced(const std::string& path, std::span<const std::byte> bytes) {
  write_synced(path, path, bytes);
}

void sync_directory(const std::string& path) {
  if (!flush_directory(path)) fail_errno("cannot flush", path);
}

void sync_directory_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  sync_directory(parent.empty() ? "." : parent.string());
}

void create_directories_synced(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path at = path; !at.empty() && !fs::exists(at, error); at = at.parent_path())
    if (at.has_filename()) missing.push_back(at);
  try {
    fs::create_directories(path, error);
    if (error) fail(Code::io, "cannot create '", path, "': ", error.message());
    for (const fs::path& folder : missing) sync_directory_of(folder.string());
  } catch (...) {  // the next call would find them and not flush them
    for (const fs::path& folder : missing) fs::remove(folder, error);
    throw;
  }
}

namespace {

// Resolves a link to the file that will be replaced. Pipes and devices cannot be replaced by a
// file.
std::string file_behind(const std::string& path) {
  require_path(path);
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_symlink(path, error)) {
    const fs::path target = fs::canonical(path, error);
    if (error) fail(Code::io, "cannot follow the link '", path, "': ", error.message());
    return file_behind(target.string());
  }
  if (fs::exists(path, error) && !fs::is_regular_file(path, error))
    fail(Code::io, "cannot write '", path, "': it is not a regular file");
  return path;
}

constexpr const char *kUnfinished = ".echotrain-", *kUnfinishedEnding = ".tmp";

}  // namespace

bool is_unfinished_file(const std::string& name) {
  return name.starts_with(kUnfinished) && name.ends_with(kUnfinishedEnding);
}

void write_file_atomic(const std::string& asked, std::span<const std::byte> bytes) {
  const std::string path = file_behind(asked);
  static std::atomic<uint64_t> number = 0;  // threads may write the same file concurrently
  const std::filesystem::path target = path;
  const auto temporary =  // short: the requested name may be of maximum length
      target.parent_path() / cat(kUnfinished, process_id(), "-", ++number, kUnfinishedEnding);
  std::error_code error;
  try {
    write_synced(temporary.string(), asked, bytes);
  } catch (...) {
    std::filesystem::remove(temporary, error);
    throw;
  }
  std::filesystem::rename(temporary, target, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    fail(Code::io, "cannot replace '", path, "': ", error.message());
  }
  sync_directory_of(path);
}

namespace {

// Returns the number of bytes read from `offset`, fewer than asked at the end, or -1 with the
// reason in errno.
int64_t read_up_to(int file, uint64_t offset, std::span<std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const int64_t n = read_some(file, bytes.subspan(done), static_cast<int64_t>(offset + done));
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<int64_t>(done);
}

}  // namespace

ScratchFile::ScratchFile(const std::string& directory) : directory_(directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  file_ = open_scratch_file(directory);
  if (file_ < 0) fail(Code::io, "cannot make a file in '", directory, "': ", errno_text(errno));
}

ScratchFile::~ScratchFile() { close_file(file_); }

void ScratchFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  if (!write_all(file_, bytes, static_cast<int64_t>(offset)))
    fail(Code::io, "cannot write to the scratch file in '", directory_, "': ", errno_text(errno));
}

void ScratchFile::read(uint64_t offset, std::span<std::byte> bytes) const {
  const int64_t n = read_up_to(file_, offset, bytes);
  if (n < std::ssize(bytes))
    fail(Code::io, "cannot read the scratch file in '", directory_,
         "': ", n < 0 ? errno_text(errno) : "it is shorter than expected");
}

SharedFile::SharedFile(const std::string& path, Mode mode)
    : path_(path),
      file_(open_file(path, mode == Mode::read ? OpenFor::reading : OpenFor::reading_and_writing)) {
  if (file_ < 0) fail_errno(mode == Mode::read ? "cannot open" : "cannot create", path);
}

SharedFile::~SharedFile() { close_file(file_); }

uint64_t SharedFile::size() const {
  const std::optional<FileInfo> info = info_of(file_);
  if (!info) fail_errno("cannot ask for the size of", path_);
  return info->size;
}

size_t SharedFile::read(uint64_t offset, std::span<std::byte> bytes) const {
  const int64_t n = read_up_to(file_, offset, bytes);
  if (n < 0) fail_errno("cannot read", path_);
  return static_cast<size_t>(n);
}

void SharedFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  if (!write_all(file_, bytes, static_cast<int64_t>(offset))) fail_errno("cannot write", path_);
}

void SharedFile::resize(uint64_t size) {
  if (!resize_file(file_, size)) fail_errno("cannot enlarge", path_);
}

std::optional<FileState> state_of(const std::string& path) {
  const std::optional<FileInfo> info = info_of(path);
  if (!info) return std::nullopt;
  return state_in(*info);
}

std::string missing_hint(const std::string& path) {
  namespace fs = std::filesystem;
  if (fs::path(path).is_absolute()) return ". If it was moved, let the path name its new place";
  std::error_code error;
  const fs::path resolved = fs::absolute(path, error).lexically_normal();
  return cat(". Relative paths are resolved from the working directory, here to '",
             resolved.string(),
             "': start the program where the path is right, or give an absolute one");
}

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

}  // namespace etr::platform
