#include <gtest/gtest.h>
#include <zstd.h>

#include <fstream>

#include "core/error.h"
#include "core/platform.h"
#include "io/fast_shard.h"
#include "io/pattern.h"
#include "io/tar_reader.h"
#include "io/tar_writer.h"
#include "support/data.h"

namespace etr::test {
namespace {

using namespace io;

std::vector<std::pair<std::string, std::string>> members_of(const std::string& path) {
  io::TarReader reader(io::open_stream(path), path);
  std::vector<std::pair<std::string, std::string>> out;
  std::vector<io::TarMember> kept;  // members outlive the reader's position
  for (io::TarMember member; reader.next(member);) kept.push_back(member);
  for (const io::TarMember& m : kept)
    out.emplace_back(m.name,
                     std::string(reinterpret_cast<const char*>(m.data.data.get()), m.data.size));
  return out;
}

TEST(Tar, RoundTripPlainAndCompressed) {
  TempDir dir;
  std::vector<std::pair<std::string, std::string>> expected;
  for (int i = 0; i < 300; ++i)  // 300 * up to 20 kB: members straddle the blocks of a megabyte
    expected.emplace_back(
        "dir/member-" + std::to_string(i) + ".bin",
        std::string(static_cast<size_t>(i * 71 % 20011), static_cast<char>('a' + i % 26)));
  for (const char* ending : {".tar", ".tar.zst"}) {
    const std::string path = dir.path(std::string("x") + ending);
    io::TarWriter writer(path, 3);
    for (const auto& [name, content] : expected)
      writer.add(name, std::as_bytes(std::span(content)));
    EXPECT_FALSE(std::filesystem::exists(path)) << "the shard appears when it is whole";
    writer.finish();
    EXPECT_EQ(members_of(path), expected) << ending;
  }
}

TEST(Tar, MembersShareTheBlockThatWasRead) {
  TempDir dir;
  make_shards(dir, 1, 3, 0, 10, ".tar");
  const std::string path = dir.path("shard-0.tar");
  io::TarReader reader(io::open_stream(path), path);
  io::TarMember a, b;
  ASSERT_TRUE(reader.next(a) && reader.next(b));
  EXPECT_EQ(b.data.data.get() - a.data.data.get(), static_cast<ptrdiff_t>(b.offset - a.offset));
}

// Archives by GNU tar: long names in both of their notations, directories, links.
TEST(Tar, ReadsWhatOthersWrite) {
  TempDir dir;
  // 160 bytes: a prefix in ustar, an extra header in the other two.
  const std::string folder(80, 's'), longer = "in/" + folder + "/" + std::string(75, 'n') + ".txt";
  std::filesystem::create_directories(dir.path("in/" + folder));
  std::ofstream(dir.path(longer)) << "long";
  std::ofstream(dir.path("in/short.txt")) << "short";
  std::filesystem::create_symlink("short.txt", dir.path("in/link.txt"));
  for (const std::string format : {"gnu", "pax", "ustar"}) {
    const std::string path = dir.path(format + ".tar");
    const std::string command =
        "tar --format=" + format + " --sort=name -C " + dir.path() + " -cf " + path + " in";
    ASSERT_EQ(std::system(command.c_str()), 0);
    const auto members = members_of(path);
    ASSERT_EQ(members.size(), 2u) << format;
    EXPECT_EQ(members[0], (std::pair<std::string, std::string>{"in/short.txt", "short"}));
    EXPECT_EQ(members[1], (std::pair<std::string, std::string>{longer, "long"}));
  }
}

TEST(Zstd, SeveralFramesAreOneStream) {
  TempDir dir;
  const std::string a(5000, 'a'), b(7000, 'b');
  std::ofstream(dir.path("a")) << a;
  std::ofstream(dir.path("b")) << b;
  const std::string command =
      "cd " + dir.path() + " && zstd -q a && zstd -q b && cat a.zst b.zst > ab.zst";
  if (std::system("which zstd > /dev/null") != 0) FAIL() << "the zstd command is missing";
  ASSERT_EQ(std::system(command.c_str()), 0);
  auto stream = io::open_stream(dir.path("ab.zst"));
  std::vector<std::byte> out(20000);
  EXPECT_EQ(stream->read(out), 12000u);
  EXPECT_EQ(static_cast<char>(out[4999]), 'a');
  EXPECT_EQ(static_cast<char>(out[11999]), 'b');
  EXPECT_EQ(stream->read(out), 0u);
}

TEST(TarWriter, RemovesAnUnfinishedFile) {
  TempDir dir;
  { io::TarWriter writer(dir.path("x.tar"), 3); }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  {
    io::TarWriter writer(dir.path("y.tar"), 3);
    writer.add(std::string(101, 'n'), {});
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Pattern, BracesGlobsAndBoth) {
  TempDir dir;
  for (const char* name : {"t-000.tar", "t-001.tar", "t-002.tar", "e-7.tar"})
    std::ofstream(dir.path(name)) << "x";
  const auto names = [&](const std::string& pattern) {
    std::vector<std::string> out;
    for (const std::string& path : io::expand_pattern(dir.path(pattern)))
      out.push_back(std::filesystem::path(path).filename());
    return out;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(names("t-{000..002}.tar"), (List{"t-000.tar", "t-001.tar", "t-002.tar"}));
  EXPECT_EQ(names("t-*.tar"), (List{"t-000.tar", "t-001.tar", "t-002.tar"}));
  EXPECT_EQ(names("{e,t}-*.tar"), (List{"e-7.tar", "t-000.tar", "t-001.tar", "t-002.tar"}));
  EXPECT_THROW(names("t-{000..009}.tar"), Error) << "t-003.tar is missing and must be named";
  EXPECT_THROW(names("t-{000.tar"), Error);
  EXPECT_THROW(names("nothing-*.tar"), Error);
}

TEST(Pattern, RefusesMoreThanItCanExpand) {
  const auto error_of = [](const std::string& pattern) -> std::string {
    try {
      io::expand_pattern(pattern);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  std::string groups;
  for (int i = 0; i < 100'000; ++i) groups += "{a}";
  const std::string deep = error_of(groups);
  EXPECT_NE(deep.find("has 100000 groups in braces; at most 64"), std::string::npos) << deep;
  EXPECT_LT(deep.size(), 500u) << "the pattern is not repeated whole";
  for (const std::string& many :
       {std::string("{0..999}{0..999}{0..9}"), "{0..999999}" + std::string(10'000, 'x')})
    EXPECT_NE(error_of(many).find("stands for too many files"), std::string::npos);
}

// Three records of two fields, one of them a frame.
std::string make_fast_shard(const TempDir& dir) {
  const std::string path = dir.path("a.ets");
  FastShardWriter writer(path);
  for (const std::string text : {"one", "", "three"}) {
    const auto bytes = std::as_bytes(std::span(text));
    const auto frame = zstd_frame(bytes, 3);
    const FastShardWriter::Field fields[] = {{"small", bytes, 0},
                                             {"large", frame, bytes.size() + 1}};
    writer.add("key-" + text, fields);
  }
  writer.finish();
  return path;
}

TEST(FastShard, GivesRecordsByNumber) {
  TempDir dir;
  const FastShard shard(make_fast_shard(dir));
  ASSERT_EQ(shard.size(), 3u);
  const FastShard::Record last = shard.record(2);
  EXPECT_EQ(last.key, "key-three");
  ASSERT_EQ(last.fields.size(), 2u);
  EXPECT_EQ(last.fields[0].name, "small");
  EXPECT_EQ(last.fields[0].value, "three");
  EXPECT_EQ(last.fields[1].name, "large");
  char out[16];
  const Block& frame = last.fields[1].frame;
  EXPECT_EQ(ZSTD_decompress(out, sizeof out, frame.data.get(), frame.size), 5u);
  EXPECT_EQ(std::string(out, 5), "three");
  EXPECT_EQ(shard.record(1).fields[0].value, "");
  EXPECT_THROW(shard.record(3), Error);
}

TEST(FastShard, DamageIsAnErrorThatNamesTheFile) {
  TempDir dir;
  const std::string path = make_fast_shard(dir), cut = dir.path("cut.ets");
  const std::string good = platform::read_file(path);
  const auto error_of = [&](const std::string& bytes) -> std::string {
    std::ofstream(cut, std::ios::binary | std::ios::trunc) << bytes;
    try {
      const FastShard shard(cut);
      for (uint64_t i = 0; i < shard.size(); ++i) shard.record(i);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(good), "");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(error_of(good.substr(0, size)).find("cut.ets"), std::string::npos) << size;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string damaged = good;
    damaged[i] ^= 0x21;
    error_of(damaged);  // an error or, in a frame, none: but nothing worse
  }
}

// Any tool for zstd reads the frames: the rest is in frames that it skips.
TEST(FastShard, IsAPlainZstdFile) {
  TempDir dir;
  const std::string bytes = platform::read_file(make_fast_shard(dir));
  char out[64];
  const size_t size = ZSTD_decompress(out, sizeof out, bytes.data(), bytes.size());
  ASSERT_FALSE(ZSTD_isError(size));
  EXPECT_EQ(std::string(out, size), "onethree");
}

}  // namespace
}  // namespace etr::test
