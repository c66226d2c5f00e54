#include "io/byte_stream.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <new>

#include "core/error.h"
#include "core/platform.h"
#include "core/zstd.h"
#include "io/pieces.h"
#include "io/remote_file.h"
#include "io/tar_format.h"

namespace etr::io {
namespace {

std::unique_ptr<platform::InputFile> open_file(const std::string& path,
                                               const ReadOptions& options) {
  auto file = std::make_unique<platform::InputFile>(path, options.interrupt);
  if (options.only_files && !file->is_regular())
    fail(Code::state, "'", path,
         "' is a pipe and can be read only once; 'budget_bytes' and the epoch length need to read "
         "samples before the run. Use a file, or leave the option out");
  return file;
}

std::unique_ptr<Pieces> pieces_of(const std::string& path, const ReadOptions& options) {
  if (is_remote(path)) return open_remote(path, options.remote);
  return std::make_unique<FilePieces>(open_file(path, options));
}

// A cursor over pieces.
class PieceReader {
 public:
  explicit PieceReader(std::unique_ptr<Pieces> pieces) : pieces_(std::move(pieces)) {}

  // The rest of the current piece, or the next one; empty at the end.
  std::span<const std::byte> rest() {
    if (at_ == block_.size) {
      before_ += block_.size;
      block_ = pieces_->next();
      at_ = 0;
      if (before_ == 0)
        begin_.assign(reinterpret_cast<const char*>(block_.data.get()),
                      std::min(block_.size, tar::kRecord));
    }
    return block_.bytes().subspan(at_);
  }
  void take(size_t bytes) { at_ += bytes; }
  size_t taken() const { return before_ + at_; }
  std::string_view begin() const { return begin_; }  // the first bytes of the file
  uint64_t holds_bytes() const { return pieces_->holds_bytes(); }

 private:
  const std::unique_ptr<Pieces> pieces_;
  Block block_;
  size_t at_ = 0, before_ = 0;
  std::string begin_;
};

// The file's kind, and the extension it should have, judged by its first bytes.
std::pair<const char*, const char*> kind_of(std::string_view begin) {
  if (begin.starts_with("\x1f\x8b")) return {"gzip", ".gz"};
  if (begin.starts_with("\x28\xb5\x2f\xfd")) return {"zstd", ".zst"};
  const bool archive = begin.size() == tar::kRecord && !tar::is_zero(begin.data()) &&
                       !tar::parse_header(begin.data()).problem;
  return {archive ? "plain tar" : "", ".tar"};
}

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(std::unique_ptr<Pieces> pieces) : input_(std::move(pieces)) {}

  size_t read(std::span<std::byte> out) override {
    size_t done = 0;
    while (done < out.size()) {
      const auto rest = input_.rest();
      if (rest.empty()) break;
      const size_t n = std::min(rest.size(), out.size() - done);
      std::memcpy(out.data() + done, rest.data(), n);
      input_.take(n);
      done += n;
    }
    return done;
  }

  uint64_t holds_bytes() const override { return input_.holds_bytes(); }

 private:
  PieceReader input_;
};

class FileStream final : public ByteStream {
 public:
  FileStream(const std::string& path, const ReadOptions& options)
      : file_(open_file(path, options)) {}

  size_t read(std::span<std::byte> out) override {
    const size_t n = file_->read(out);
    file_->require_unchanged();
    position_ += n;
    return n;
  }

  std::optional<uint64_t> left() const override {
    if (!file_->is_regular()) return std::nullopt;
    return file_->size() - std::min(position_, file_->size());
  }

 private:
  const std::unique_ptr<platform::InputFile> file_;
  uint64_t position_ = 0;
};

// Shared by both decompressors: the compressed input, and a check of the decompression ratio.
class Decompressor : public ByteStream {
 public:
  Decompressor(const std::string& path, const ReadOptions& options)
      : path_(path), input_(pieces_of(path, options)), options_(options) {}

  size_t read(std::span<std::byte> out) final {
    size_t done = 0;
    while (done < out.size()) {
      if (options_.interrupt && options_.interrupt->stopped())
        fail(Code::cancelled, "reading '", path_, "' was cancelled");
      const size_t asked = std::min(out.size() - done, kAtOnce);
      const size_t got = unpack(out.subspan(done, asked));
      done += got;
      check_ratio(got);
      if (got < asked) break;
    }
    return done;
  }

  uint64_t holds_bytes() const override { return input_.holds_bytes(); }

 protected:
  // Fills `out`, less only at the end of the content.
  virtual size_t unpack(std::span<std::byte> out) = 0;

  [[noreturn]] void corrupt(const char* kind, const char* why) const {
    const auto [found, ending] = kind_of(input_.begin());
    if (*found && std::string_view(found) != kind)
      fail(Code::corrupt_data, "'", path_, "' is named as ", kind, " data and is ", found,
           " data; rename it to end in ", ending);
    fail(Code::corrupt_data, "'", path_, "': corrupt ", kind, " data near compressed byte ",
         input_.taken(), ": ", why);
  }
  [[noreturn]] void ends_early(const char* kind) const {
    if (input_.taken() == 0)
      fail(Code::corrupt_data, "'", path_, "' is empty; even a ", kind,
           " file without content has a header");
    fail(Code::corrupt_data, "'", path_, "': the ", kind,
         " data ends early, after compressed byte ", input_.taken(), "; the file is truncated");
  }

  const std::string path_;
  PieceReader input_;
  const ReadOptions options_;

 private:
  static constexpr size_t kAtOnce = size_t{1} << 20;

  void check_ratio(size_t produced) {
    produced_ += produced;
    if (in_proportion(produced_, input_.taken(), options_.max_ratio)) return;
    const std::string remedy =
        options_.ratio_option ? cat("raise ", options_.ratio_option) : "decompress it beforehand";
    fail(Code::unsupported, "'", path_, "' decompresses to more than ", options_.max_ratio,
         " times its size; if it is to be trusted, ", remedy);
  }

  uint64_t produced_ = 0;
};

// The window that a zstd frame asks for, by its header (RFC 8878, 3.1.1.1): a number of its own, or
// that of the content's size. The header may be followed by more, and is complete.
uint64_t window_of(std::string_view header) {
  const auto byte = [&](size_t i) {
    return i < header.size() ? static_cast<uint64_t>(static_cast<unsigned char>(header[i])) : 0;
  };
  const uint64_t descriptor = byte(4);
  const bool has_window = (descriptor & 0x20) == 0;
  if (has_window) {
    const uint64_t base = uint64_t{1} << (10 + (byte(5) >> 3));
    return base + base / 8 * (byte(5) & 7);
  }
  constexpr size_t kBytesOfDictionary[] = {0, 1, 2, 4};
  const size_t at = 5 + kBytesOfDictionary[descriptor & 3], bytes = size_t{1} << (descriptor >> 6);
  uint64_t content = bytes == 2 ? 256 : 0;
  for (size_t i = 0; i < bytes; ++i) content += byte(at + i) << 8 * i;
  return content;
}

// Any number of zstd frames.
class ZstdStream final : public Decompressor {
 public:
  ZstdStream(const std::string& path, const ReadOptions& options)
      : Decompressor(path, options), context_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!context_) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, window_log());
  }

  uint64_t holds_bytes() const override {
    return Decompressor::holds_bytes() + ZSTD_sizeof_DStream(context_.get());
  }

 private:
  // The zstd library allocates the window size that a frame asks for. The limit is zstd's default
  // of 128 MB, or a quarter of the budget if that is less, but never less than common levels need.
  static constexpr int kLeastLog = 23, kMostLog = 27;
  static constexpr uint64_t kShare = 4;  // of the budget

  int window_log() const {
    int log = kMostLog;
    while (options_.budget_bytes > 0 && log > kLeastLog &&
           uint64_t{1} << log > options_.budget_bytes / kShare)
      --log;
    return log;
  }

  // `rest` is the input at which the library has refused the frame.
  [[noreturn]] void window_too_large(std::span<const std::byte> rest) const {
    constexpr uint64_t kMost = uint64_t{1} << kMostLog;
    std::string header = header_;
    header.append(reinterpret_cast<const char*>(rest.data()), std::min(rest.size(), kMostHeader));
    const uint64_t window = window_of(header);
    if (window > kMost)
      fail(Code::unsupported, "'", path_, "': its zstd data takes a window of ", window,
           " bytes; the limit is ", kMost, ": compress it again without the option --long");
    fail(Code::unsupported, "'", path_, "': its zstd data takes a window of ", window,
         " bytes, and budget_bytes leaves ", uint64_t{1} << window_log(),
         " for one: set it to at least ", std::bit_ceil(window) * kShare,
         ", or compress the data again with a smaller window");
  }

  // Keeps the bytes of a frame's header that have been taken.
  void note_header(std::span<const std::byte> taken) {
    if (!in_frame_)
      header_.clear();
    else if (header_.size() < kMostHeader)
      header_.append(reinterpret_cast<const char*>(taken.data()),
                     std::min(taken.size(), kMostHeader - header_.size()));
  }

  size_t unpack(std::span<std::byte> out) override {
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    while (output.pos < output.size) {
      const auto rest = input_.rest();
      ZSTD_inBuffer input{rest.data(), rest.size(), 0};
      const size_t before = output.pos;
      const size_t left = zstd_result(ZSTD_decompressStream(context_.get(), &output, &input));
      if (ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge)
        window_too_large(rest);
      input_.take(input.pos);
      if (ZSTD_isError(left)) corrupt("zstd", ZSTD_getErrorName(left));
      if (input.pos == 0 && output.pos == before) break;  // no progress
      in_frame_ = left != 0;
      note_header(rest.first(input.pos));
    }
    if (output.pos < output.size && in_frame_) ends_early("zstd");
    return output.pos;
  }

  static constexpr size_t kMostHeader = 18;  // bytes
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> context_;
  std::string header_;    // of the current frame, as far as it has been taken
  bool in_frame_ = true;  // initially true: a frame must follow
};

// Any number of gzip members.
class GzipStream final : public Decompressor {
 public:
  GzipStream(const std::string& path, const ReadOptions& options) : Decompressor(path, options) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipStream() override { inflateEnd(&stream_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

 private:
  size_t unpack(std::span<std::byte> out) override {
    size_t done = 0;
    while (done < out.size()) {
      const auto rest = input_.rest();
      if (rest.empty() && !in_member_) break;
      if (rest.empty()) ends_early("gzip");
      if (!in_member_ && rest[0] == std::byte{0}) {  // zero padding of tapes and disks
        input_.take(1);
        continue;
      }
      done += inflate_some(rest, out.subspan(done));
    }
    return done;
  }

  size_t inflate_some(std::span<const std::byte> from, std::span<std::byte> out) {
    constexpr size_t kMost = size_t{1} << 30;  // zlib's counters have 32 bits
    const size_t offered = std::min(from.size(), kMost), room = out.size();
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(from.data()));
    stream_.avail_in = static_cast<uInt>(offered);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    input_.take(offered - stream_.avail_in);
    in_member_ = status != Z_STREAM_END;
    if (status == Z_STREAM_END)
      inflateReset(&stream_);
    else if (status != Z_OK && status != Z_BUF_ERROR)
      corrupt("gzip", stream_.msg ? stream_.msg : "unknown");
    return room - stream_.avail_out;
  }

  z_stream stream_{};
  bool in_member_ = true;  // initially true: a member must follow
};

// Memory that is returned to the system when freed, whereas core/memory would keep it for reuse.
std::shared_ptr<std::byte> memory_for_good(size_t size) {
  const size_t page = size > platform::kHugePage ? platform::kHugePage : 4096;
  const size_t whole = (std::max<size_t>(size, 1) + page - 1) / page * page;
  std::byte* memory = page > 4096 ? platform::map_huge_memory(whole) : platform::map_memory(whole);
  if (!memory) throw std::bad_alloc();
  return {memory, [whole](std::byte* p) { platform::unmap_memory(p, whole); }};
}

bool is_gzip(const std::string& path) { return path.ends_with(".gz") || path.ends_with(".tgz"); }
bool is_zstd(const std::string& path) { return path.ends_with(".zst") || path.ends_with(".tzst"); }

}  // namespace

bool is_compressed(const std::string& path) { return is_gzip(path) || is_zstd(path); }

void require_sized(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  if (is_remote(path) || !fs::is_other(path, unknown)) return;
  fail(Code::unsupported, "'", path,
       "' is a pipe or device and has no size, which this source needs; write its bytes to a file");
}

std::unique_ptr<ByteStream> open_stream(const std::string& path, const ReadOptions& options) {
  if (is_gzip(path)) return std::make_unique<GzipStream>(path, options);
  if (is_zstd(path)) return std::make_unique<ZstdStream>(path, options);
  if (is_remote(path)) return std::make_unique<PlainStream>(open_remote(path, options.remote));
  return std::make_unique<FileStream>(path, options);
}

size_t trusted_bytes(const ByteStream& stream, uint64_t have, uint64_t wanted) {
  constexpr uint64_t kAtOnce = uint64_t{16} << 20;
  const auto left = stream.left();
  if (left && have + *left >= wanted) return static_cast<size_t>(wanted);
  return static_cast<size_t>(std::min(wanted, have + std::max(have, kAtOnce)));
}

bool read_exactly(ByteStream& stream, std::vector<std::byte>& out, uint64_t size) {
  for (size_t have = 0; have < size; have = out.size()) {
    out.resize(trusted_bytes(stream, have, size));
    if (stream.read(std::span(out).subspan(have)) < out.size() - have) return false;
  }
  out.resize(static_cast<size_t>(size));
  return true;
}

Block read_whole(const std::string& path, const ReadOptions& options, const SizeLimit& most) {
  const SizeLimit limit(most.bytes, most.name, options.budget_bytes);
  const std::unique_ptr<ByteStream> stream = open_stream(path, options);
  if (stream->left().value_or(0) > limit.bytes)
    fail(Code::unsupported, "'", path, "' has ", *stream->left(), " bytes; the limit is ",
         limit.bytes, " (", limit.name, ")");
  // One byte more than expected, to detect the end.
  const uint64_t first = stream->left().value_or(size_t{1} << 20) + 1;
  std::shared_ptr<std::byte> bytes;
  size_t size = 0;
  for (bool more = true; more;) {
    const auto room = static_cast<size_t>(
        std::min(std::max<uint64_t>(first, 2 * uint64_t{size}), limit.bytes + 1));
    const auto larger = memory_for_good(room);
    if (size > 0) std::memcpy(larger.get(), bytes.get(), size);
    bytes = larger;
    const size_t got = stream->read({bytes.get() + size, room - size});
    more = got == room - size;
    size += got;
    if (size > limit.bytes)
      fail(Code::unsupported, "'", path, "' holds more than ", limit.bytes, " bytes (", limit.name,
           ")");
  }
  return {bytes, size};
}

}  // namespace etr::io
