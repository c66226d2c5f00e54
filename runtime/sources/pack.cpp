#include "sources/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/platform.h"
#include "core/rng.h"
#include "core/text.h"
#include "sources/class_names.h"
#include "sources/reading.h"
#include "sources/shard_writer.h"

namespace etr::sources {
namespace {

namespace fs = std::filesystem;

constexpr const char* kValidation = "validation";
constexpr size_t kMagicBytes = 8;  // enough to recognise an image's format

constexpr OptionSpec kOptions[] = {
    {"format", OptionType::string, "\"webdataset\"",
     "webdataset: tar archives; fast: images that decode 1.7 to 3.8 times as fast as PNGs and are "
     "read by index",
     0, 0, "", "webdataset|fast"},
    {"per_shard", OptionType::integer, "1000", "number of samples in each shard", 1, 1e9,
     "samples"},
    {"level", OptionType::integer, "3", "compression level of zstd; 0: plain .tar", 0, 19},
    {"seed", OptionType::integer, "0", "seed of the samples' order", 0, 9007199254740991},
    {"validation", OptionType::number, "0",
     "fraction of each class that is held out for validation, in shards named validation-* in the "
     "same folder",
     0, 0.9},
    {"overwrite", OptionType::boolean, "false",
     "replace existing shards with this prefix; otherwise they are an error"},
    {"orientation", OptionType::string, "\"exif\"",
     "for PNGs in fast shards, which do not keep EXIF data: exif: rotate and mirror them as their "
     "EXIF data says; stored: leave the pixels as they are in the file",
     0, 0, "", "exif|stored"},
};

// Recognises an image by its first bytes, because names are unreliable: "png", "jpg", or "".
std::string image_format(const std::string& bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return "png";
  return bytes.starts_with("\xff\xd8\xff") ? "jpg" : "";
}

// Numbers the classes as in the file of an earlier packing, so that the numbers of a training and a
// test set agree.
void take_numbers(ClassFolders& folders, const std::string& path) {
  const std::vector<std::string> known = read_class_names(path);
  std::vector<int> numbers;
  for (const std::string& name : folders.classes) {
    const auto at = std::find(known.begin(), known.end(), name);
    if (at == known.end())
      fail(Code::invalid_argument, "'", path, "' does not list the class '", name,
           "'; remove that file, and pack all sets beside it again, to number the classes anew");
    numbers.push_back(static_cast<int>(at - known.begin()));
  }
  for (ClassFile& file : folders.files) file.label = numbers[static_cast<size_t>(file.label)];
  folders.classes = known;
}

// The number of validation samples per class: the share, but at least one if the class has two
// samples.
std::vector<int64_t> set_aside(const ClassFolders& folders, double share) {
  std::vector<int64_t> counts(folders.classes.size());
  for (const ClassFile& file : folders.files) ++counts[static_cast<size_t>(file.label)];
  for (int64_t& count : counts) {
    const auto wanted = std::llround(share * static_cast<double>(count));
    count = share > 0
                ? std::clamp<int64_t>(wanted, 1, std::max<int64_t>(count - 1, 1)) * (count > 1)
                : 0;
  }
  return counts;
}

// If the shards lay among the images, their folder would become a class of the next packing.
void refuse_prefix_within(const std::string& root, const fs::path& prefix) {
  std::error_code error;
  fs::path images = fs::weakly_canonical(root, error);
  if (!images.has_filename()) images = images.parent_path();  // the path ends with a slash
  const fs::path shards = fs::weakly_canonical(fs::absolute(prefix, error).parent_path(), error);
  if (error || images.empty()) return;
  if (std::mismatch(images.begin(), images.end(), shards.begin(), shards.end()).first !=
      images.end())
    return;
  fail(Code::invalid_argument, "the shards '", prefix.string(), "-*' would lie in '", root,
       "', among the images that they are made of; choose a prefix outside of it");
}

// The training shards, and the validation shards if requested.
class Packing {
 public:
  Packing(const std::string& root, const fs::path& prefix, const Options& options)
      : root_(root), folder_(prefix.parent_path()) {
    const double share = options.number("validation");
    if (share > 0 && prefix.filename() == kValidation)
      fail(Code::invalid_argument, "the prefix '", prefix.string(),
           "' is the one that validation shards get; choose another");
    if (prefix.filename().empty())
      fail(Code::invalid_argument, "the prefix '", prefix.string(),
           "' ends with a folder; shards need a name there, such as '", prefix.string(), "train'");
    std::error_code error;
    if (!folder_.empty()) fs::create_directories(folder_, error);
    if (error) fail(Code::io, "cannot create '", folder_.string(), "': ", error.message());
    const ShardSet::Form form{options.string("format") == "fast",  // .ets
                              static_cast<int>(options.integer("level")),
                              options.integer("per_shard"),
                              options.string("orientation") == "exif"};
    const bool overwrite = options.boolean("overwrite");
    const std::string validation = (folder_ / kValidation).string();
    rest_.emplace(prefix.string(), form, overwrite);
    if (share > 0)
      validation_.emplace(validation, form, overwrite);
    else if (rest_->replaces() && prefix.filename() != kValidation)
      refuse_stale(validation, form);
  }

  // `aside`: number of validation samples still to take from the file's class.
  void add(const ClassFile& file, int64_t& aside, PackResult& result) {
    platform::InputFile input(root_ + "/" + file.name);
    std::string bytes(kMagicBytes, '\0');
    bytes.resize(input.read(std::as_writable_bytes(std::span(bytes))));
    const std::string format = image_format(bytes);
    if (format.empty()) {
      result.skipped.push_back({file.name, "not a PNG or JPEG image"});
      return;
    }
    if (input.size() > kMostRecordBytes) {
      result.skipped.push_back({file.name, "larger than 2 GiB"});
      return;
    }
    bytes.resize(static_cast<size_t>(input.size()));
    input.read(
        std::as_writable_bytes(std::span(bytes)).subspan(std::min(bytes.size(), kMagicBytes)));
    input.require_unchanged();
    const bool is_aside = aside > 0;
    ShardSet& set = is_aside ? *validation_ : *rest_;
    try {
      const std::string problem =
          set.add(file.name, format, std::as_bytes(std::span(bytes)), file.label);
      if (!problem.empty()) {
        result.skipped.push_back({file.name, problem});
        return;
      }
    } catch (const Error& error) {
      fail(error.code(), "pack: '", root_, "/", file.name, "': ", error.what());
    }
    aside -= is_aside;
    result.bytes += static_cast<int64_t>(bytes.size());
  }

  void require_samples() const {
    if (rest_->samples() == 0)
      fail(Code::not_found, "'", root_, "' has no PNG or JPEG images in its class folders");
  }

  void finish(PackResult& result) {
    for (auto* set : {&rest_, &validation_}) {
      if (!*set) continue;
      (*set)->finish();
      result.samples += (*set)->samples();
      for (const fs::path& shard : (*set)->shards()) {
        const std::string& name = result.shards.emplace_back(shard.string());
        result.packed_bytes += static_cast<int64_t>(platform::InputFile(name).size());
      }
    }
    rest_->keep();  // only when both sets are complete
    if (!validation_) return;
    validation_->keep();
    result.validation_samples = validation_->samples();
  }

 private:
  // Throws if there are shards of an earlier packing: samples of earlier validation shards could
  // now be in both sets.
  static void refuse_stale(const std::string& prefix, const ShardSet::Form& form) {
    const std::vector<fs::path> old = shards_there(prefix, form);
    if (!old.empty())
      fail(Code::invalid_argument, "'", old.front().string(),
           "' is there from an earlier packing, and its samples may be among those that are packed "
           "now without 'validation': remove the ",
           counted(old.size(), "validation shard"), ", or set 'validation'");
  }

  const std::string root_;
  const fs::path folder_;
  std::optional<ShardSet> rest_, validation_;
};

}  // namespace

Schema pack_schema() { return kOptions; }

PackResult pack_folder(const std::string& root, const std::string& prefix, const Options& options,
                       const std::function<bool(int64_t, int64_t)>& progress) {
  refuse_prefix_within(root, prefix);
  ClassFolders folders = list_class_folders(root);
  check_class_names(folders.classes);
  PackResult result;
  result.classes_file = (fs::path(prefix).parent_path() / "classes.txt").string();
  std::error_code unknown;  // ignored: writing reports the error
  if (fs::exists(result.classes_file, unknown)) take_numbers(folders, result.classes_file);
  Packing packing(root, prefix, options);
  result.classes = folders.classes;
  result.skipped = std::move(folders.skipped);
  std::vector<int64_t> aside = set_aside(folders, options.number("validation"));
  Rng rng(static_cast<uint64_t>(options.integer("seed")));
  shuffle(folders.files, rng);
  const auto total = static_cast<int64_t>(folders.files.size());
  for (int64_t i = 0; i < total; ++i) {
    const ClassFile& file = folders.files[static_cast<size_t>(i)];
    packing.add(file, aside[static_cast<size_t>(file.label)], result);
    if (progress && (i % 64 == 63 || i + 1 == total) && !progress(i + 1, total))
      fail(Code::cancelled, "packing was stopped after ", i + 1, " of ", counted(total, "file"));
  }
  packing.require_samples();
  write_class_names(result.classes_file, result.classes);
  packing.finish(result);
  return result;
}

}  // namespace etr::sources
