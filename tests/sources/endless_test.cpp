// Pipes, devices and files larger than the memory.
#include <sys/stat.h>

#include "sources/alone.h"
#include "support/child.h"

namespace etr::test {
namespace {

const std::pair<const char*, Json> kOfASize[] = {
    {"idx", {{"images", "FILE"}}},
    {"npy", {{"arrays", "x=FILE"}}},
    {"cifar", {{"pattern", "FILE"}}},
    {"fast_shard", {{"pattern", "FILE"}}},
    {"text_windows", {{"pattern", "FILE"}, {"length", 4}}}};

Json with_file(const Json& options, const std::string& path) {
  Json out = options;
  for (auto& [key, value] : out.items())
    if (value.is_string()) {
      std::string given = value.get<std::string>();
      if (const size_t at = given.find("FILE"); at != std::string::npos)
        value = given.replace(at, 4, path);
    }
  return out;
}

// 0 where the source fails with a message that has `part`, in little memory.
int fails_in_little_memory(const char* stage, const Json& options, const std::string& part) {
  const auto check = [&] {
    const std::string error = failure_alone(stage, options);
    if (error.find(part) != std::string::npos) return 0;
    std::fprintf(stderr, "%s: %s\n", stage, error.c_str());
    return 2;
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return check();  // a sanitizer's own memory is far more
#endif
  return in_child([&] { return limit_memory(int64_t{400} << 20) ? check() : 1; });
}

TEST(Endless, PipesAndDevicesAreRefusedByName) {
  TempDir dir;
  for (const char* name : {"pipe", "pipe.gz", "pipe.zst"})
    ASSERT_EQ(mkfifo(dir.path(name).c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", dir.path("zero"));
  std::filesystem::create_symlink("/dev/zero", dir.path("zero.gz"));
  for (const auto& [stage, options] : kOfASize)
    for (const char* name : {"pipe", "pipe.gz", "pipe.zst", "zero", "zero.gz"})
      EXPECT_EQ(fails_in_little_memory(stage, with_file(options, dir.path(name)),
                                       "'" + dir.path(name) + "' is a pipe or device"),
                0)
          << stage << " " << name;
}

std::string u32(uint32_t value) { return raw(value); }

constexpr uint64_t kTerabyte = uint64_t{1} << 40;

// A terabyte of nothing, and headers before it, or after, that are made to fill the memory.
TEST(Endless, SparseFilesTakeNoMemory) {
  TempDir dir;
  const auto sparse = [&](const char* name, const std::string& begin, const std::string& end,
                          uint64_t size = kTerabyte) {
    put(dir.path(name), begin);
    std::filesystem::resize_file(dir.path(name), size);
    std::ofstream(dir.path(name), std::ios::binary | std::ios::app) << end;
    return dir.path(name);
  };
  const std::string zeros = sparse("zeros", "", "");
  for (const auto& [stage, options] : kOfASize)
    EXPECT_EQ(fails_in_little_memory(stage, with_file(options, zeros), zeros), 0) << stage;
  const std::string array = sparse("a.npy", npy("|u1", "(1, 1000000000000)", ""), "");
  EXPECT_EQ(fails_in_little_memory("npy", {{"arrays", "x=" + array}},
                                   "a record takes 1000000000000 bytes"),
            0);
  const std::string images = sparse(
      "a.idx",
      std::string("\0\0\x08\x03", 4) + big_endian(1) + big_endian(1 << 20) + big_endian(1 << 19),
      "", 16 + (uint64_t{1} << 39));
  EXPECT_EQ(fails_in_little_memory("idx", {{"images", images}}, "a record takes"), 0);
  const uint32_t frames = 0xFFFF'0000;
  const std::string shard =
      sparse("a.ets", "", u32(frames) + std::string(1, '\0') + u32(0x8F92EAB1));
  EXPECT_EQ(fails_in_little_memory("fast_shard", {{"pattern", shard}},
                                   "seek table is longer than a gibibyte"),
            0);
  const std::string text = sparse("16 GB", "", "", (uint64_t{16} << 30) + 1);
  EXPECT_EQ(fails_in_little_memory("text_windows", {{"pattern", text}, {"length", 4}}, text), 0);
}

// 300 MB of text in 400 MB of memory: one file is not copied, and of several one at a time is.
TEST(Endless, ATextIsInMemoryOnce) {
  TempDir dir;
  const auto zeros = [&](const char* name, uint64_t megabytes) {
    put(dir.path(name), "");
    std::filesystem::resize_file(dir.path(name), megabytes << 20);
  };
  zeros("one.txt", 300);
  for (const char* name : {"1.part", "2.part", "3.part", "4.part", "5.part", "6.part"})
    zeros(name, 50);
  for (const char* pattern : {"one.txt", "*.part"}) {
    const int status = in_child([&] {
      if (!limit_memory(int64_t{400} << 20)) return 1;
      const std::string error =
          failure_alone("text_windows", {{"pattern", dir.path(pattern)}, {"length", 4}});
      std::fputs(error.c_str(), stderr);
      return error.empty() ? 0 : 2;
    });
    EXPECT_EQ(status, 0) << pattern;
  }
}

TEST(Endless, OnlyWhoHasMaxRatioIsToldToRaiseIt) {
  TempDir dir;
  std::string bomb;  // of frames of a megabyte
  for (int i = 0; i < 200; ++i) bomb += zst(std::string(1 << 20, '\n'));
  put(dir.path("bomb.zst"), bomb);
  for (const auto& [stage, options] : kOfASize)
    EXPECT_HAS(failure(spec_of(stage, with_file(options, dir.path("bomb.zst")))),
               "bomb.zst' decompresses to more than 10000 times its size; if it is to be trusted, "
               "decompress it");
  EXPECT_HAS(failure(spec_of("text_lines", {{"pattern", dir.path("bomb.zst")}})),
             "raise max_ratio");
}

}  // namespace
}  // namespace etr::test
