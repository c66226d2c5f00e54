// Samples from WebDataset shards: tar archives in which neighbouring members that share a name up
// to the first dot of the base name form one sample ("a/0017.jpg", "a/0017.cls"). Fields are named
// by what follows that dot.
#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "io/pattern.h"
#include "io/tar_reader.h"
#include "sources/sharded_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr,
     "shards, .tar, .tar.zst or .tar.gz: a path with globs and braces, 'train-{000..009}.tar.zst'",
     0, 0, "path"},
    kShuffleShardsOption,
    kMaxRatioOption,
    {"max_member_bytes", OptionType::integer, "2147483648", "larger members are an error", 1, 1e15,
     "bytes"},
    {"max_name_bytes", OptionType::integer, "4096", "longer names are an error", 1, 1e6, "bytes"},
    {"max_members", OptionType::integer, "100000000", "more members in a shard are an error", 1,
     1e15, "members"},
};

class WebDataset final : public ShardedSource {
 public:
  WebDataset(const Options& options, const StageContext& context)
      : ShardedSource(options, context),
        limits_{static_cast<uint64_t>(options.integer("max_member_bytes")),
                static_cast<uint64_t>(options.integer("max_name_bytes")),
                static_cast<uint64_t>(options.integer("max_members"))} {}

 protected:
  void open(const std::string& path) override {
    tar_ = std::make_unique<io::TarReader>(stream_of(path), path, limits_);
  }

  // Gathers members until the key changes.
  bool read(Item& item) override {
    if (!has_member_ && !(has_member_ = tar_->next(member_))) return false;
    auto [key, extension] = split_name(member_.name);
    key_ = key;
    offset_ = static_cast<int64_t>(member_.offset);
    item.origin = origin(key);
    item.fields.clear();
    item.fields.reserve(4);
    while (has_member_) {
      auto [next_key, field] = split_name(member_.name);
      if (next_key != key) break;
      item.fields.push_back(
          {std::move(field), Tensor(DType::u8, {static_cast<int64_t>(member_.data.size)},
                                    std::move(member_.data.data))});
      has_member_ = tar_->next(member_);
    }
    return true;
  }

  void close() override {
    tar_.reset();
    has_member_ = false;
    key_.clear();
    offset_ = -1;
  }

  std::string current_key() const override { return key_; }
  int64_t current_offset() const override { return offset_; }

 private:
  static std::pair<std::string, std::string> split_name(const std::string& name) {
    const size_t slash = name.rfind('/');
    const size_t dot = name.find('.', slash == std::string::npos ? 0 : slash + 1);
    if (dot == std::string::npos) return {name, ""};
    return {name.substr(0, dot), name.substr(dot + 1)};
  }

  const io::TarLimits limits_;
  std::unique_ptr<io::TarReader> tar_;
  io::TarMember member_;  // read ahead
  bool has_member_ = false;
  std::string key_;  // of the current sample
  int64_t offset_ = -1;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec webdataset_stage;
const StageSpec webdataset_stage{"webdataset", "samples from tar shards, plain, .zst or .gz",
                                 StageKind::source, sources::kOptions,
                                 make_stage<sources::WebDataset>};

}  // namespace etr::pipeline
