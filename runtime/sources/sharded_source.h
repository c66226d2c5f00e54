// Sources that read files front to back, one after the other, in a new order each pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipeline/stage.h"

namespace etr::sources {

// A stage derives, has the options kPatternOption (its own sentence) and kShuffleShardsOption, and
// gives open(), read() and close().
class ShardedSource : public pipeline::Source {
 public:
  ShardedSource(const Options& options, const pipeline::StageContext& context);

  void start_pass(uint64_t epoch, uint64_t pass) final;
  bool next(pipeline::Item& item) final;

 protected:
  virtual void open(const std::string& path) = 0;
  // The next sample of the open file, with its origin: origin(key). False at the file's end.
  virtual bool read(pipeline::Item& item) = 0;
  virtual void close() = 0;
  // After read() has thrown: whether the next call can go on behind the bad record.
  virtual bool can_go_on() const { return false; }
  // What read() was at, for the error.
  virtual std::string current_key() const { return ""; }

  std::shared_ptr<const pipeline::Origin> origin(std::string key);

 private:
  void leave(size_t shards = 0);  // closes, and goes on by so many

  const std::string pattern_;
  const bool shuffle_;
  const pipeline::StageContext context_;
  std::vector<std::string> paths_;
  std::vector<size_t> order_;
  size_t shard_ = 0;
  bool open_ = false;
  std::shared_ptr<const std::string> shard_path_;  // of the open shard; shared by its samples
};

constexpr OptionSpec kShuffleShardsOption = {"shuffle_shards", OptionType::boolean, "true",
                                             "read the files in a new order each pass"};

}  // namespace etr::sources
