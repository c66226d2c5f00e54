// Samples from WebDataset shards: tar archives in which neighbouring members that share a name up
// to the first dot of the base name form one sample ("a/0017.jpg", "a/0017.cls"). Fields are named
// by what follows that dot.
#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "io/pattern.h"
#include "io/tar_reader.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr,
     "shards, .tar or .tar.zst: a path with globs and braces, 'train-{000..009}.tar.zst'"},
    {"shuffle_shards", OptionType::boolean, "true", "read the shards in a new order each pass"},
};

class WebDataset final : public Source {
 public:
  WebDataset(const Options& options, const StageContext& context)
      : pattern_(options.string("pattern")),
        shuffle_(options.boolean("shuffle_shards")),
        context_(context) {}

  void start_pass(uint64_t epoch, uint64_t pass) override {
    if (paths_.empty()) paths_ = io::expand_pattern(pattern_);
    order_.resize(paths_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    Rng rng(context_.seed, epoch, pass, context_.position);
    for (size_t i = order_.size(); shuffle_ && i > 1; --i)
      std::swap(order_[i - 1], order_[rng.below(static_cast<uint32_t>(i))]);
    shard_ = 0;
    close_shard();
  }

  bool next(Item& item) override {
    while (shard_ < order_.size()) {
      const std::string& path = paths_[order_[shard_]];
      try {
        if (!tar_) tar_ = std::make_unique<io::TarReader>(io::open_stream(path), path);
        if (next_sample(item)) return true;
      } catch (const Error&) {  // the rest of this shard is lost; go on with the next
        item.origin = std::make_shared<Origin>(Origin{shard_path(), key_});
        ++shard_;
        close_shard();
        throw;
      }
      ++shard_;
      close_shard();
    }
    return false;
  }

 private:
  // Gathers members until the key changes.
  bool next_sample(Item& item) {
    if (!has_member_ && !(has_member_ = tar_->next(member_))) return false;
    auto [key, extension] = split(member_.name);
    key_ = key;
    item.origin = std::make_shared<Origin>(Origin{shard_path(), key});
    item.fields.clear();
    item.fields.reserve(4);
    while (has_member_) {
      auto [next_key, field] = split(member_.name);
      if (next_key != key) break;
      item.fields.push_back(
          {std::move(field), Tensor(DType::u8, {static_cast<int64_t>(member_.data.size)},
                                    std::move(member_.data.data))});
      has_member_ = tar_->next(member_);
    }
    return true;
  }

  static std::pair<std::string, std::string> split(const std::string& name) {
    const size_t slash = name.rfind('/');
    const size_t dot = name.find('.', slash == std::string::npos ? 0 : slash + 1);
    if (dot == std::string::npos) return {name, ""};
    return {name.substr(0, dot), name.substr(dot + 1)};
  }

  const std::shared_ptr<const std::string>& shard_path() {
    if (!shard_path_) shard_path_ = std::make_shared<std::string>(paths_[order_[shard_]]);
    return shard_path_;
  }

  void close_shard() {
    tar_.reset();
    shard_path_.reset();
    has_member_ = false;
    key_.clear();
  }

  const std::string pattern_;
  const bool shuffle_;
  const StageContext context_;
  std::vector<std::string> paths_;
  std::vector<size_t> order_;
  size_t shard_ = 0;
  std::unique_ptr<io::TarReader> tar_;
  std::shared_ptr<const std::string> shard_path_;  // of the open shard
  io::TarMember member_;                           // read ahead
  bool has_member_ = false;
  std::string key_;  // of the current sample
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec webdataset_stage;
const StageSpec webdataset_stage{"webdataset", "samples from .tar and .tar.zst shards",
                                 StageKind::source, stages::kOptions,
                                 make_stage<stages::WebDataset>};

}  // namespace etr::pipeline
