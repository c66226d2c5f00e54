// Archives of every kind, beside what Python's tarfile reads from them.
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "core/platform_files.h"
#include "io/tar_format.h"
#include "io/tar_reader.h"
#include "support/data.h"

namespace etr::test {
namespace {

std::string hex(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    out += "0123456789abcdef"[c & 15];
  }
  return out;
}

// As tar_family.py writes it down.
std::string contents_of(const std::string& path) {
  std::string out;
  io::TarReader reader(io::open_stream(path), path);
  while (true) {
    io::TarMember member;
    try {
      if (!reader.next(member)) return out;
    } catch (const Error& error) {
      if (!reader.can_go_on()) return "error\n";
      out += "refused " + hex(reader.last_member()) + "\n";
      EXPECT_NE(std::string(error.what()).find("hard link"), std::string::npos) << error.what();
      continue;
    }
    const auto* bytes = reinterpret_cast<const Bytef*>(member.data.data.get());
    out += cat(hex(member.name), " ", member.data.size, " ",
               crc32(0, bytes, static_cast<uInt>(member.data.size)), "\n");
  }
}

TEST(TarFamily, IsReadAsTarfileReadsIt) {
  TempDir dir;
  ASSERT_EQ(
      std::system(("python3 " ETR_SOURCE_DIR "/tests/io/tar_family.py " + dir.path()).c_str()), 0);
  int archives = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    if (entry.path().extension() != ".tar") continue;
    const auto expected = std::filesystem::path(entry.path()).replace_extension(".expected");
    EXPECT_EQ(contents_of(entry.path()), platform::read_file(expected)) << entry.path();
    ++archives;
  }
  EXPECT_GT(archives, 90);
}

// One member of 512 bytes, to be changed in places.
struct Archive {
  std::string bytes;

  explicit Archive(char type, const std::string& content = std::string(512, 'c')) {
    bytes.assign(512, '\0');
    put(0, "name");
    put(100, "0000644");
    put(124, cat(std::oct, content.size()));
    bytes[156] = type;
    put(257, "ustar  ");
    bytes += content + std::string(1024, '\0');
  }
  void put(size_t at, const std::string& text) { bytes.replace(at, text.size(), text); }

  const std::string& with_checksum() {
    put(148, "        ");
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(bytes[i]);
    put(148, cat(std::oct, sum));
    bytes[154] = '\0';
    return bytes;
  }

  std::string error(const TempDir& dir) {
    with_checksum();
    std::ofstream(dir.path("a.tar"), std::ios::binary | std::ios::trunc) << bytes;
    try {
      io::TarReader reader(io::open_stream(dir.path("a.tar")), "a.tar");
      for (io::TarMember member; reader.next(member);) continue;
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

std::string pax(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  for (size_t length = rest.size();; ++length)
    if (std::to_string(length).size() + rest.size() == length) return std::to_string(length) + rest;
}

// What reading an archive of these bytes says: lines of the log, and the error.
std::string said_of(const TempDir& dir, const std::string& bytes) {
  std::ofstream(dir.path("a.tar"), std::ios::binary | std::ios::trunc) << bytes;
  std::string said;
  set_log_hook([&](LogLevel level, const char* message) {
    if (level == LogLevel::warning) said += cat("warning: ", message, "\n");
  });
  try {
    io::TarReader reader(io::open_stream(dir.path("a.tar")), "a.tar");
    io::TarMember member;
    while (reader.next(member)) said += cat("member of ", member.data.size, "\n");
    EXPECT_FALSE(reader.next(member)) << "the end stays the end";
  } catch (const Error& error) {
    said += error.what();
  }
  set_log_hook(nullptr);
  return said;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Tar, RefusesByName) {
  TempDir dir;
  EXPECT_HAS(Archive('M').error(dir),
             "member 'name' at byte 0 is the rest of a file in another volume");
  const auto global = [&](const char* key) {
    std::string records = pax(key, "5");
    return Archive('g', records + std::string(512 - records.size(), '\0')).error(dir);
  };
  EXPECT_HAS(global("path"), "a global pax header sets 'path' for all members");
  EXPECT_HAS(global("size"), "'size'");
  EXPECT_HAS(global("GNU.sparse.major"), "'GNU.sparse.major'");
  EXPECT_EQ(global("comment"), "");
  std::string version = pax("GNU.sparse.major", "2") + pax("GNU.sparse.minor", "1");
  version.resize(512);
  EXPECT_HAS(Archive('x', version).error(dir), "a sparse file of version 2.1");
}

TEST(Tar, AMapThatDoesNotFitIsAnErrorOfItsMember) {
  TempDir dir;
  const auto with_map = [&](const std::string& offset, const std::string& size,
                            const std::string& real) {
    Archive archive('S');
    archive.put(386, offset);
    archive.put(398, size);
    archive.put(483, real);
    return archive.error(dir);
  };
  EXPECT_EQ(with_map("1000", "1000", "2000"), "");
  EXPECT_HAS(with_map("1000", "0777", "2000"), "its map does not fit");  // less than is stored
  EXPECT_HAS(with_map("1001", "1000", "2000"), "its map does not fit");  // beyond the end
  EXPECT_HAS(with_map("1000", "1000", "77777777777"), "max_member_bytes");
  EXPECT_HAS(with_map("x", "1000", "2000"), "a damaged map");
}

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (out.reserve(text.size() * times); times > 0; --times) out += text;
  return out;
}

TEST(Tar, MapsOfTooManyPartsAreRefused) {
  TempDir dir;
  const std::string pair = repeated(std::string(11, '0') + '\0', 2);  // nothing, at byte 0
  std::string record = repeated(pair, 21);
  record.resize(512);
  record[504] = '\1';  // another record follows
  const auto with_records = [&](size_t count) {
    Archive archive('S', "");
    archive.put(386, repeated(pair, 4));
    archive.put(482, "\1");
    archive.put(483, "0");
    archive.bytes.insert(512, repeated(record, count));
    archive.bytes[512 * count + 504] = '\0';
    return archive.error(dir);
  };
  const size_t most = (io::tar::kMostParts - 4) / 21;
  EXPECT_EQ(with_records(most), "");
  EXPECT_HAS(with_records(most + 1), "a damaged map of a sparse file");

  // Parts add up over the headers of a member.
  const std::string offset = pax("GNU.sparse.offset", "0");
  const size_t in_header = 512 * ((size_t{1} << 20) / (512 * offset.size()));
  std::string header = Archive('x', repeated(offset, in_header)).with_checksum();
  header.resize(header.size() - 1024);
  const auto with_headers = [&](size_t count) {
    return said_of(dir, repeated(header, count) + Archive('0').with_checksum());
  };
  EXPECT_EQ(with_headers(io::tar::kMostParts / in_header), "member of 512\n");
  EXPECT_HAS(with_headers(io::tar::kMostParts / in_header + 1), "a damaged pax header");
}

TEST(Tar, SaysWhatIsNoArchive) {
  TempDir dir;
  const auto error_of = [&](const std::string& bytes) -> std::string {
    std::ofstream(dir.path("a.tar"), std::ios::binary | std::ios::trunc) << bytes;
    try {
      io::TarReader reader(io::open_stream(dir.path("a.tar")), "a.tar");
      io::TarMember member;
      reader.next(member);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_HAS(error_of(""), "the file is empty");
  EXPECT_HAS(error_of("\x1f\x8b\x08" + std::string(600, 'x')),
             "'a.tar' is not a tar archive but gzip data");
  EXPECT_HAS(error_of("\x28\xb5\x2f\xfd" + std::string(600, 'x')), "zstd data");
  EXPECT_HAS(error_of("BZh9" + std::string(10, 'x')), "bzip2 data");
  EXPECT_HAS(error_of(std::string(600, 'x')), "checksum (not a tar archive?)");
}

// An archive of 5 bytes in a record of 512, without its end.
std::string one_member(const TempDir& dir, char type = '0') {
  Archive archive(type, "12345");
  EXPECT_EQ(archive.error(dir).find("checksum"), std::string::npos);
  archive.bytes.resize(512 + 5);
  archive.bytes.resize(1024);
  return archive.bytes;
}

TEST(Tar, NothingBehindTheEndIsPassedOverInSilence) {
  TempDir dir;
  const std::string member = one_member(dir), end(1024, '\0');
  EXPECT_EQ(said_of(dir, member + end + std::string(8192, '\0')), "member of 5\n");
  EXPECT_EQ(said_of(dir, member), "member of 5\n") << "some writers leave the end out";
  for (const size_t zeros : {512u, 1024u, 9216u, 3u << 20}) {
    const std::string said = said_of(dir, member + std::string(zeros, '\0') + member + end);
    EXPECT_HAS(said,
               "member of 5\nwarning: 'a.tar': the archive ends at byte 1024, and the data "
               "from byte ");
    EXPECT_HAS(said, cat("from byte ", 1024 + zeros, " on is not read"));
    EXPECT_HAS(said_of(dir, std::string(zeros, '\0') + member + end),
               "'a.tar': the archive begins with zero records, which end it, but it has data at "
               "byte ");
    EXPECT_EQ(said_of(dir, std::string(zeros, '\0')), "warning: 'a.tar' holds no member\n");
  }
  EXPECT_HAS(said_of(dir, member + std::string(700, '\0')), "ends inside a record of its end");
}

TEST(Tar, AnArchiveThatEndsInsideARecordIsDamaged) {
  TempDir dir;
  const std::string member = one_member(dir);
  for (size_t size = 1; size < 2048; size += 73)
    EXPECT_HAS(said_of(dir, (member + member).substr(0, size)), "the archive is truncated");
  EXPECT_HAS(said_of(dir, member.substr(0, 512 + 5)),
             "member of 5\n'a.tar': the archive is truncated");
}

TEST(Tar, MembersOfUnknownTypesAreFiles) {
  TempDir dir;
  const std::string member = one_member(dir, 'Q'), end(1024, '\0');
  EXPECT_EQ(said_of(dir, member + member + end),
            "warning: 'a.tar': member 'name' at byte 0 is of the unknown type 81; it and others "
            "like it are read as files\nmember of 5\nmember of 5\n");
}

// A header whose size field is `size`, with the checksum that `sum_of` makes of its bytes.
template <typename Byte>
io::tar::Header header_with(const std::string& size, Byte) {
  Archive archive('0');
  archive.put(0,
              "\xE9t\xE9"
              "e");  // bytes that are negative where char is signed
  archive.put(124, size);
  archive.put(148, "        ");
  int sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<Byte>(archive.bytes[i]);
  archive.put(148, cat(std::oct, sum));
  archive.bytes[154] = '\0';
  return io::tar::parse_header(archive.bytes.data());
}

TEST(TarFormat, SizesAreOctalOrBase256) {
  const auto big = [](std::initializer_list<uint8_t> last) {
    std::string out("\x80" + std::string(11, '\0'));
    std::copy(last.begin(), last.end(), out.end() - static_cast<ptrdiff_t>(last.size()));
    return out;
  };
  const std::pair<std::string, uint64_t> good[] = {
      {"00000000017", 15},
      {"  17        ", 15},
      {std::string("17 \0x", 5), 15},
      {"            ", 0},
      {"777777777777", (uint64_t{1} << 36) - 1},
      {big({1, 2}), 258},
      {big({64, 0, 0, 0, 0, 0, 0, 0}), uint64_t{1} << 62}};
  for (const auto& [size, expected] : good) {
    for (const auto& header : {header_with(size, uint8_t{}), header_with(size, int8_t{})}) {
      EXPECT_STREQ(header.problem, nullptr) << size;
      EXPECT_EQ(header.size, expected) << size;
      EXPECT_EQ(header.name,
                "\xE9t\xE9"
                "e");
    }
  }
  for (const std::string& size :
       {std::string("18"), std::string("1x"), std::string("-1"), std::string("/7"),
        big({64, 0, 0, 0, 0, 0, 0, 1}), big({1, 0, 0, 0, 0, 0, 0, 0, 0})})
    EXPECT_STREQ(header_with(size, uint8_t{}).problem, "a header with an unreadable size") << size;
  const std::string record = Archive('0').bytes;
  EXPECT_STREQ(io::tar::parse_header(record.data()).problem, "a header with a wrong checksum");
}

TEST(TarFormat, OnlyARecordOfZerosIsZero) {
  std::string record(512, '\0');
  EXPECT_TRUE(io::tar::is_zero(record.data()));
  for (const size_t at : {0, 511}) {
    std::string other = record;
    other[at] = 'x';
    EXPECT_FALSE(io::tar::is_zero(other.data())) << at;
  }
}

TEST(TarFormat, DamagedPaxRecordsAreRefused) {
  const auto good = [](const std::string& records) {
    io::tar::Extension out;
    std::string problem;
    const bool parsed = io::tar::parse_pax(records, out, problem);
    EXPECT_EQ(problem, "") << records;
    return parsed;
  };
  const std::string path = pax("path", "p"), offset = pax("GNU.sparse.offset", "0");
  for (const std::string& records :
       {std::string(), path, "6 a=b\n" + path, path + std::string(9, '\0'), std::string("5 a=\n"),
        pax("size", "0"), pax("size", "4611686018427387904"), pax("GNU.sparse.size", "7"),
        pax("GNU.sparse.map", "0,5,10,5"), offset + pax("GNU.sparse.numbytes", "5")})
    EXPECT_TRUE(good(records)) << records;
  for (const std::string& records : {std::string("6 a=bX"),
                                     std::string("7 a=b\n"),
                                     std::string("5 a=b\n"),
                                     std::string("0 a=b\n"),
                                     std::string("2 \n"),
                                     std::string("6_a=b\n"),
                                     std::string("x a=b\n"),
                                     std::string("5 =b\n"),
                                     std::string("4 a\n"),
                                     path + "99 a=b\n",
                                     pax("size", "x"),
                                     pax("size", "-1"),
                                     pax("size", "5 "),
                                     pax("size", "4611686018427387905"),
                                     pax("GNU.sparse.realsize", ""),
                                     pax("GNU.sparse.map", ""),
                                     pax("GNU.sparse.map", "0,5,10"),
                                     pax("GNU.sparse.map", "0,5,"),
                                     pax("GNU.sparse.map", "0,x"),
                                     pax("GNU.sparse.offset", "x"),
                                     pax("GNU.sparse.numbytes", "5"),
                                     offset + pax("GNU.sparse.numbytes", "x")})
    EXPECT_FALSE(good(records)) << records;
  // What is wrong once is not mended by what comes after it.
  const std::string bad[] = {pax("size", "x"), pax("GNU.sparse.size", "x"),
                             pax("GNU.sparse.map", "x"), pax("GNU.sparse.offset", "x"),
                             pax("GNU.sparse.numbytes", "x")};
  for (const std::string& first : bad)
    for (const char* key : {"size", "GNU.sparse.size", "GNU.sparse.offset"}) {
      EXPECT_FALSE(good(first + pax(key, "1"))) << first << key;
      EXPECT_FALSE(good(pax(key, "1") + first)) << key << first;
    }
  EXPECT_FALSE(good(pax("size", "x") + pax("GNU.sparse.map", "0,5")));
  EXPECT_FALSE(good(pax("GNU.sparse.map", "x") + offset + pax("GNU.sparse.numbytes", "5")));
}

TEST(TarFormat, PaxRecordsSayWhatTheMemberIs) {
  io::tar::Extension out;
  std::string problem;
  ASSERT_TRUE(
      io::tar::parse_pax(pax("path", "a=b") + pax("size", "258") + pax("GNU.sparse.name", "n") +
                             pax("GNU.sparse.realsize", "9000") + pax("GNU.sparse.map", "1,2,30,4"),
                         out, problem));
  EXPECT_EQ(out.name, "a=b");
  EXPECT_TRUE(out.has_size && out.sparse && !out.map_in_data);
  EXPECT_EQ(out.size, 258u);
  EXPECT_EQ(out.sparse_name, "n");
  EXPECT_EQ(out.real_size, 9000u);
  ASSERT_EQ(out.parts.size(), 2u);
  EXPECT_EQ(out.parts[1].offset, 30u);
  EXPECT_EQ(out.parts[1].size, 4u);
  for (const auto& [major, minor] : {std::pair{"1", "0"}, {"1", "1"}, {"2", "0"}}) {
    problem = "";
    EXPECT_TRUE(io::tar::parse_pax(pax("GNU.sparse.major", major) + pax("GNU.sparse.minor", minor),
                                   out, problem));
    EXPECT_TRUE(out.map_in_data);
    EXPECT_EQ(problem.empty(), std::string(major) == "1" && std::string(minor) == "0")
        << major << minor;
  }
  EXPECT_EQ(io::tar::refused_global_key(pax("comment", "c")), "");
  for (const char* key : {"path", "size", "GNU.sparse.x"})
    EXPECT_EQ(io::tar::refused_global_key(pax("comment", "c") + pax(key, "1") + pax("path", "2")),
              key);
}

TEST(TarFormat, AMapInTheDataEndsInsideThem) {
  io::tar::Parts parts;
  size_t used = 7;
  EXPECT_TRUE(io::tar::parse_map_in_data("2\n0\n5\n100\n6\n", parts, used));
  EXPECT_EQ(used, 512u);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].offset, 100u);
  EXPECT_EQ(parts[1].size, 6u);
  EXPECT_TRUE(io::tar::parse_map_in_data("0\n", parts, used));
  EXPECT_EQ(used, 512u);
  EXPECT_TRUE(parts.empty());
  for (const char* cut : {"", "2", "2\n0", "2\n0\n5\n", "2\n0\n5\n100\n6"}) {
    EXPECT_TRUE(io::tar::parse_map_in_data(cut, parts, used)) << cut;
    EXPECT_EQ(used, 0u) << cut << ": more is needed";
  }
  for (const char* damaged : {"x\n", "\n", "1\nx\n5\n", "1\n0\nx\n", "-1\n"})
    EXPECT_FALSE(io::tar::parse_map_in_data(damaged, parts, used)) << damaged;
  const auto of = [](size_t count) { return cat(count, "\n") + repeated("0\n0\n", count); };
  EXPECT_TRUE(io::tar::parse_map_in_data(of(io::tar::kMostParts), parts, used));
  EXPECT_EQ(parts.size(), io::tar::kMostParts);
  EXPECT_FALSE(io::tar::parse_map_in_data(of(io::tar::kMostParts + 1), parts, used));
}

TEST(TarFormat, PartsLieInOrderWithinTheFile) {
  using io::tar::parts_fit;
  EXPECT_TRUE(parts_fit({}, 10, 0));
  EXPECT_FALSE(parts_fit({}, 10, 1));
  EXPECT_TRUE(parts_fit({{0, 4}, {4, 6}}, 10, 10));
  EXPECT_TRUE(parts_fit({{2, 3}, {10, 0}}, 10, 3));
  EXPECT_FALSE(parts_fit({{0, 4}, {3, 1}}, 10, 5)) << "they overlap";
  EXPECT_FALSE(parts_fit({{5, 6}}, 10, 6)) << "beyond the end";
  EXPECT_FALSE(parts_fit({{11, 0}}, 10, 0)) << "begins beyond the end";
  EXPECT_FALSE(parts_fit({{5, UINT64_MAX}}, 10, UINT64_MAX));
}

}  // namespace
}  // namespace etr::test
