// Samples from a folder of class folders: root/CLASS/NAME.png. Classes are numbered in the order of
// their names; the number is written to the field "cls" as text, as WebDataset shards hold it.
#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/platform.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;
namespace fs = std::filesystem;

constexpr OptionSpec kOptions[] = {
    {"root", OptionType::string, nullptr, "folder whose sub-folders are the classes"},
    {"shuffle", OptionType::boolean, "true", "visit the files in a new order each pass"},
};

class Folder final : public Source {
 public:
  Folder(const Options& options, const StageContext& context)
      : root_(options.string("root")), shuffle_(options.boolean("shuffle")), context_(context) {}

  void start_pass(uint64_t epoch, uint64_t pass) override {
    if (files_.empty()) list();
    order_.resize(files_.size());
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<uint32_t>(i);
    Rng rng(context_.seed, epoch, pass, context_.position);
    for (size_t i = order_.size(); shuffle_ && i > 1; --i)
      std::swap(order_[i - 1], order_[rng.below(static_cast<uint32_t>(i))]);
    next_ = 0;
  }

  bool next(Item& item) override {
    if (next_ >= order_.size()) return false;
    const File& file = files_[order_[next_++]];
    item.origin = std::make_shared<Origin>(root_, file.name);
    size_t size = 0;
    auto bytes = platform::map_file(root_ + "/" + file.name, size);
    item.fields.push_back(
        {file.extension, Tensor(DType::u8, {static_cast<int64_t>(size)}, std::move(bytes))});
    Tensor label(DType::u8, {static_cast<int64_t>(file.label.size())});
    std::copy(file.label.begin(), file.label.end(), label.mutable_view<char>().begin());
    item.fields.push_back({"cls", std::move(label)});
    return true;
  }

 private:
  struct File {
    std::string name;  // relative to the root
    std::string extension, label;
  };

  static std::vector<fs::path> sorted_entries(const fs::path& directory) {
    std::vector<fs::path> out;
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
      out.push_back(it->path());
    if (error) fail(Code::io, "cannot list '", directory.string(), "': ", error.message());
    std::sort(out.begin(), out.end());
    return out;
  }

  void list() {
    int label = 0;
    for (const fs::path& folder : sorted_entries(root_)) {
      if (!fs::is_directory(folder)) continue;
      for (const fs::path& file : sorted_entries(folder)) {
        if (!fs::is_regular_file(file)) continue;
        std::string extension = file.extension().string();
        extension.erase(0, 1);
        files_.push_back({folder.filename().string() + "/" + file.filename().string(), extension,
                          std::to_string(label)});
      }
      ++label;
    }
    if (files_.empty())
      fail(Code::not_found, "'", root_, "' has no files in class folders (root/CLASS/NAME.png)");
  }

  const std::string root_;
  const bool shuffle_;
  const StageContext context_;
  std::vector<File> files_;
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
