// Samples from a folder of class folders: root/CLASS/NAME.png. Classes are numbered in the order of
// their names; the number is written to the field "cls" as text, as WebDataset shards hold it.
#include "core/utf8.h"
#include "sources/class_folders.h"
#include "sources/indexed_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"root", OptionType::string, nullptr, "folder whose sub-folders are the classes"},
    kShuffleOption,
};

class Folder final : public IndexedSource {
 public:
  Folder(const Options& options, const StageContext& context)
      : IndexedSource(options, context),
        root_(options.string("root")),
        max_file_bytes_(file_limit()) {}

 protected:
  uint64_t count() override {
    if (files_.empty()) files_ = list_class_folders(root_).files;
    return files_.size();
  }

  void read(uint64_t index, Item& item) override {
    const ClassFile& file = files_[index];
    item.origin = std::make_shared<Origin>(Origin{root_text_, file.name});
    item.fields.push_back(
        {as_utf8(file.extension), read_file(root_ + "/" + file.name, max_file_bytes_)});
    item.fields.push_back({"cls", Tensor::text(std::to_string(file.label))});
  }

  bool reads_in_parallel() const override { return true; }

 private:
  const std::string root_;
  const io::SizeLimit max_file_bytes_;
  const std::shared_ptr<const std::string> root_text_ = std::make_shared<std::string>(root_);
  std::vector<ClassFile> files_;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec folder_stage;
const StageSpec folder_stage{"folder", "samples from a folder of class folders", StageKind::source,
                             sources::kOptions, make_stage<sources::Folder>};

}  // namespace etr::pipeline
