// One sample per file: its bytes in a field named by the extension, the name of its folder as text
// in "folder", and its name in "name".
#include "core/error.h"
#include "core/utf8.h"
#include "io/pattern.h"
#include "io/remote_file.h"
#include "sources/data_files.h"
#include "sources/indexed_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr, "path of the files, may contain globs and braces", 0,
     0, "path"},
    kShuffleOption,
};

class Files final : public IndexedSource {
 public:
  Files(const Options& options, const StageContext& context)
      : IndexedSource(options, context), pattern_(options.string("pattern")) {}

 protected:
  uint64_t count() override {
    if (io::is_remote(pattern_))
      fail(Code::unsupported, "'", pattern_,
           "': the source 'files' reads only local files; pack remote ones into shards");
    if (paths_.empty()) paths_ = io::expand_pattern(pattern_);
    return paths_.size();
  }

  std::vector<std::string> paths() const override { return paths_; }
  bool file_a_record() const override { return true; }
  uint64_t stamp_of_file(uint64_t index) const override {
    return stamp_of(paths_[index], folder_of(paths_[index]));
  }

  void read(uint64_t index, Item& item) override {
    const std::string& path = paths_[index];
    item.origin = std::make_shared<Origin>(Origin{shard_, path});
    const size_t slash = path.rfind('/');
    const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    const size_t dot = name.rfind('.');
    item.fields.push_back(
        {dot == std::string::npos ? "bytes" : as_utf8(name.substr(dot + 1)), read_file(path)});
    item.fields.push_back({"folder", Tensor::text(folder_of(path))});
    item.fields.push_back({"name", Tensor::text(name)});
  }

  bool reads_in_parallel() const override { return true; }

 private:
  // The name of the folder that contains the file.
  static std::string folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash);
    return folder.substr(folder.rfind('/') + 1);
  }

  const std::string pattern_;
  const std::shared_ptr<const std::string> shard_ = std::make_shared<std::string>(pattern_);
  std::vector<std::string> paths_;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec files_stage;
const StageSpec files_stage{"files", "reads each file as one sample", StageKind::source,
                            sources::kOptions, make_stage<sources::Files>};

}  // namespace etr::pipeline
