#include "sources/shard_writer.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include "codec/image_codec.h"
#include "codec/planar_image.h"
#include "core/error.h"
#include "core/platform_files.h"
#include "io/fast_shard.h"
#include "io/tar_writer.h"

namespace etr::sources {

namespace fs = std::filesystem;

class ShardSet::Writer {
 public:
  virtual ~Writer() = default;
  virtual void add(const std::string& key, const std::string& format,
                   std::span<const std::byte> bytes, const Tensor& image,
                   const std::string& label) = 0;
  virtual void finish() = 0;
};

namespace {

class TarShard final : public ShardSet::Writer {
 public:
  TarShard(const std::string& path, int level) : writer_(path, level) {}

  void add(const std::string& key, const std::string& format, std::span<const std::byte> bytes,
           const Tensor&, const std::string& label) override {
    writer_.add(key + "." + format, bytes);
    writer_.add(key + ".cls", std::as_bytes(std::span(label)));
  }
  void finish() override { writer_.finish(); }

 private:
  io::TarWriter writer_;
};

// Converts PNGs to planar images, except 16-bit PNGs, which that format does not support. Keeps
// JPEGs, which are smaller than any lossless format.
class FastShard final : public ShardSet::Writer {
 public:
  FastShard(const std::string& path, int level) : writer_(path), level_(std::max(level, 1)) {}

  void add(const std::string& key, const std::string& format, std::span<const std::byte> bytes,
           const Tensor& image, const std::string& label) override {
    const io::FastShardWriter::Field cls{"cls", std::as_bytes(std::span(label)), 0};
    if (!image.empty() && image.dtype() == DType::u8) {
      const std::vector<std::byte> packed = codec::encode_planar(image, level_);
      const io::FastShardWriter::Field fields[] = {{"eti", packed, image.size_bytes()}, cls};
      writer_.add(key, fields);
    } else {
      const std::vector<std::byte> frame = io::zstd_frame(bytes, level_);
      const io::FastShardWriter::Field fields[] = {{format, frame, bytes.size()}, cls};
      writer_.add(key, fields);
    }
  }
  void finish() override { writer_.finish(); }

 private:
  io::FastShardWriter writer_;
  const int level_;
};

std::string ending(const ShardSet::Form& form) {
  return form.fast ? ".ets" : form.level > 0 ? ".tar.zst" : ".tar";
}

}  // namespace

std::vector<fs::path> shards_there(const fs::path& prefix, const ShardSet::Form& form) {
  const std::string end = ending(form);
  const fs::path folder = prefix.has_parent_path() ? prefix.parent_path() : fs::path(".");
  const std::string begin = prefix.filename().string() + "-";
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& [name, type] : platform::list_folder(folder, error)) {
    if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) ||
        !name.ends_with(end))
      continue;
    const auto digits =
        std::string_view(name).substr(begin.size(), name.size() - begin.size() - end.size());
    if (std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); }))
      out.push_back(folder / name);
  }
  if (error) fail(Code::io, "cannot list '", folder.string(), "': ", error.message());
  std::sort(out.begin(), out.end());
  return out;
}

ShardSet::ShardSet(std::string prefix, const Form& form, bool overwrite)
    : prefix_(std::move(prefix)), form_(form), old_(shards_there(prefix_, form_)) {
  if (!old_.empty() && !overwrite)
    fail(Code::invalid_argument, "'", old_.front().string(),
         "' is there from an earlier packing and would be read with the new shards: set "
         "'overwrite', or choose another prefix");
}

ShardSet::~ShardSet() {
  if (kept_) return;
  writer_.reset();
  std::error_code ignored;
  for (const fs::path& shard : shards_) fs::remove(shard, ignored);
}

// Makes the key unique and free of dots: readers of tar shards end the key at the first dot of the
// file name, and merge members with equal keys.
std::string ShardSet::key_of(const std::string& name) {
  std::string key = name.substr(0, name.rfind('.'));
  const size_t slash = key.rfind('/');
  std::replace(key.begin() + static_cast<std::ptrdiff_t>(slash == std::string::npos ? 0 : slash),
               key.end(), '.', '_');
  std::string unique = key;
  for (int number = 2; !keys_.insert(unique).second; ++number) unique = cat(key, "-", number);
  return unique;
}

void ShardSet::remove_old() {
  for (const fs::path& old : old_) {
    std::error_code error;
    fs::remove(old, error);
    if (error) fail(Code::io, "cannot remove '", old.string(), "': ", error.message());
  }
  old_.clear();
}

void ShardSet::open_next() {
  if (writer_) writer_->finish();
  char number[32];
  std::snprintf(number, sizeof number, "-%06lld",
                static_cast<long long>(samples_ / form_.per_shard));
  shards_.push_back(prefix_ + number + ending(form_));
  writer_.reset();
  if (form_.fast)
    writer_ = std::make_unique<FastShard>(shards_.back().string(), form_.level);
  else
    writer_ = std::make_unique<TarShard>(shards_.back().string(), form_.level);
}

std::string ShardSet::add(const std::string& name, const std::string& format,
                          std::span<const std::byte> bytes, int label) {
  if (!form_.fast && name.find('\n') != std::string::npos)
    return "a line break in its name, which members of tar shards do not have";
  Tensor image;
  if (form_.fast && format == "png") try {
      image = codec::decode_image(bytes, {.keep_u16 = true, .upright = form_.upright});
    } catch (const Error& error) {
      if (error.code() == Code::corrupt_data || error.code() == Code::unsupported)
        return error.what();
      throw;
    }
  remove_old();
  if (samples_ % form_.per_shard == 0) open_next();
  writer_->add(key_of(name), format, bytes, image, std::to_string(label));
  ++samples_;
  return "";
}

void ShardSet::finish() {
  remove_old();
  if (writer_) writer_->finish();
}

}  // namespace etr::sources
