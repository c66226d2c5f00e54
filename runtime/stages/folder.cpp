// Samples from a folder of class folders: root/CLASS/NAME.png. Classes are numbered in the order of
// their names; the number is written to the field "cls" as text, as WebDataset shards hold it.
#include <algorithm>

#include "core/platform.h"
#include "pipeline/stage.h"
#include "stages/class_folders.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"root", OptionType::string, nullptr, "folder whose sub-folders are the classes"},
    {"shuffle", OptionType::boolean, "true", "visit the files in a new order each pass"},
};

class Folder final : public Source {
 public:
  Folder(const Options& options, const StageContext& context)
      : root_(options.string("root")), shuffle_(options.boolean("shuffle")), context_(context) {}

  void start_pass(uint64_t epoch, uint64_t pass) override {
    list();
    order_.resize(files_.size());
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<uint32_t>(i);
    Rng rng(context_.seed, epoch, pass, context_.position);
    for (size_t i = order_.size(); shuffle_ && i > 1; --i)
      std::swap(order_[i - 1], order_[rng.below(static_cast<uint32_t>(i))]);
    next_ = 0;
  }

  std::optional<uint64_t> samples() override {
    list();
    return files_.size();
  }

  bool next(Item& item) override {
    if (next_ >= order_.size()) return false;
    const ClassFile& file = files_[order_[next_++]];
    item.origin = std::make_shared<Origin>(Origin{root_text_, file.name});
    size_t size = 0;
    auto bytes = platform::map_file(root_ + "/" + file.name, size);
    item.fields.push_back(
        {file.extension, Tensor(DType::u8, {static_cast<int64_t>(size)}, std::move(bytes))});
    const std::string text = std::to_string(file.label);
    Tensor label(DType::u8, {static_cast<int64_t>(text.size())});
    std::copy(text.begin(), text.end(), label.mutable_view<char>().begin());
    item.fields.push_back({"cls", std::move(label)});
    return true;
  }

 private:
  void list() {
    if (files_.empty()) files_ = list_class_folders(root_).files;
  }

  const std::string root_;
  const std::shared_ptr<const std::string> root_text_ = std::make_shared<std::string>(root_);
  const bool shuffle_;
  const StageContext context_;
  std::vector<ClassFile> files_;
  std::vector<uint32_t> order_;
  size_t next_ = 0;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec folder_stage;
const StageSpec folder_stage{"folder", "samples from a folder of class folders", StageKind::source,
                             stages::kOptions, make_stage<stages::Folder>};

}  // namespace etr::pipeline
