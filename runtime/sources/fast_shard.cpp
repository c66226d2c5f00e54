// Samples from fast shards, as written by `echotrain pack --format fast`: random access, shuffled
// over all shards.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "core/utf8.h"
#include "core/zstd.h"
#include "core/zstd_limit.h"
#include "io/fast_shard.h"
#include "io/pattern.h"
#include "io/remote_file.h"
#include "sources/indexed_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr,
     "path of the shards, may contain globs and braces: 'train-*.ets'", 0, 0, "path"},
    kShuffleOption,
};

class FastShardSource final : public IndexedSource {
 public:
  FastShardSource(const Options& options, const StageContext& context)
      : IndexedSource(options, context),
        pattern_(options.string("pattern")),
        max_field_bytes_(record_limit(context)) {}

  double holds_bytes(double) override {
    size_t sum = 0;
    for (const auto& shard : shards_) sum += shard->held_bytes();
    return static_cast<double>(sum);
  }

 protected:
  uint64_t count() override {
    if (shards_.empty()) open();
    return begins_.back();
  }

  std::vector<std::string> paths() const override {
    std::vector<std::string> out;
    for (const auto& path : paths_) out.push_back(*path);
    return out;
  }

  void read(uint64_t index, Item& item) override {
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), index);
    const auto shard = static_cast<size_t>(after - begins_.begin()) - 1;
    const io::FastShard::Record record = record_of(shard, index - begins_[shard], item);
    item.origin = std::make_shared<Origin>(Origin{paths_[shard], std::string(record.key)});
    for (const auto& field : record.fields)
      item.fields.push_back({as_utf8(field.name), tensor_of(field, shards_[shard])});
  }

  bool reads_in_parallel() const override { return true; }

 private:
  // Names the record by its number if its key cannot be read.
  io::FastShard::Record record_of(size_t shard, uint64_t number, Item& item) const {
    try {
      return shards_[shard]->record(number);
    } catch (const Error&) {
      item.origin = std::make_shared<Origin>(Origin{paths_[shard], cat("record ", number)});
      throw;
    }
  }

  std::shared_ptr<io::FastShard> shard_of(const std::string& path,
                                          const std::optional<io::RemoteState>& state) const {
    if (!io::is_remote(path)) return std::make_shared<io::FastShard>(path, reading());
    for (bool again = false;; again = true) {
      const std::string fetched = io::fetch_remote(path, remote(), state);
      try {
        return std::make_shared<io::FastShard>(fetched, reading());
      } catch (const Error& error) {  // it names the file of the cache
        // Another process may have made room by removing it.
        if (error.code() == Code::not_found && !again) continue;
        throw Error(error.code(), cat("'", path, "': ", error.what()));
      }
    }
  }

  // What servers say about remote shards.
  std::vector<std::optional<io::RemoteState>> states_of(
      const std::vector<std::string>& found) const {
    if (remote().cache_dir.empty())  // fetching fails without one
      return std::vector<std::optional<io::RemoteState>>(found.size());
    return io::ask_remote(found, remote());
  }

  // Fetching a shard that the cache has no room for would remove one of those before it, whose
  // records are read later. `are_all`: no shard's length is left to be learned from its file.
  void check_room(uint64_t bytes, ptrdiff_t shards, bool are_all) const {
    const uint64_t most = remote().cache_bytes;
    if (shards <= 1 || bytes <= most) return;
    const std::string least = are_all ? cat("at least ", bytes) : "more than that";
    fail(Code::invalid_argument, "'", pattern_, "': its ", shards, " remote shards take ",
         are_all ? "" : "at least ", bytes, " bytes, and the cache that they are read from keeps ",
         most, ": set the pipeline's remote_cache_bytes to ", least);
  }

  // If one cannot be opened, none is kept: the next call would go on without those behind it.
  void open() {
    std::vector<std::shared_ptr<io::FastShard>> shards;
    std::vector<std::shared_ptr<const std::string>> paths;
    std::vector<uint64_t> begins{0};
    const std::vector<std::string> found = io::expand_pattern(pattern_, remote());
    const auto states = states_of(found);
    const auto fetched = std::count_if(found.begin(), found.end(), io::is_remote);
    auto unknown = fetched;
    uint64_t bytes = 0;
    for (const auto& state : states) {
      bytes += state ? state->bytes : 0;
      unknown -= state ? 1 : 0;
    }
    check_room(bytes, fetched, unknown == 0);
    for (size_t i = 0; i < found.size(); ++i) {
      shards.push_back(shard_of(found[i], states[i]));
      if (io::is_remote(found[i]) && !states[i]) {
        bytes += shards.back()->file_bytes();
        check_room(bytes, fetched, --unknown == 0);
      }
      paths.push_back(std::make_shared<std::string>(found[i]));
      begins.push_back(begins.back() + shards.back()->size());
    }
    shards_ = std::move(shards);
    paths_ = std::move(paths);
    begins_ = std::move(begins);
  }

  // Leaves images compressed, so that `decode` decompresses them on all threads.
  Tensor tensor_of(const io::FastShard::Field& field,
                   const std::shared_ptr<io::FastShard>& shard) const {
    if (!field.frame.data) {
      const auto* bytes = reinterpret_cast<const std::byte*>(field.value.data());
      return Tensor(DType::u8, {static_cast<int64_t>(field.value.size())},
                    std::shared_ptr<const std::byte>(shard, bytes));
    }
    if (field.name == "eti")
      return Tensor(DType::u8, {static_cast<int64_t>(field.frame.size)}, field.frame.data);
    const uint64_t size = ZSTD_getFrameContentSize(field.frame.data.get(), field.frame.size);
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN)
      fail(Code::corrupt_data, "field '", field.name, "' is not a zstd frame that states its size");
    if (size > max_field_bytes_.bytes)
      fail(Code::unsupported, "field '", field.name, "' has ", size, " bytes; the limit is ",
           max_field_bytes_.bytes, " (", max_field_bytes_.name, ")");
    if (!io::in_proportion(size, field.frame.size, kMostOfZstd))
      fail(Code::corrupt_data, "field '", field.name, "' is damaged: ", field.frame.size,
           " bytes cannot hold the ", size, " that its frame promises");
    Tensor out(DType::u8, {static_cast<int64_t>(size)});
    const auto& frame = field.frame;
    if (zstd_result(ZSTD_decompress(out.mutable_data(), size, frame.data.get(), frame.size)) !=
        size)
      fail(Code::corrupt_data, "field '", field.name, "' is damaged");
    return out;
  }

  const std::string pattern_;
  const io::SizeLimit max_field_bytes_;
  std::vector<std::shared_ptr<io::FastShard>> shards_;
  std::vector<std::shared_ptr<const std::string>> paths_;
  std::vector<uint64_t> begins_{0};  // number of each shard's first record, then the total
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec fast_shard_stage;
const StageSpec fast_shard_stage{"fast_shard", "reads samples from fast shards by index",
                                 StageKind::source, sources::kOptions,
                                 make_stage<sources::FastShardSource>};

}  // namespace etr::pipeline
