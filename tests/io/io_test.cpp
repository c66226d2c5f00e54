#include <gtest/gtest.h>
#include <zstd.h>

#include <fstream>

#include "core/error.h"
#include "core/platform.h"
#include "core/rng.h"
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

TEST(Pattern, SaysWhatIsWrong) {
  TempDir dir;
  std::filesystem::create_directories(dir.path("folder"));
  const auto error_of = [](const std::string& pattern) -> std::string {
    try {
      io::expand_pattern(pattern);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::pair<std::string, std::string> cases[] = {
      {"{3..1}", "the range {3..1} is empty or too long"},
      {"{0..1000000}", "the range {0..1000000} is empty or too long"},
      {"a}", "'a}' has a '}' without a '{'"},
      {"{a", "'{a' has a '{' without a '}'"},
      {dir.path("f*"), "only folders match '"},
      {dir.path("{x,y}*"),
       "no file matches '" + dir.path("x*") + "' (of the pattern '" + dir.path("{x,y}*") + "')"},
      {"https://host/a*", "web servers have no listings"}};
  for (const auto& [pattern, part] : cases)
    EXPECT_NE(error_of(pattern).find(part), std::string::npos)
        << pattern << ": " << error_of(pattern);
  const std::string missing = error_of(dir.path("x*"));
  EXPECT_EQ(missing.find("of the pattern"), std::string::npos) << missing;
  const auto groups = [&](int count) {
    std::string out = dir.path("x");
    for (int i = 0; i < count; ++i) out += "{a}";
    return error_of(out);
  };
  EXPECT_NE(groups(64).find("no file matches"), std::string::npos);
  EXPECT_NE(groups(65).find("at most 64"), std::string::npos);
}

TEST(Pattern, RangesAreOfNumbersOnly) {
  const auto names = [](const std::string& braces) {
    std::string out;
    for (const std::string& name : io::expand_pattern("https://h/" + braces))
      out += name.substr(10) + " ";
    return out;
  };
  EXPECT_EQ(names("{5..5}"), "5 ");
  EXPECT_EQ(names("{8..11}"), "8 9 10 11 ");
  EXPECT_EQ(names("{008..11}"), "008 009 010 011 ");
  EXPECT_EQ(names("{a..c}"), "a..c ");
  EXPECT_EQ(names("{1a..3}"), "1a..3 ");
  EXPECT_EQ(names("{1..3c,d}"), "1..3c d ");
  EXPECT_EQ(names("{..3}"), "..3 ");
  EXPECT_EQ(names("{1234567890..1234567891}"), "1234567890..1234567891 ") << "too many digits";
  EXPECT_EQ(names("{a,,b}{1,2}"), "a1 a2 1 2 b1 b2 ");
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

// Lengths and numbers of one byte, of two and of three.
TEST(FastShard, NumbersMayTakeSeveralBytes) {
  TempDir dir;
  const std::string path = dir.path("a.ets");
  std::vector<std::string> texts;
  for (const size_t size : {0, 1, 127, 128, 129, 255, 256, 300, 16383, 16384, 20000}) {
    Rng rng(size);  // text that zstd makes a thousand times as small is refused
    texts.emplace_back(size, 't');
    for (char& c : texts.back()) c = static_cast<char>(rng.below(256));
  }
  {
    FastShardWriter writer(path);
    for (const std::string& text : texts) {
      std::vector<FastShardWriter::Field> fields;
      for (int i = 0; i < 200; ++i)
        fields.push_back({cat("field ", i), std::as_bytes(std::span(text)), 0});
      writer.add("key" + text, fields);
    }
    writer.finish();
  }
  const FastShard shard(path);
  ASSERT_EQ(shard.size(), texts.size());
  for (size_t r = 0; r < texts.size(); ++r) {
    const FastShard::Record record = shard.record(r);
    EXPECT_EQ(record.key, "key" + texts[r]);
    ASSERT_EQ(record.fields.size(), 200u);
    for (const size_t i : {0, 63, 64, 127, 128, 199}) {
      EXPECT_EQ(record.fields[i].name, cat("field ", i));
      EXPECT_EQ(record.fields[i].value, texts[r]);
    }
  }
}

TEST(FastShard, AnUnfinishedOneIsRemoved) {
  TempDir dir;
  { FastShardWriter writer(dir.path("a.ets")); }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(FastShard, FramesHaveChecksums) {
  const auto frame = zstd_frame(std::as_bytes(std::span("text", 4)), 1);
  EXPECT_EQ(std::to_integer<int>(frame[4]) & 4, 4) << "the flag in the frame's header";
}

std::string little_endian(uint32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }

// A shard with this index, and `frames` frames of four bytes.
std::string shard_of(const std::string& index, uint32_t frames = 0, uint32_t frame_bytes = 4) {
  std::string packed(ZSTD_compressBound(index.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), index.data(), index.size(), 1));
  std::string out(4 * frames, 'f');
  out += little_endian(0x184D2A50) + little_endian(static_cast<uint32_t>(packed.size())) + packed;
  out += little_endian(0x184D2A5E) + little_endian(frames * 8 + 9);
  for (uint32_t i = 0; i < frames; ++i) out += little_endian(frame_bytes) + little_endian(4);
  return out + little_endian(frames) + std::string(1, '\0') + little_endian(0x8F92EAB1);
}

TEST(FastShard, SaysWhatIsWrongInIt) {
  TempDir dir;
  const auto error_of = [&](const std::string& bytes) -> std::string {
    std::ofstream(dir.path("a.ets"), std::ios::binary | std::ios::trunc) << bytes;
    try {
      const FastShard shard(dir.path("a.ets"));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt_data);
      return error.what();
    }
    return "";
  };
  using Text = std::string;
  const Text start("\1\1\1n", 4);                      // version 1 and the name "n"
  const Text value = start + Text("\1\1k\1\0\1v", 7);  // a record "k" whose field "n" is "v"
  EXPECT_EQ(error_of(shard_of(value)), "");
  EXPECT_EQ(error_of(shard_of(start + Text("\1\1k\1\1", 5), 1)), "");
  EXPECT_EQ(error_of(shard_of(Text("\1\0\0", 3))), "") << "without names and records";
  Text other_end = shard_of(value), checked = other_end, longer = other_end, header = other_end;
  other_end[other_end.size() - 1] ^= 1;
  checked[checked.size() - 5] ^= char(0x80);
  longer[longer.size() - 9] = 100;
  header[header.size() - 9 - 8] ^= 1;
  Text no_index = shard_of("", 1);
  no_index = no_index.substr(0, 4) + no_index.substr(no_index.size() - 8 - 17);
  Text damaged = shard_of(value);
  damaged[8 + 6] ^= 0x55;
  const std::pair<Text, Text> cases[] = {
      {Text(16, 'x'), "it does not end with a seek table"},
      {other_end, "it does not end with a seek table"},
      {checked, "its seek table has checksums or reserved bits"},
      {longer, "its seek table is longer than the file"},
      {header, "its seek table has a wrong header"},
      {shard_of(value, 1, 1 << 20), "its frames are longer than the file"},
      {no_index, "its index is missing"},
      {Text(1, 'x') + shard_of(value), "its index is missing"},
      {damaged, "its index"},
      {shard_of(""), "its index has version 0; this library knows 1"},
      {shard_of("\2"), "its index has version 2"},
      {shard_of("\1"), "its index is damaged"},
      {shard_of("\1\2\1n"), "its index is damaged"},
      {shard_of("\1\1\5n"), "its index is damaged"},
      {shard_of(start), "its index is damaged"},
      {shard_of(start + "\2\1k"), "its index is damaged"},
      {shard_of(start + Text("\1\5k\1", 4)), "its index is damaged"},
      {shard_of(start + Text("\1\1k\2\0\1v", 7)), "record 0 has more fields than there are names"},
      {shard_of(start + Text("\1\1k\1\2\1v", 7)), "its index is damaged"},
      {shard_of(start + Text("\1\1k\1\0\2v", 7)), "its index is damaged"},
      {shard_of(value, 1), "its index has 0 frames, its seek table 1"},
      {shard_of(start + Text("\1\1k\1\1", 5), 2), "its index has 1 frame, its seek table 2"}};
  int number = 0;
  for (const auto& [bytes, part] : cases)
    EXPECT_NE(error_of(bytes).find(part), std::string::npos)
        << "case " << number++ << ": " << error_of(bytes);
}

}  // namespace
}  // namespace etr::test
