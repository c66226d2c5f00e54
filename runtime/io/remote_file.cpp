#include "io/remote_file.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/start_thread.h"
#include "io/byte_stream.h"
#include "io/disk_cache.h"
#include "io/pieces.h"
#include "io/s3.h"

namespace etr::io {
namespace {

constexpr uint64_t kMostInOnePiece = uint64_t{2} << 30;  // from servers without range requests

Block block_of(std::vector<std::byte> bytes) {
  auto owned = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  return {std::shared_ptr<const std::byte>(owned, owned->data()), owned->size()};
}

// Logs once for each folder and problem: what stopped one file, such as a full disk, will stop
// others, too.
void tell_once(const std::string& folder, const char* problem, const std::string& why) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::string what = cat("the cache of remote files '", folder, "' ", problem);
  {
    std::scoped_lock lock(mutex);
    if (!told.insert(what).second) return;
  }
  log_line(LogLevel::warning, cat(what, ": ", why));
}

// Requests parts of one remote file.
class Remote {
 public:
  Remote(const std::string& address, const RemoteOptions& options,
         const std::optional<RemoteState>& known = std::nullopt)
      : address_(address),
        whole_limit_(kMostInOnePiece, "for servers that know no ranges", options.budget_bytes),
        s3_(address.starts_with("s3://")),
        known_(known.has_value()),
        state_(known.value_or(RemoteState{})) {
    if (s3_) settings_ = S3Settings::find();
  }

  // Returns bytes [begin, begin + size), fewer at the end. The first call sets the state unless it
  // is known. A later response with another version is Error(io).
  std::vector<std::byte> get(HttpConnection& connection, uint64_t begin, uint64_t size) {
    HttpResponse answer =
        connection.get([&] { return request(begin, size); }, begin == 0 ? whole_limit_.bytes : size,
                       begin == 0 ? whole_limit_.name : "the part asked for");
    check(answer);
    return part_of(std::move(answer), address_, state_, begin, size);
  }

  // Asks for the state, without reading the file. Nothing: the server does not say how long it is.
  std::optional<RemoteState> ask(HttpConnection& connection) {
    const auto make = [&] {
      HttpRequest made = request(0, 1);
      made.only_length = true;
      return made;
    };
    const HttpResponse answer = connection.get(make, 1, "the part asked for");
    check(answer);
    if (answer.status == 200 && answer.header("content-length").empty()) return std::nullopt;
    return state_;
  }

  uint64_t total_bytes() const { return state_.bytes; }
  const std::string& version() const { return state_.version; }
  bool has_version() const { return io::has_version(state_); }

 private:
  HttpRequest request(uint64_t begin, uint64_t size) const {
    HttpRequest made = s3_ ? s3_request(address_, settings_) : HttpRequest{address_, {}};
    made.headers.push_back(cat("Range: bytes=", begin, "-", begin + size - 1));
    return made;
  }

  void check(const HttpResponse& answer) {
    const long status = answer.status;
    if (status == 404)
      fail(Code::not_found, "'", address_, "' does not exist (",
           s3_ ? s3_error(answer, settings_) : "404", ")");
    if (status == 401 || status == 403)
      fail(Code::io, "'", address_, "': access denied: ",
           s3_ ? s3_error(answer, settings_) : cat(status, " ", answer.body_text()));
    if (status != 200 && status != 206 && status != 416)
      fail(Code::io, "cannot read '", address_, "': the server answers ",
           s3_ ? s3_error(answer, settings_) : cat(status, " ", answer.body_text()));
    std::scoped_lock lock(mutex_);
    if (known_ && version_of(answer) != state_.version)
      fail(Code::io, "'", address_, "' was changed while it was read");
    if (known_) return;
    state_ = state_of(answer, address_);
    known_ = true;
  }

  const std::string address_;
  const SizeLimit whole_limit_;  // of a response with the whole file
  const bool s3_;
  S3Settings settings_;
  std::mutex mutex_;
  bool known_;  // state_ is set
  RemoteState state_;
};

// Returns parts in order, fetched by several threads with a connection each. At most two parts per
// thread are buffered.
class RemotePieces final : public Pieces {
 public:
  RemotePieces(const std::string& address, const RemoteOptions& options,
               const std::optional<RemoteState>& known = std::nullopt)
      : address_(address), options_(options), remote_(address, options, known) {
    options_.cancelled = [this, asked = options.cancelled] {
      return stop_.load() || (asked && asked());
    };
    first_ = std::make_unique<HttpConnection>(options_);
    std::vector<std::byte> first;
    if (open_cache()) {
      // To learn the version. A server that knows no ranges sends the whole file.
      if (!known) first = remote_.get(*first_, 0, 1);
      if (open_cached()) return;
      begin_entry();
    }
    if (first.empty() || first.size() != remote_.total_bytes())
      first = remote_.get(*first_, 0, options_.part_bytes);
    finished_[0] = {std::move(first), nullptr};
    const uint64_t total = remote_.total_bytes();
    parts_ = finished_[0].bytes.size() == total
                 ? 1
                 : (total + options_.part_bytes - 1) / options_.part_bytes;
    const auto threads =
        std::min<uint64_t>(static_cast<uint64_t>(options_.connections), parts_ - 1);
    try {
      for (uint64_t i = 0; i < threads; ++i)
        threads_.push_back(start_thread("a thread that reads over the network",
                                        "the pipeline's 'remote_connections'", [this] { run(); }));
    } catch (...) {  // stop the threads that already run
      stop();
      throw;
    }
  }

  ~RemotePieces() override { stop(); }

  Block next() override {
    if (cached_) return cached_->next();
    if (taken_ == parts_) return {};
    Part part;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return finished_.contains(taken_) || failure_; });
      if (failure_) std::rethrow_exception(failure_);
      part = std::move(finished_[taken_]);
      finished_.erase(taken_);
      ++taken_;
    }
    changed_.notify_all();
    if (part.bad) std::rethrow_exception(part.bad);
    store(part.bytes);
    return block_of(std::move(part.bytes));
  }

  // Not less if this file is cached: the next one may not be.
  uint64_t holds_bytes() const override {
    const uint64_t total = remote_.total_bytes();
    const uint64_t ahead = (options_.parts_ahead() + 1) * options_.part_bytes;
    return parts_ == 1 ? total : std::min(total, ahead);
  }

  // Downloads the file unless it is cached. Requires a cache that can be written. Returns the
  // cached file's path.
  const std::string& fetch() {
    while (!cached_ && !unkept_ && next().data) continue;
    if (unkept_)
      fail(Code::io, "'", address_, "' is read by position, from the cache: ", unkept_->what());
    return path_;
  }

 private:
  struct Part {
    std::vector<std::byte> bytes;
    std::exception_ptr bad;
  };

  void stop() {
    {
      std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Returns false if the cache does not have the file, or another user's copy that is closed to
  // this one. Without a version, a copy may differ from the server's file.
  bool open_cached() try {
    const auto path =
        remote_.has_version() ? cache_->find(address_, remote_.version()) : std::nullopt;
    if (!path) return false;
    auto file = std::make_unique<platform::InputFile>(*path);
    if (file->size() != remote_.total_bytes()) return false;
    cached_ = std::make_unique<FilePieces>(std::move(file));
    path_ = *path;
    return true;
  } catch (const Error& error) {  // another process may have removed it since it was found
    if (error.code() != Code::not_found)
      tell_once(options_.cache_dir, "has a file that cannot be read; it is downloaded again",
                error.what());
    return false;
  }

  bool open_cache() try {
    if (options_.cache_dir.empty()) return false;
    cache_ =
        std::make_unique<DiskCache>(options_.cache_dir, options_.cache_bytes, options_.cancelled);
    return true;
  } catch (const Error& error) {
    give_up_entry(error);
    return false;
  }

  void begin_entry() try {
    entry_ = std::make_unique<DiskCache::Entry>(*cache_, address_, remote_.version());
  } catch (const Error& error) {
    give_up_entry(error);
  }

  void store(std::span<const std::byte> bytes) try {
    if (!entry_) return;
    entry_->write(bytes);
    if (taken_ < parts_) return;
    path_ = entry_->keep();
    entry_.reset();
  } catch (const Error& error) {
    if (error.code() == Code::cancelled) throw;
    give_up_entry(error);
  }

  // A cache that cannot be written is no reason not to read the data. Only fetch() needs the file.
  void give_up_entry(const Error& error) {
    unkept_ = error;
    entry_.reset();
    tell_once(options_.cache_dir,
              "cannot be written; files that it does not hold are downloaded each time",
              error.what());
  }

  // What cannot be handed over with a part, for want of memory, ends the reading.
  void run() {
    try {
      get_parts();
    } catch (...) {
      std::scoped_lock lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }

  void get_parts() {
    HttpConnection connection(options_);
    while (true) {
      uint64_t number = 0;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
          return stop_ || next_ >= parts_ || next_ < taken_ + options_.parts_ahead();
        });
        if (stop_ || next_ >= parts_) return;
        number = next_++;
      }
      Part part;
      try {
        part.bytes = remote_.get(connection, number * options_.part_bytes, options_.part_bytes);
      } catch (...) {
        part.bad = std::current_exception();
      }
      {
        std::scoped_lock lock(mutex_);
        finished_[number] = std::move(part);
      }
      changed_.notify_all();
    }
  }

  const std::string address_;
  RemoteOptions options_;
  Remote remote_;
  std::unique_ptr<HttpConnection> first_;
  std::unique_ptr<DiskCache> cache_;
  std::unique_ptr<DiskCache::Entry> entry_;
  std::optional<Error> unkept_;  // why the cache does not get the file
  std::string path_;
  std::unique_ptr<FilePieces> cached_;
  uint64_t parts_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stop_{false};
  uint64_t next_ = 1, taken_ = 0;  // next part to fetch; parts handed out
  std::map<uint64_t, Part> finished_;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

// Asks about files on several threads with a connection each.
class Asking {
 public:
  Asking(std::span<const std::string> paths, const RemoteOptions& options)
      : paths_(paths), options_(options), states_(paths.size()) {
    options_.cancelled = [this, asked = options.cancelled] {
      return stop_.load() || (asked && asked());
    };
  }

  std::vector<std::optional<RemoteState>> run() {
    const auto remote = std::count_if(paths_.begin(), paths_.end(), is_remote);
    if (remote == 0) return std::move(states_);  // without a need for libcurl
    std::vector<std::thread> threads;
    try {
      for (auto i = std::min<ptrdiff_t>(options_.connections, remote); i > 1; --i)
        threads.push_back(start_thread("a thread that asks about files over the network",
                                       "the pipeline's 'remote_connections'", [this] { ask(); }));
    } catch (...) {
      give_up();
    }
    ask();
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    return std::move(states_);
  }

 private:
  void ask() {
    try {
      HttpConnection connection(options_);
      for (size_t i = 0; !stop_ && (i = next_++) < paths_.size();)
        if (is_remote(paths_[i])) states_[i] = Remote(paths_[i], options_).ask(connection);
    } catch (...) {
      give_up();
    }
  }

  // With the exception being handled, unless another thread has failed before.
  void give_up() {
    std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    stop_ = true;
  }

  const std::span<const std::string> paths_;
  RemoteOptions options_;
  std::vector<std::optional<RemoteState>> states_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

bool is_remote(const std::string& path) {
  return path.starts_with("http://") || path.starts_with("https://") || path.starts_with("s3://");
}

std::unique_ptr<Pieces> open_remote(const std::string& address, const RemoteOptions& options) {
  return std::make_unique<RemotePieces>(address, options);
}

std::vector<std::optional<RemoteState>> ask_remote(std::span<const std::string> paths,
                                                   const RemoteOptions& options) {
  return Asking(paths, options).run();
}

std::string fetch_remote(const std::string& address, const RemoteOptions& options,
                         const std::optional<RemoteState>& known) {
  if (options.cache_dir.empty())
    fail(Code::invalid_argument, "'", address,
         "' is read by position, so it must be on the disk: set the pipeline's "
         "remote_cache_dir");
  return RemotePieces(address, options, known).fetch();
}

}  // namespace etr::io
