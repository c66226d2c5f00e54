// CIFAR's binary files, plain, .gz or .zst: records of one label byte (CIFAR-100: coarse and fine)
// and 3072 bytes of planar RGB, 32 x 32. Format: https://www.cs.toronto.edu/~kriz/cifar.html
#include <algorithm>
#include <memory>

#include "core/error.h"
#include "io/pattern.h"
#include "io/record_file.h"
#include "sources/indexed_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr,
     "path of the files, may contain globs and braces: 'data_batch_{1..5}.bin'", 0, 0, "path"},
    {"labels", OptionType::string, "\"cifar10\"",
     "format of the label bytes, and which label of CIFAR-100 is used", 0, 0, "",
     "cifar10|cifar100|cifar100_coarse"},
    kShuffleOption,
};

constexpr size_t kSide = 32, kPlane = kSide * kSide, kPixels = 3 * kPlane;

class Cifar final : public IndexedSource {
 public:
  Cifar(const Options& options, const StageContext& context)
      : IndexedSource(options, context),
        pattern_(options.string("pattern")),
        label_bytes_(options.string("labels") == "cifar10" ? 1 : 2),
        label_at_(options.string("labels") == "cifar100" ? 1 : 0) {}

  double holds_bytes(double) override {
    size_t sum = 0;
    for (const File& file : files_) sum += file.bytes->held_bytes();
    return static_cast<double>(sum);
  }

 protected:
  uint64_t count() override {
    if (files_.empty()) files_ = open();
    return files_.back().end;
  }

  std::vector<std::string> paths() const override {
    std::vector<std::string> out;
    for (const File& file : files_) out.push_back(*file.path);
    return out;
  }

  void read(uint64_t index, Item& item) override {
    const auto file = std::upper_bound(files_.begin(), files_.end(), index,
                                       [](uint64_t i, const File& f) { return i < f.end; });
    const uint64_t first = file == files_.begin() ? 0 : std::prev(file)->end;
    item.origin = std::make_shared<Origin>(Origin{file->path, std::to_string(index - first)});
    const auto bytes = file->bytes->read((index - first) * record_bytes(), record_bytes());
    const std::byte* record = bytes.get();
    Tensor image(DType::u8, {kSide, kSide, 3});
    const auto out = image.mutable_view<std::byte>();
    for (size_t p = 0; p < kPlane; ++p)
      for (size_t c = 0; c < 3; ++c) out[3 * p + c] = record[label_bytes_ + c * kPlane + p];
    item.fields.push_back({"image", std::move(image)});
    item.fields.push_back(
        {"label", Tensor::scalar(DType::i32, std::to_integer<int32_t>(record[label_at_]))});
  }

 private:
  struct File {
    std::shared_ptr<const std::string> path;
    std::unique_ptr<const io::RecordFile> bytes;
    uint64_t end;  // number of records up to and including this file
  };

  size_t record_bytes() const { return label_bytes_ + kPixels; }

  std::vector<File> open() const {
    std::vector<File> files;
    uint64_t records = 0;
    for (const std::string& path : io::expand_pattern(pattern_, remote())) {
      auto bytes = std::make_unique<io::RecordFile>(path, reading());
      if (bytes->size() == 0 || bytes->size() % record_bytes() != 0)
        fail(Code::corrupt_data, "'", path, "' has ", bytes->size(),
             " bytes, which is not a number of records of ", record_bytes(),
             " bytes; is it another CIFAR (option 'labels')?");
      records += bytes->size() / record_bytes();
      files.push_back({std::make_shared<std::string>(path), std::move(bytes), records});
    }
    return files;
  }

  const std::string pattern_;
  const size_t label_bytes_, label_at_;
  std::vector<File> files_;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec cifar_stage;
const StageSpec cifar_stage{"cifar", "images and labels from CIFAR's binary files",
                            StageKind::source, sources::kOptions, make_stage<sources::Cifar>};

}  // namespace etr::pipeline
