// Samples from a folder of class folders: root/CLASS/NAME.png. Classes are numbered in the order of
// their names. The number is stored in the field "cls" as text, as in WebDataset shards.
#include <algorithm>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "core/utf8.h"
#include "sources/class_folders.h"
#include "sources/data_files.h"
#include "sources/indexed_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"root", OptionType::string, nullptr, "folder whose sub-folders are the classes", 0, 0, "path"},
    {"extensions", OptionType::string, "\"png,jpg,jpeg\"",
     "file name extensions of samples (case-insensitive); other files are named in the log. Empty: "
     "every file that has an extension"},
    kShuffleOption,
    {"validation_every", OptionType::integer, "0",
     "hold out one of this many files of each class for validation; 0: none", 0, 1e9, "files", "",
     "hold_out"},
    {"validation_only", OptionType::boolean, "false",
     "read the held-out files instead of the others", 0, 0, "", "", "held_out"},
};

class Folder final : public IndexedSource {
 public:
  Folder(const Options& options, const StageContext& context)
      : IndexedSource(options, context),
        root_(options.string("root")),
        extensions_(extensions_of(options.string("extensions"))),
        is_trial_(context.trial),
        every_(options.integer("validation_every")),
        validation_only_(options.boolean("validation_only")) {
    if (every_ == 1)
      fail(Code::invalid_argument, "folder: a validation_every of 1 leaves nothing to train on");
    if (validation_only_ && every_ == 0)
      fail(Code::invalid_argument,
           "folder: validation_only needs 'validation_every', which says how many");
  }

 protected:
  uint64_t count() override {
    if (files_.empty()) {
      ClassFolders listed = list_class_folders(root_, extensions_);
      classes_ = std::move(listed.classes);
      files_ = part_of(std::move(listed.files));
      if (!is_trial_) warn(listed.skipped);
    }
    return files_.size();
  }

  std::vector<std::string> paths() const override {
    std::vector<std::string> out;
    for (const ClassFile& file : files_) out.push_back(file.name);
    return out;
  }
  bool file_a_record() const override { return true; }
  uint64_t stamp_of_file(uint64_t index) const override {
    return stamp_of(root_ + "/" + files_[index].name);
  }

  // A class folder without a sample has a number too, so the files alone do not tell the labels.
  void describe(Json& data) const override {
    uint32_t digest = 0;
    for (const std::string& name : classes_) {
      const std::string line = name + "\n";
      digest = crc32c(std::as_bytes(std::span(line)), digest);
    }
    data["classes"] = {{"count", classes_.size()}, {"digest", digest}};
  }

  void read(uint64_t index, Item& item) override {
    const ClassFile& file = files_[index];
    item.origin = std::make_shared<Origin>(Origin{root_text_, file.name});
    item.fields.push_back({as_utf8(file.extension), read_file(root_ + "/" + file.name)});
    item.fields.push_back({"cls", Tensor::text(std::to_string(file.label))});
  }

  bool reads_in_parallel() const override { return true; }

 private:
  static std::vector<std::string> extensions_of(const std::string& listed) {
    std::vector<std::string> out;
    if (trim(listed).empty()) return out;
    for (std::string_view extension : split(listed, ',')) {
      extension = trim(extension);
      if (extension.starts_with('.')) extension.remove_prefix(1);
      if (extension.empty())
        fail(Code::invalid_argument, "folder: 'extensions' is '", listed,
             "'; write them with commas between them, as in 'png,jpg,jpeg'");
      out.push_back(lower_case(extension));
    }
    return out;
  }

  // Does not mention hidden files.
  void warn(std::vector<Skipped> skipped) const {
    std::erase_if(skipped, [](const Skipped& s) { return s.hidden; });
    if (skipped.empty()) return;
    constexpr size_t kNamed = 3;
    std::string names;
    for (size_t i = 0; i < std::min(kNamed, skipped.size()); ++i)
      names += cat(i ? ", '" : "'", skipped[i].name, "' (", skipped[i].reason, ")");
    if (skipped.size() > kNamed) names += ", ...";
    log_line(LogLevel::warning,
             cat("folder: '", root_, "' holds ",
                 counted(static_cast<int64_t>(skipped.size()), "entry", "entries"),
                 " beside its samples, which are passed over: ", names));
  }

  std::vector<ClassFile> part_of(std::vector<ClassFile> files) const {
    if (every_ == 0) return files;
    int64_t number = 0;  // in its class
    int label = -1;
    std::erase_if(files, [&](const ClassFile& file) {
      number = file.label == label ? number + 1 : 0;
      label = file.label;
      return (number % every_ == 1) != validation_only_;
    });
    if (files.empty())
      fail(Code::not_found, "'", root_,
           "' has no class with two or more files, from which one could be held out");
    return files;
  }

  const std::string root_;
  const std::vector<std::string> extensions_;
  const bool is_trial_;
  const std::shared_ptr<const std::string> root_text_ = std::make_shared<std::string>(root_);
  const int64_t every_;
  const bool validation_only_;
  std::vector<std::string> classes_;
  std::vector<ClassFile> files_;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec folder_stage;
const StageSpec folder_stage{"folder",
                             "reads images from a folder with one sub-folder for each class",
                             StageKind::source, sources::kOptions, make_stage<sources::Folder>};

}  // namespace etr::pipeline
