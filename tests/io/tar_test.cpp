// Archives of every kind, beside what Python's tarfile reads from them.
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "core/platform_files.h"
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

  std::string error(const TempDir& dir) {
    put(148, "        ");
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(bytes[i]);
    put(148, cat(std::oct, sum));
    bytes[154] = '\0';
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
             "'a.tar' is no tar archive but gzip data");
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

}  // namespace
}  // namespace etr::test
