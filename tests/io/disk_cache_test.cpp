// The cache of remote files: what it keeps, and that nobody waits for its lock for ever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "io/disk_cache.h"
#include "support/data.h"

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

}  // namespace
}  // namespace etr::test
