#include "sources/pack.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/error.h"
#include "core/platform.h"
#include "core/rng.h"
#include "io/tar_writer.h"
#include "sources/class_folders.h"

namespace etr::sources {
namespace {

std::string numbered(const std::string& prefix, int64_t number, const char* ending) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%06lld", static_cast<long long>(number));
  return prefix + digits + ending;
}

}  // namespace

PackResult pack_folder(const PackOptions& options,
                       const std::function<bool(int64_t, int64_t)>& progress) {
  if (options.samples_per_shard < 1 || options.zstd_level < 0 || options.zstd_level > 19)
    fail(Code::invalid_argument,
         "pack: samples_per_shard must be at least 1 and zstd_level lie in "
         "[0, 19]");
  ClassFolders folders = list_class_folders(options.root);
  Rng rng(options.seed);
  for (size_t i = folders.files.size(); i > 1; --i)
    std::swap(folders.files[i - 1], folders.files[rng.below(static_cast<uint32_t>(i))]);

  PackResult result;
  result.classes = folders.classes;
  const auto total = static_cast<int64_t>(folders.files.size());
  std::unique_ptr<io::TarWriter> writer;
  for (int64_t i = 0; i < total; ++i) {
    if (i % options.samples_per_shard == 0) {
      if (writer) writer->finish();
      result.shards.push_back(numbered(options.prefix + "-", i / options.samples_per_shard,
                                       options.zstd_level ? ".tar.zst" : ".tar"));
      writer = std::make_unique<io::TarWriter>(result.shards.back(), options.zstd_level);
    }
    const ClassFile& file = folders.files[static_cast<size_t>(i)];
    const std::string bytes = platform::read_file(options.root + "/" + file.name);
    const std::string key = numbered("", i, "."), label = std::to_string(file.label);
    writer->add(key + file.extension, std::as_bytes(std::span(bytes)));
    writer->add(key + "cls", std::as_bytes(std::span(label)));
    result.bytes += static_cast<int64_t>(bytes.size());
    if (progress && (i % 64 == 63 || i + 1 == total) && !progress(i + 1, total))
      fail(Code::cancelled, "packing was stopped after ", i + 1, " of ", total, " samples");
  }
  writer->finish();
  result.samples = total;
  return result;
}

}  // namespace etr::sources
