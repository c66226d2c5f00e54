// Sources that read files front to back, one after the other, in a new order each pass.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/byte_stream.h"
#include "pipeline/stage.h"

namespace etr::sources {

// A derived source implements open(), read() and close(), and has the options "pattern",
// kShuffleShardsOption and kMaxRatioOption.
class ShardedSource : public pipeline::Source {
 public:
  ShardedSource(const Options& options, const pipeline::StageContext& context);

  Json data() final;
  Json changed() final;
  void start_pass(uint64_t epoch, uint64_t pass) final;
  bool next(pipeline::Item& item) final;
  bool skip() final;
  bool numbers_records() const final { return true; }
  std::optional<uint64_t> upcoming() final;
  uint64_t record() const final { return given_; }
  double holds_bytes(double sample_bytes) final;

 protected:
  virtual void open(const std::string& path) = 0;
  // Reads the next sample of the open file and sets its origin to origin(key). Returns false at the
  // end of the file.
  virtual bool read(pipeline::Item& item) = 0;
  virtual void close() = 0;
  // After read() has thrown: whether reading can continue after the bad record.
  virtual bool can_go_on() const { return false; }
  // For errors: the record that read() was at, and its offset in the uncompressed file; -1:
  // unknown.
  virtual std::string current_key() const { return ""; }
  virtual int64_t current_offset() const { return -1; }

  std::shared_ptr<const pipeline::Origin> origin(std::string key);
  // Only open() may call it, which keeps the stream until close().
  std::unique_ptr<io::ByteStream> stream_of(const std::string& path);

 private:
  void list();
  void leave(size_t shards = 0);  // closes the file and advances by `shards`
  void note_held();
  size_t shard() const { return order_[shard_]; }
  bool past_known_end() const;
  bool read_here(pipeline::Item& item);

  const std::string pattern_;
  const bool shuffle_;
  const pipeline::StageContext context_;
  const io::ReadOptions reading_;
  std::vector<std::string> paths_;
  std::vector<size_t> order_;
  size_t shard_ = 0;
  bool open_ = false;
  const io::ByteStream* stream_ = nullptr;  // of the open file
  uint64_t held_bytes_ = 0;                 // the most that a stream has held
  // How many records of the current shard were passed, and how many of these were read. Skipped
  // records are only read if a later one is wanted.
  uint64_t place_ = 0, read_ = 0;
  uint64_t given_ = 0;                             // number of the last record returned
  std::map<size_t, uint64_t> lengths_;             // of shards read to their end
  std::shared_ptr<const std::string> shard_path_;  // of the open shard; shared by its samples
};

constexpr OptionSpec kMaxRatioOption = {
    "max_ratio",
    OptionType::number,
    "10000",
    "largest ratio of decompressed to compressed size of a file, beyond the first megabyte",
    1,
    1e12};
constexpr OptionSpec kShuffleShardsOption = {"shuffle_shards", OptionType::boolean, "true",
                                             "read the files in a new random order in each pass"};

}  // namespace etr::sources
