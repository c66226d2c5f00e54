// Sources with random access to their records: they shuffle the whole data set and skip records
// without reading them.
#pragma once

#include "core/error.h"
#include "core/platform_files.h"
#include "pipeline/permutation.h"
#include "pipeline/stage.h"
#include "sources/reading.h"

namespace etr::sources {

// A derived source implements count(), paths() and read(), and has the option kShuffleOption.
class IndexedSource : public pipeline::Source {
 public:
  IndexedSource(const Options& options, const pipeline::StageContext& context)
      : shuffle_(options.boolean("shuffle")), context_(context) {}

  Json data() final;
  Json changed() final;

  std::optional<uint64_t> samples() final { return of_part(count()); }

  void start_pass(uint64_t epoch, uint64_t pass) final {
    const uint64_t n = count();
    if (n >> pipeline::kPassShift != 0)
      fail(Code::unsupported, "a source of ", n, " records; at most 2^", pipeline::kPassShift);
    Rng rng(context_.seed, epoch, pass, context_.position);
    const uint64_t key = uint64_t{rng.next_u32()} << 32 | rng.next_u32();
    order_ = shuffle_ ? pipeline::Permutation(n, key) : pipeline::Permutation::identity(n);
    next_ = 0;
    end_ = of_part(n);
  }

  bool next(pipeline::Item& item) final {
    if (next_ >= end_) return false;
    record_ = place(next_++);
    if (deferred_)
      item.record = record_;
    else
      read(record_, item);
    return true;
  }

  std::unique_ptr<pipeline::MapStage> reader() final {
    deferred_ = reads_in_parallel();
    return deferred_ ? std::make_unique<Reader>(*this) : nullptr;
  }

  bool skip() final { return next_ < end_ && ++next_; }

  bool numbers_records() const final { return true; }
  std::optional<uint64_t> upcoming() final {
    return next_ < end_ ? std::optional(place(next_)) : std::nullopt;
  }
  uint64_t record() const final { return record_; }
  uint64_t stamp(uint64_t record) final { return file_a_record() ? stamp_of_file(record) : 0; }

 protected:
  // The number of records. Called repeatedly: the first call opens what is needed.
  virtual uint64_t count() = 0;
  // The files that contain the records, valid after count(), and whether each file is one record.
  virtual std::vector<std::string> paths() const = 0;
  virtual bool file_a_record() const { return false; }
  virtual uint64_t stamp_of_file(uint64_t /*index*/) const { return 0; }  // if file_a_record()
  // Adds to data() what else decides what the samples are; valid after count().
  virtual void describe(Json& /*data*/) const {}
  // How to read remote and local files.
  io::RemoteOptions remote() const { return remote_options(context_); }
  io::ReadOptions reading() const { return read_options(context_); }
  // Fills origin and fields with record `index`. Throws Error for a bad record.
  virtual void read(uint64_t index, pipeline::Item& item) = 0;
  // Throws Error(unsupported) if a record of the file exceeds the memory limit of a record.
  void check_record(const std::string& path, uint64_t bytes) const {
    const io::SizeLimit limit = record_limit(context_);
    if (bytes > limit.bytes)
      fail(Code::unsupported, "'", path, "': a record takes ", bytes, " bytes; the limit is ",
           limit.bytes, " (", limit.name, ")");
  }
  // Reads a whole file, which is one record, as u8 [bytes].
  Tensor read_file(const std::string& path) const {
    const io::SizeLimit limit = record_limit(context_);
    size_t size = 0;
    auto bytes = platform::read_bytes(path, size, limit.bytes, limit.name, context_.interrupt);
    return Tensor(DType::u8, {static_cast<int64_t>(size)}, std::move(bytes));
  }
  // Whether many threads may call read() at once, and it is expensive enough to benefit.
  virtual bool reads_in_parallel() const { return false; }

 private:
  class Reader final : public pipeline::MapStage {
   public:
    explicit Reader(IndexedSource& source) : source_(source) {}
    void process(pipeline::Item& item, uint64_t) const override {
      source_.read(*item.record, item);
    }

   private:
    IndexedSource& source_;
  };

  uint64_t of_part(uint64_t n) const {
    return (n + context_.parts - 1 - context_.part) / context_.parts;
  }
  uint64_t place(uint64_t i) const { return order_[i * context_.parts + context_.part]; }

  const bool shuffle_;
  const pipeline::StageContext context_;
  pipeline::Permutation order_;
  uint64_t next_ = 0, end_ = 0, record_ = 0;
  bool deferred_ = false;  // records are read by a Reader
};

constexpr OptionSpec kShuffleOption = {"shuffle", OptionType::boolean, "true",
                                       "read the records in a new random order in each pass"};

}  // namespace etr::sources
