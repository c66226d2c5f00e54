#include "sources/pack.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "codec/image_codec.h"
#include "codec/planar_image.h"
#include "core/error.h"
#include "core/platform.h"
#include "core/rng.h"
#include "io/fast_shard.h"
#include "io/tar_writer.h"
#include "sources/class_folders.h"

namespace etr::sources {
namespace {

constexpr OptionSpec kOptions[] = {
    {"format", OptionType::string, "\"webdataset\"",
     "webdataset: tar archives; fast: images that decode several times as fast as PNGs, read by "
     "number",
     0, 0, "", "webdataset|fast"},
    {"per_shard", OptionType::integer, "1000", "samples in a shard", 1, 1e9, "samples"},
    {"level", OptionType::integer, "3", "zstd's level; 0 writes plain .tar", 0, 19},
    {"seed", OptionType::integer, "0", "of the order of the samples", 0, 9e15},
    {"orientation", OptionType::string, "\"exif\"",
     "of PNGs in fast shards, which lose their EXIF data: exif turns and mirrors them as it says; "
     "stored leaves them as they lie in the file",
     0, 0, "", "exif|stored"},
};

std::string numbered(const std::string& prefix, int64_t number, const char* ending) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%06lld", static_cast<long long>(number));
  return prefix + digits + ending;
}

class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  virtual void add(const std::string& key, const std::string& extension,
                   std::span<const std::byte> bytes, const std::string& label) = 0;
  virtual void finish() = 0;
};

class TarShard final : public ShardWriter {
 public:
  TarShard(const std::string& path, int level) : writer_(path, level) {}

  void add(const std::string& key, const std::string& extension, std::span<const std::byte> bytes,
           const std::string& label) override {
    writer_.add(key + "." + extension, bytes);
    writer_.add(key + ".cls", std::as_bytes(std::span(label)));
  }
  void finish() override { writer_.finish(); }

 private:
  io::TarWriter writer_;
};

// PNGs become planar images, but those of 16 bits, which have no place there. JPEGs stay as they are, they are smaller than
// anything lossless.
class FastShard final : public ShardWriter {
 public:
  FastShard(const std::string& path, int level, bool upright)
      : writer_(path), level_(std::max(level, 1)), upright_(upright) {}

  void add(const std::string& key, const std::string& extension, std::span<const std::byte> bytes,
           const std::string& label) override {
    const io::FastShardWriter::Field cls{"cls", std::as_bytes(std::span(label)), 0};
    Tensor image;
    if (extension == "png")
      image = codec::decode_image(bytes, {.keep_u16 = true, .upright = upright_});
    if (!image.empty() && image.dtype() == DType::u8) {
      const std::vector<std::byte> packed = codec::encode_planar(image, level_);
      const io::FastShardWriter::Field fields[] = {{"eti", packed, image.size_bytes()}, cls};
      writer_.add(key, fields);
    } else {
      const std::vector<std::byte> frame = io::zstd_frame(bytes, level_);
      const io::FastShardWriter::Field fields[] = {{extension, frame, bytes.size()}, cls};
      writer_.add(key, fields);
    }
  }
  void finish() override { writer_.finish(); }

 private:
  io::FastShardWriter writer_;
  const int level_;
  const bool upright_;
};

}  // namespace

Schema pack_schema() { return kOptions; }

PackResult pack_folder(const std::string& root, const std::string& prefix, const Options& options,
                       const std::function<bool(int64_t, int64_t)>& progress) {
  const bool fast = options.string("format") == "fast";
  const bool upright = options.string("orientation") == "exif";
  const int64_t per_shard = options.integer("per_shard");
  const auto level = static_cast<int>(options.integer("level"));
  const char* const ending = fast ? ".ets" : level > 0 ? ".tar.zst" : ".tar";
  ClassFolders folders = list_class_folders(root);
  Rng rng(static_cast<uint64_t>(options.integer("seed")));
  for (size_t i = folders.files.size(); i > 1; --i)
    std::swap(folders.files[i - 1], folders.files[rng.below(static_cast<uint32_t>(i))]);

  PackResult result;
  result.classes = folders.classes;
  result.samples = static_cast<int64_t>(folders.files.size());
  std::unique_ptr<ShardWriter> writer;
  for (int64_t i = 0; i < result.samples; ++i) {
    if (i % per_shard == 0) {
      if (writer) writer->finish();
      result.shards.push_back(numbered(prefix + "-", i / per_shard, ending));
      if (fast)
        writer = std::make_unique<FastShard>(result.shards.back(), level, upright);
      else
        writer = std::make_unique<TarShard>(result.shards.back(), level);
    }
    const ClassFile& file = folders.files[static_cast<size_t>(i)];
    const std::string bytes = platform::read_file(root + "/" + file.name);
    try {
      writer->add(numbered("", i, ""), file.extension, std::as_bytes(std::span(bytes)),
                  std::to_string(file.label));
    } catch (const Error& error) {
      fail(error.code(), "pack: '", root, "/", file.name, "': ", error.what());
    }
    result.bytes += static_cast<int64_t>(bytes.size());
    if (progress && (i % 64 == 63 || i + 1 == result.samples) && !progress(i + 1, result.samples))
      fail(Code::cancelled, "packing was stopped after ", i + 1, " of ", result.samples,
           " samples");
  }
  writer->finish();
  for (const std::string& shard : result.shards)
    result.packed_bytes += static_cast<int64_t>(std::filesystem::file_size(shard));
  return result;
}

}  // namespace etr::sources
