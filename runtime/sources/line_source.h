// Sources that read files line by line.
#pragma once

#include <memory>
#include <string>

#include "core/error.h"
#include "io/line_reader.h"
#include "sources/reading.h"
#include "sources/sharded_source.h"

namespace etr::sources {

// A derived source implements read() and has the options of ShardedSource and kMaxLineOption.
class LineSource : public ShardedSource {
 public:
  LineSource(const Options& options, const pipeline::StageContext& context)
      : ShardedSource(options, context),
        max_line_bytes_(size_limit(options, "max_line_bytes", context)) {}

 protected:
  void open(const std::string& path) override {
    lines_ = std::make_unique<io::LineReader>(stream_of(path), path, max_line_bytes_);
  }
  void close() override { lines_.reset(); }
  bool can_go_on() const override { return lines_ && lines_->can_go_on(); }
  std::string current_key() const override { return lines_ ? cat("line ", line_number()) : ""; }

  bool next_line(std::string& line) { return lines_->next(line); }
  const char* line_ending() const { return lines_->ending(); }  // of the last line read
  uint64_t line_number() const { return lines_->number(); }     // of the last line read, from 1

  const io::SizeLimit& max_line_bytes() const { return max_line_bytes_; }

 private:
  const io::SizeLimit max_line_bytes_;
  std::unique_ptr<io::LineReader> lines_;
};

constexpr OptionSpec kMaxLineOption = {
    "max_line_bytes", OptionType::integer, "268435456", "longer lines are an error", 1, 1e12,
    "bytes"};

}  // namespace etr::sources
