// The cache of remote files: what it keeps, and that nobody waits for its lock for ever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "io/disk_cache.h"
#include "io/pieces.h"
#include "io/remote_file.h"
#include "support/child.h"
#include "support/data.h"
#include "support/error_text.h"
#include "support/http_server.h"

namespace etr::test {
namespace {

std::string keep(const io::DiskCache& cache, const std::string& address) {
  io::DiskCache::Entry entry(cache, address, "1");
  entry.write(std::as_bytes(std::span("0123456789", 10)));
  return entry.keep();
}

TEST(DiskCache, WaitingForAnotherProcessCanBeCancelled) {
  TempDir dir;
  int asked = 0;
  const io::DiskCache cache(dir.path("cache"), 15, [&] { return ++asked == 3; });
  const std::string first = keep(cache, "first");
  EXPECT_EQ(asked, 0);
  const int lock = ::open(dir.path("cache/lock").c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);  // as another process would that never lets go
  try {
    keep(cache, "second");
    ADD_FAILURE() << "did not wait";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::cancelled);
    EXPECT_NE(std::string(error.what()).find("process to make room in '" + dir.path("cache")),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(cache.find("second", "1")) << "it is complete";
  ::close(lock);
  keep(cache, "third");
  EXPECT_FALSE(std::filesystem::exists(first)) << "room is made at the next chance";
  EXPECT_TRUE(cache.find("third", "1"));
}

// A reader in another process takes a new modification time for a new content.
TEST(DiskCache, FindingAFileDoesNotDisturbItsReaders) {
  TempDir dir;
  const io::DiskCache cache(dir.path("cache"), 25);
  const std::string first = keep(cache, "first");
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(2);
  std::filesystem::last_write_time(first, old);
  const platform::InputFile reader(first);
  EXPECT_EQ(cache.find("first", "1"), first);
  EXPECT_NO_THROW(reader.require_unchanged());
  const std::string second = keep(cache, "second");
  std::filesystem::last_write_time(second, old + std::chrono::hours(1));
  keep(cache, "third");  // there is room for two
  EXPECT_TRUE(cache.find("first", "1")) << "used later than the second";
  EXPECT_FALSE(cache.find("second", "1"));
}

TEST(DiskCache, RemovesWhatAKilledProcessWasWriting) {
  TempDir dir;
  const io::DiskCache cache(dir.path("cache"), 25);
  for (const char* name : {"x.shard.part-7-0", "x.shard.part-8-0"})
    std::ofstream(dir.path("cache/") + name) << "half";
  std::filesystem::last_write_time(
      dir.path("cache/x.shard.part-7-0"),
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  keep(cache, "first");
  EXPECT_FALSE(std::filesystem::exists(dir.path("cache/x.shard.part-7-0")));
  EXPECT_TRUE(std::filesystem::exists(dir.path("cache/x.shard.part-8-0"))) << "may be in progress";
}

TEST(DiskCache, SaysWhereItCannotMakeRoom) {
  TempDir dir;
  const io::DiskCache cache(dir.path("cache"), 15);
  const std::string first = keep(cache, "first");
  EXPECT_FALSE(std::filesystem::exists(dir.path("cache/lock"))) << "it goes with its holder";
  std::filesystem::create_directory(dir.path("cache/lock"));
  std::string warnings;
  set_log_hook([&](LogLevel level, const char* line) {
    if (level == LogLevel::warning) warnings += line;
  });
  keep(cache, "second");
  set_log_hook(nullptr);
  EXPECT_TRUE(cache.find("second", "1"));
  EXPECT_TRUE(std::filesystem::exists(first));
  for (const std::string& part : {"'" + dir.path("cache") + "', which may grow beyond 15 bytes",
                                  "cannot create '" + dir.path("cache/lock") + "'"})
    EXPECT_NE(warnings.find(part), std::string::npos) << warnings;
}

std::string bytes_of(io::Pieces& pieces) {
  std::string out;
  for (io::Block block = pieces.next(); block.size > 0; block = pieces.next())
    out.append(reinterpret_cast<const char*>(block.data.get()), block.size);
  return out;
}

// Among other reasons because another process has taken what is being written for a killed one's.
TEST(DiskCache, DataIsReadThoughTheCacheCannotBeWritten) {
  std::string text;
  for (int i = 10000; i < 30000; ++i) text += "line " + std::to_string(i) + "\n";
  const HttpServer server({{"/a.txt", text}});
  TempDir dir;
  io::RemoteOptions options;
  options.part_bytes = 65536;
  options.cache_bytes = 1 << 20;
  std::string warnings;
  set_log_hook([&](LogLevel level, const char* line) {
    if (level == LogLevel::warning) warnings += line;
  });
  // Its second part cannot be written.
  options.cache_dir = dir.path("limited");
  rlimit any{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &any), 0);
  const rlimit little{100'000, any.rlim_max};
  const auto limited = [&](auto&& work) {
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
    work();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &any), 0);  // since the output may go to a file
  };
  limited([&] {
    EXPECT_EQ(bytes_of(*io::open_remote(server.address() + "/a.txt", options)), text);
    EXPECT_EQ(bytes_of(*io::open_remote(server.address() + "/a.txt", options)), text);
    EXPECT_EQ(error_text([&] {
                io::fetch_remote(server.address() + "/a.txt", options);
              }).find("'" + server.address() + "/a.txt' is read by position, from the cache: "),
              0u);
  });
  const std::string said =
      "the cache of remote files '" + options.cache_dir + "' cannot be written";
  EXPECT_EQ(warnings.find(said), 0u) << warnings;
  EXPECT_EQ(warnings.rfind(said), 0u) << warnings;
  EXPECT_TRUE(std::filesystem::is_empty(options.cache_dir));
  // It cannot get its name.
  options.cache_dir = dir.path("renamed");
  {
    const auto pieces = io::open_remote(server.address() + "/a.txt", options);
    const io::Block first = pieces->next();
    std::string read(reinterpret_cast<const char*>(first.data.get()), first.size);
    for (const auto& file : std::filesystem::directory_iterator(options.cache_dir))
      std::filesystem::remove(file.path());
    EXPECT_EQ(read + bytes_of(*pieces), text);
  }
  EXPECT_NE(warnings.find("cannot rename to '" + options.cache_dir), std::string::npos) << warnings;
  // It has no folder.
  std::ofstream(dir.path("file")) << "no folder";
  options.cache_dir = dir.path("file/cache");
  EXPECT_EQ(bytes_of(*io::open_remote(server.address() + "/a.txt", options)), text);
  EXPECT_NE(warnings.find("cannot make the cache '" + options.cache_dir), std::string::npos)
      << warnings;
  EXPECT_NE(error_text([&] { io::fetch_remote(server.address() + "/a.txt", options); }), "");
  // It cannot be begun, as in a folder that is read-only even for root.
  options.cache_dir = "/proc/self";
  EXPECT_EQ(bytes_of(*io::open_remote(server.address() + "/a.txt", options)), text);
  EXPECT_NE(warnings.find("'/proc/self' cannot be written"), std::string::npos) << warnings;
  set_log_hook(nullptr);
}

// As of a user whose umask closes new files to others.
TEST(DiskCache, ACopyThatCannotBeReadIsDownloadedAgain) {
  const std::string text(100'000, 'x');
  const HttpServer server({{"/a.txt", text}});
  const std::string address = server.address() + "/a.txt";
  TempDir dir;
  io::RemoteOptions options;
  options.cache_bytes = 1 << 20;
  options.cache_dir = dir.path("cache");
  const std::string copy = io::fetch_remote(address, options);
  chmod(dir.path().c_str(), 0755);  // for the child, which runs as another user
  chmod(options.cache_dir.c_str(), 0777);
  chmod(copy.c_str(), 0);
  EXPECT_EQ(in_child([&] {
              if (geteuid() == 0 && seteuid(65534) != 0) return 90;  // root may read everything
              std::string warnings;
              set_log_hook([&](LogLevel, const char* line) { warnings += line; });
              bool read = false, kept = false;
              const std::string failure = error_text([&] {
                read = bytes_of(*io::open_remote(address, options)) == text;
                kept = io::fetch_remote(address, options) == copy;
              });
              const bool told = warnings.find("'" + options.cache_dir +
                                              "' has a file that cannot be read") == 26;
              return read + 2 * told + 4 * kept + 8 * !failure.empty();
            }),
            7);
  EXPECT_EQ(platform::read_file(copy), text);
}

}  // namespace
}  // namespace etr::test
