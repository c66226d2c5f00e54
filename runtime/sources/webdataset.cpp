// Samples from WebDataset shards: tar archives in which adjacent members with the same name up to
// the first dot of the base name form a sample ("a/0017.jpg", "a/0017.cls"). The part after that
// dot names the field.
#include <exception>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"
#include "io/tar_reader.h"
#include "sources/reading.h"
#include "sources/sharded_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr,
     "path of the shards (.tar, .tar.zst, .tzst, .tar.gz, .tgz), may contain globs and braces: "
     "'train-{000..009}.tar.zst'",
     0, 0, "path"},
    kShuffleShardsOption,
    kMaxRatioOption,
    {"max_member_bytes", OptionType::integer, "2147483648", "larger members are an error", 1, 1e15,
     "bytes"},
    {"max_name_bytes", OptionType::integer, "4096", "longer names are an error", 1, 1e6, "bytes"},
    {"max_members", OptionType::integer, "100000000", "shards with more members are an error", 1,
     1e15, "members"},
};

class WebDataset final : public ShardedSource {
 public:
  WebDataset(const Options& options, const StageContext& context)
      : ShardedSource(options, context),
        limits_{size_limit(options, "max_member_bytes", context),
                static_cast<uint64_t>(options.integer("max_name_bytes")),
                static_cast<uint64_t>(options.integer("max_members")),
                options.number("max_ratio")} {}

 protected:
  void open(const std::string& path) override {
    tar_ = std::make_unique<io::TarReader>(stream_of(path), path, limits_);
  }

  // Collects members until the key changes.
  bool read(Item& item) override {
    if (late_) std::rethrow_exception(std::exchange(late_, nullptr));
    if (!has_member_) advance();
    while (has_member_ && bad_key_ && split_name(member_.name).first == *bad_key_) advance();
    bad_key_.reset();
    if (!has_member_) return false;
    key_ = split_name(member_.name).first;
    offset_ = static_cast<int64_t>(member_.offset);
    item.origin = origin(key_);
    item.fields.clear();
    item.fields.reserve(4);
    std::string twice;
    while (has_member_) {
      auto [key, field] = split_name(member_.name);
      if (key != key_) break;
      if (item.find(field)) twice = member_.name;
      item.fields.push_back(
          {std::move(field), Tensor(DType::u8, {static_cast<int64_t>(member_.data.size)},
                                    std::move(member_.data.data))});
      look_ahead();
    }
    if (!twice.empty())
      fail(Code::corrupt_data, "the sample has two members of the name '", twice, "'");
    return true;
  }

  bool can_go_on() const override { return tar_->can_go_on(); }

  void close() override {
    tar_.reset();
    has_member_ = false;
    late_ = nullptr;
    bad_key_.reset();
    key_.clear();
    offset_ = -1;
  }

  std::string current_key() const override { return at_bad_member() ? *bad_key_ : key_; }
  int64_t current_offset() const override {
    return at_bad_member() ? static_cast<int64_t>(tar_->last_offset()) : offset_;
  }

 private:
  static std::pair<std::string, std::string> split_name(const std::string& name) {
    const size_t slash = name.rfind('/');
    const size_t dot = name.find('.', slash == std::string::npos ? 0 : slash + 1);
    if (dot == std::string::npos) return {name, ""};
    return {name.substr(0, dot), as_utf8(name.substr(dot + 1))};
  }

  bool at_bad_member() const { return bad_key_ && !late_; }

  // Reads the next member. A bad member makes its whole sample bad.
  void advance() {
    has_member_ = false;
    try {
      has_member_ = tar_->next(member_);
    } catch (const Error&) {
      if (tar_->can_go_on()) bad_key_ = split_name(tar_->last_member()).first;
      throw;
    }
  }

  // Keeps an error for the next read(): a bad member of the next sample must not affect this one.
  void look_ahead() {
    try {
      advance();
    } catch (const Error&) {
      if (!tar_->can_go_on() || bad_key_ == key_) throw;
      late_ = std::current_exception();
    }
  }

  const io::TarLimits limits_;
  std::unique_ptr<io::TarReader> tar_;
  io::TarMember member_;  // read ahead
  bool has_member_ = false;
  std::exception_ptr late_;             // thrown while reading ahead
  std::optional<std::string> bad_key_;  // of a bad sample, whose other members are skipped
  std::string key_;                     // of the current sample
  int64_t offset_ = -1;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec webdataset_stage;
const StageSpec webdataset_stage{
    "webdataset", "reads samples from tar shards, plain or compressed (.zst, .gz)",
    StageKind::source, sources::kOptions, make_stage<sources::WebDataset>};

}  // namespace etr::pipeline
