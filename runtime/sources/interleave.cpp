// Reads several files of a source at once, each on its own thread, and takes their samples in turn.
// Decompression and slow disks or networks overlap, and neighbouring samples of a file are spread.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "core/json.h"
#include "core/start_thread.h"
#include "sources/branch.h"
#include "sources/reading.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"sources", OptionType::stages, nullptr, "a single source that reads several files or records"},
    {"cycle_length", OptionType::integer, "4", "number of files that are read at once", 1, 200,
     "files", "", "ways"},
    {"ahead", OptionType::integer, "16", "samples that are read ahead from each of these files", 1,
     1e6, "samples"},
    {"ahead_bytes", OptionType::integer, "16777216",
     "bytes that are read ahead from each of these files; with 'budget_bytes', at most a quarter "
     "of it for all of them",
     1, 1e12, "bytes"},
};

// A thread that reads its part of the source into a bounded queue.
class Way {
 public:
  Way(std::unique_ptr<Branch> branch, size_t ahead, size_t ahead_bytes)
      : branch_(std::move(branch)), ahead_(ahead), ahead_bytes_(ahead_bytes) {}
  ~Way() { stop(); }

  void start_pass(uint64_t epoch, uint64_t pass) {
    stop();
    read_.clear();
    bytes_ = 0;
    ended_ = stop_ = false;
    failure_ = nullptr;
    thread_ = start_thread("a thread that reads a part of the files", "interleave's 'cycle_length'",
                           [this, epoch, pass] { run(epoch, pass); });
  }

  // Takes the next sample. Rethrows what reading it threw. Returns false at the end of the pass.
  bool next(Item& item) {
    Read read;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !read_.empty() || ended_; });
      if (read_.empty() && failure_) std::rethrow_exception(failure_);
      if (read_.empty()) return false;
      read = std::move(read_.front());
      read_.pop_front();
      bytes_ -= read.bytes;
    }
    changed_.notify_one();
    item.origin = read.item.origin;
    if (read.bad) std::rethrow_exception(read.bad);
    item.fields = std::move(read.item.fields);
    return true;
  }

  // Ends the pass.
  double holds_bytes(double sample_bytes) {
    stop();
    // The last sample may exceed `ahead_bytes`, and the next one waits for its place.
    const double most = std::min(static_cast<double>(ahead_) * sample_bytes,
                                 static_cast<double>(ahead_bytes_) + sample_bytes);
    return most + sample_bytes + branch_->holds_bytes(sample_bytes);
  }

 private:
  struct Read {
    Item item;
    size_t bytes = 0;
    std::exception_ptr bad;
  };

  // What cannot be handed over with a sample, for want of memory, ends the pass.
  void run(uint64_t epoch, uint64_t pass) {
    try {
      read_pass(epoch, pass);
    } catch (...) {
      std::scoped_lock lock(mutex_);
      failure_ = std::current_exception();
      ended_ = true;
      changed_.notify_one();
    }
  }

  void read_pass(uint64_t epoch, uint64_t pass) {
    bool more = true, began = false;
    while (more) {
      Read read;
      try {
        if (!began) branch_->start_pass(epoch, pass);
        began = true;
        more = branch_->next(read.item);
      } catch (const Error&) {
        read.bad = std::current_exception();
        more = began;  // a source that cannot begin its pass has no further samples
      } catch (...) {
        read.bad = std::current_exception();
        more = false;
      }
      read.bytes = read.item.size_bytes();
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        return stop_ || (read_.size() < ahead_ && (read_.empty() || bytes_ < ahead_bytes_));
      });
      if (stop_) return;
      if (more || read.bad) {
        bytes_ += read.bytes;
        read_.push_back(std::move(read));
      }
      ended_ = !more;
      changed_.notify_one();
    }
  }

  void stop() {
    {
      std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  const std::unique_ptr<Branch> branch_;
  const size_t ahead_, ahead_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Read> read_;
  size_t bytes_ = 0;
  bool ended_ = false, stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

class Interleave final : public Source {
 public:
  Interleave(const Options& options, const StageContext& context) : context_(context) {
    const Json& given = options.json()["sources"];
    if (given.size() != 1 || given[0].is_array())
      fail(Code::invalid_argument,
           "stage 'interleave' takes one source, without stages after it; mix takes several");
    source_ = given[0];
    const auto ways = static_cast<size_t>(options.integer("cycle_length"));
    auto ahead_bytes = static_cast<size_t>(options.integer("ahead_bytes"));
    if (has_budget(context))
      ahead_bytes =
          std::min<size_t>(ahead_bytes, budget_bytes(context) / 4 / context.sharers / ways);
    for (size_t i = 0; i < ways; ++i) {
      StageContext part = context;
      part.part = context.part + context.parts * i;  // of what an interleave around this one reads
      part.parts = context.parts * ways;
      part.sharers *= ways;
      // All ways have the same position, so they see the same order of the files, and each reads
      // its part.
      ways_.push_back(
          std::make_unique<Way>(std::make_unique<Branch>(given[0], "interleave", 0, part),
                                static_cast<size_t>(options.integer("ahead")), ahead_bytes));
    }
  }

  // A separate branch, because the ways list the files on their own threads.
  Json data() override { return Json::array({Branch(source_, "interleave", 0, context_).data()}); }

  void start_pass(uint64_t epoch, uint64_t pass) override {
    ended_.assign(ways_.size(), false);
    turn_ = 0;
    for (const auto& way : ways_) way->start_pass(epoch, pass);
  }

  double holds_bytes(double sample_bytes) override {
    double sum = 0;
    for (const auto& way : ways_) sum += way->holds_bytes(sample_bytes);
    return sum;
  }

  bool next(Item& item) override {
    for (size_t tried = 0; tried < ways_.size(); ++tried) {
      const size_t i = turn_++ % ways_.size();
      if (ended_[i]) continue;
      if (ways_[i]->next(item)) return true;
      ended_[i] = true;
    }
    return false;
  }

 private:
  const StageContext context_;
  Json source_;
  std::vector<std::unique_ptr<Way>> ways_;
  std::vector<char> ended_;
  size_t turn_ = 0;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec interleave_stage;
const StageSpec interleave_stage{
    "interleave", "reads several files of a source in parallel, taking samples from them in turn",
    StageKind::source, sources::kOptions, make_stage<sources::Interleave>};

}  // namespace etr::pipeline
