// Small files that promise much, files that shrink: what is read of them in a process that has
// little memory to give.
#include <gtest/gtest.h>
#include <zstd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "io/fast_shard.h"
#include "io/line_reader.h"
#include "io/record_file.h"
#include "io/tar_reader.h"
#include "support/child.h"
#include "support/data.h"
#include "support/error_text.h"
#include "support/http_server.h"

namespace etr::test {
namespace {

constexpr int64_t kLittle = int64_t{200} << 20;

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string zstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

// A frame of a megabyte of zeros, again and again.
std::string zeros_as_zstd(int megabytes) {
  const std::string frame = zstd(std::string(1 << 20, '\0'));
  std::string out;
  for (int i = 0; i < megabytes; ++i) out += frame;
  return out;
}

// A ustar header of a file of so many bytes.
std::string tar_header(uint64_t size) {
  std::string out(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { out.replace(at, text.size(), text); };
  put(0, "big.bin");
  put(124, cat(std::oct, size));
  out[156] = '0';
  put(148, "        ");
  unsigned sum = 0;
  for (const char c : out) sum += static_cast<unsigned char>(c);
  put(148, cat(std::oct, sum));
  out[154] = '\0';
  return out;
}

// 0 where `read` ends with an Error of this code, in little memory.
template <typename Read>
int ends_with(Code code, Read&& read) {
  return in_child([&] {
    if (!limit_memory(kLittle)) return 1;
    try {
      read();
    } catch (const Error& error) {
      if (error.code() == code) return 0;
      std::fprintf(stderr, "%s\n", error.what());
      return 2;
    } catch (const std::bad_alloc&) {
      return 3;
    }
    return 4;
  });
}

TEST(Bombs, AnArchiveThatDecompressesToGigabytes) {
  TempDir dir;
  write(dir.path("a.tar.zst"), zstd(tar_header(1900 << 20)) + zeros_as_zstd(1900));
  ASSERT_LT(std::filesystem::file_size(dir.path("a.tar.zst")), 120'000u);
  for (const double ratio : {100.0, 1000.0})
    EXPECT_EQ(ends_with(Code::unsupported,
                        [&] {
                          io::TarReader reader(
                              io::open_stream(dir.path("a.tar.zst"), {.max_ratio = ratio}), "a");
                          io::TarMember member;
                          reader.next(member);
                        }),
              0)
        << ratio;
}

TEST(Bombs, ALengthIsBelievedWhenTheBytesAreThere) {
  TempDir dir;
  write(dir.path("a.tar.zst"), zstd(tar_header(1900 << 20) + "few"));
  EXPECT_EQ(ends_with(Code::corrupt_data,
                      [&] {
                        io::TarReader reader(io::open_stream(dir.path("a.tar.zst")), "a");
                        io::TarMember member;
                        reader.next(member);
                      }),
            0);
}

TEST(Bombs, AWholeFileBeyondItsLimit) {
  TempDir dir;
  write(dir.path("a.zst"), zeros_as_zstd(1900));
  EXPECT_EQ(ends_with(Code::unsupported,
                      [&] { io::read_whole(dir.path("a.zst"), {.max_ratio = 1e9}, 50 << 20); }),
            0);
  EXPECT_EQ(
      ends_with(
          Code::unsupported,
          [&] { io::read_whole(dir.path("a.zst"), {.max_ratio = 1e9, .budget_bytes = 50 << 20}); }),
      0);
}

TEST(Bombs, ALineWithoutAnEnd) {
  TempDir dir;
  write(dir.path("a.zst"), zeros_as_zstd(1900) + zstd("\nshort\n"));
  EXPECT_EQ(ends_with(Code::unsupported,
                      [&] {
                        io::LineReader lines(io::open_stream(dir.path("a.zst"), {.max_ratio = 1e9}),
                                             "a", {1 << 20, "max_line_bytes"});
                        std::string line;
                        lines.next(line);
                      }),
            0);
  // The next call goes on after it.
  io::LineReader lines(io::open_stream(dir.path("a.zst"), {.max_ratio = 1e9}), "a",
                       {1 << 20, "max_line_bytes"});
  std::string line;
  EXPECT_THROW(lines.next(line), Error);
  ASSERT_TRUE(lines.next(line));
  EXPECT_EQ(line, "short");
  EXPECT_EQ(lines.number(), 2u);
  EXPECT_FALSE(lines.next(line));
}

std::string u32(uint32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }

TEST(Bombs, AnIndexOfAGigabyteInAFewBytes) {
  TempDir dir;
  // A frame's header that promises a gigabyte, with 4 bytes for its size.
  const std::string frame =
      std::string("\x28\xb5\x2f\xfd\xa0", 5) + u32(1 << 30) + std::string(3, '\1');
  const std::string table = u32(0) + std::string(1, '\0') + u32(0x8F92EAB1);
  write(dir.path("a.ets"), u32(0x184D2A50) + u32(static_cast<uint32_t>(frame.size())) + frame +
                               u32(0x184D2A5E) + u32(static_cast<uint32_t>(table.size())) + table);
  EXPECT_EQ(ends_with(Code::corrupt_data, [&] { io::FastShard shard(dir.path("a.ets")); }), 0);
}

TEST(RecordFile, SmallOnesStayInMemoryLargeOnesOnTheDisk) {
  TempDir dir;
  write(dir.path("small"), std::string(1000, 's'));
  write(dir.path("large"), std::string(10'000, 'l'));
  std::filesystem::resize_file(dir.path("large"), io::RecordFile::kMostKept + 1);  // a hole
  const io::RecordFile small(dir.path("small"), {}), large(dir.path("large"), {});
  std::filesystem::resize_file(dir.path("small"), 1);
  std::filesystem::resize_file(dir.path("large"), 5000);
  EXPECT_EQ(small.read(999, 1).get()[0], std::byte{'s'});
  for (const uint64_t offset : {0, 4999}) try {
      large.read(offset, 2);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
      EXPECT_NE(std::string(error.what()).find("'" + dir.path("large")), std::string::npos);
    }
}

// What a file holds that was written to, nobody knows, though it has as many bytes as before.
TEST(RecordFile, WrittenToOrReplacedIsAnError) {
  TempDir dir;
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  const auto make = [&](const std::string& name, char c) {
    write(dir.path(name), std::string(1000, c));
    std::filesystem::last_write_time(dir.path(name), old);
  };
  make("a", 'a');
  std::vector<std::unique_ptr<io::RecordFile>> files;  // the last ones are opened for each record
  for (int i = 0; i < 300; ++i)
    files.push_back(
        std::make_unique<io::RecordFile>(dir.path("a"), io::ReadOptions{.budget_bytes = 1}));
  EXPECT_EQ(files.back()->read(10, 1).get()[0], std::byte{'a'});
  make("b", 'b');
  std::filesystem::last_write_time(dir.path("b"), old + std::chrono::seconds(1));
  std::filesystem::rename(dir.path("b"), dir.path("a"));
  EXPECT_EQ(files.front()->read(10, 1).get()[0], std::byte{'a'}) << "it is open, the old file";
  EXPECT_THROW(files.back()->read(10, 1), Error);
  const io::RecordFile last(dir.path("a"), {.budget_bytes = 1});
  write(dir.path("a"), std::string(1000, 'c'));
  EXPECT_THROW(last.read(10, 1), Error);
}

TEST(RecordFile, ReadsNothingBeyondItsEnd) {
  TempDir dir;
  write(dir.path("a"), "0123456789");
  const io::RecordFile file(dir.path("a"), {});
  EXPECT_EQ(file.read(9, 1).get()[0], std::byte{'9'});
  EXPECT_NO_THROW(file.read(10, 0));
  for (const auto& [offset, size] :
       {std::pair<uint64_t, size_t>{10, 1}, {11, 0}, {0, 11}, {1, SIZE_MAX}})
    EXPECT_THROW(file.read(offset, size), Error) << offset << " + " << size;
}

TEST(Lines, EndInEveryWay) {
  TempDir dir;
  write(dir.path("a"), "a\n\nb\r\n\r\nccc\nlast");
  const auto lines_of = [&](const std::string& path, uint64_t most) {
    io::LineReader lines(io::open_stream(path), "a", {most, "max_line_bytes"});
    std::string out;
    for (std::string line; lines.next(line);) {
      const std::string ending = lines.ending();
      out += cat(lines.number(), line,
                 ending == "\r\n" ? "<"
                 : ending == "\r" ? "-"
                 : ending == "\n" ? "|"
                                  : ".");
    }
    return out;
  };
  EXPECT_EQ(lines_of(dir.path("a"), 100), "1a|2|3b<4<5ccc|6last.");
  EXPECT_EQ(lines_of(dir.path("a"), 4), "1a|2|3b<4<5ccc|6last.")
      << "exactly as long as they may be";
  EXPECT_THROW(lines_of(dir.path("a"), 3), Error);
  write(dir.path("b"), "x\r");
  EXPECT_EQ(lines_of(dir.path("b"), 100), "1x-");
  write(dir.path("c"), "");
  EXPECT_EQ(lines_of(dir.path("c"), 100), "");
}

// Its reader neither begins the old lines anew nor goes on in the middle of one.
TEST(Lines, EndWhereTheirFileFails) {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += cat("line ", i, "\n");
  write(dir.path("a"), text);
  io::LineReader lines(io::open_stream(dir.path("a")), "a", {1 << 20, "max_line_bytes"});
  std::string line;
  ASSERT_TRUE(lines.next(line));
  std::filesystem::resize_file(dir.path("a"), 100'000);
  int read = 1;
  EXPECT_THROW(
      while (lines.next(line)) {
        ASSERT_EQ(line, cat("line ", read));
        ++read;
      },
      Error);
  EXPECT_FALSE(lines.can_go_on());
  EXPECT_LT(read, 100'000 / 7);
}

TEST(FastShard, ShortenedWhileItIsReadIsAnErrorOfTheRecord) {
  TempDir dir;
  {
    io::FastShardWriter writer(dir.path("a.ets"));
    const auto frame = io::zstd_frame(std::as_bytes(std::span("content", 7)), 1);
    const io::FastShardWriter::Field fields[] = {{"bin", frame, 7}};
    for (const char* key : {"a", "b"}) writer.add(key, fields);
    writer.finish();
  }
  const io::FastShard shard(dir.path("a.ets"), {.budget_bytes = 1});  // keeps nothing
  EXPECT_EQ(shard.record(1).fields.size(), 1u);
  std::filesystem::resize_file(dir.path("a.ets"), 20);
  EXPECT_THROW(shard.record(1), Error);
}

// More shards than a process may have open files.
TEST(RecordFile, ThereMayBeVeryMany) {
  TempDir dir;
  write(dir.path("a"), "0123456789");
  EXPECT_EQ(in_child([&] {
              const rlimit few{400, 400};
              if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
              std::vector<std::unique_ptr<io::RecordFile>> files;
              for (int i = 0; i < 1000; ++i)
                files.push_back(std::make_unique<io::RecordFile>(
                    dir.path("a"), io::ReadOptions{.budget_bytes = 1}));
              for (const auto& file : files)
                if (file->read(3, 4).get()[0] != std::byte{'3'}) return 2;
              return 0;
            }),
            0);
}

// A frame of the content "hello". Its header ends with the exponent of its window, or it says that
// the window is `content` bytes, more than come.
std::string frame_of_window(int log, uint32_t content = 0) {
  std::string out = "\x28\xb5\x2f\xfd";
  if (content == 0) {
    out += '\0';
    out += static_cast<char>((log - 10) << 3);
  } else {
    out += '\xa0';
    for (int i = 0; i < 4; ++i) out += static_cast<char>(content >> 8 * i);
  }
  return out + std::string("\x29\0\0", 3) + "hello";
}

TEST(Zstd, AWindowBeyondTheBudgetIsToldWithTheBudgetThatItTakes) {
  TempDir dir;
  const auto said = [&](const std::string& frames, uint64_t budget) {
    write(dir.path("a.zst"), frames);
    io::ReadOptions options;
    options.budget_bytes = budget;
    try {
      const auto block = io::read_whole(dir.path("a.zst"), options);
      return std::string(reinterpret_cast<const char*>(block.data.get()), block.size);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
      return std::string(error.what());
    }
  };
  constexpr uint64_t kBudget = 16 << 20;
  const std::string wanted =
      cat("': its zstd data takes a window of ", 32 << 20, " bytes, and budget_bytes leaves ",
          8 << 20, " for one: set it to at least ", 128 << 20);
  for (const std::string& frames : {frame_of_window(25), frame_of_window(10) + frame_of_window(25),
                                    frame_of_window(0, 32 << 20)})
    EXPECT_NE(said(frames, kBudget).find(wanted), std::string::npos) << said(frames, kBudget);
  EXPECT_EQ(said(frame_of_window(10) + frame_of_window(25), 128 << 20), "hellohello");
  EXPECT_NE(said(frame_of_window(27), kBudget).find("budget_bytes leaves"), std::string::npos);
  // The header may come in pieces.
  const HttpServer server({{"/a.zst", frame_of_window(10) + frame_of_window(25)}});
  for (const uint64_t piece : {1, 3, 17}) {
    io::ReadOptions options{.remote = {.part_bytes = piece}, .budget_bytes = kBudget};
    const std::string text =
        error_text([&] { io::read_whole(server.address() + "/a.zst", options); });
    EXPECT_NE(text.find(wanted), std::string::npos) << piece << text;
  }
  // The other forms of a header (RFC 8878, 3.1.1.1).
  const std::string magic = "\x28\xb5\x2f\xfd", block("\x29\0\0hello", 8),
                    eight("\0\0\0\x09\0\0\0\0", 8);
  for (const auto& [header, window] : {std::pair(std::string("\0\x8b", 2), uint64_t{11} << 24),
                                       {std::string("\0\x8f", 2), uint64_t{15} << 24},
                                       {"\xe0" + eight, uint64_t{9} << 24},
                                       {std::string("\x40\x8c\0\0", 4), uint64_t{12} << 24}})
    EXPECT_NE(said(magic + header + block, 1).find(cat("takes a window of ", window, " bytes")),
              std::string::npos)
        << window << said(magic + header + block, 1);
  for (const uint64_t budget : {uint64_t{0}, kBudget})
    EXPECT_NE(said(frame_of_window(28), budget)
                  .find(cat("': its zstd data takes a window of ", 256 << 20,
                            " bytes; the limit is ", 128 << 20)),
              std::string::npos)
        << said(frame_of_window(28), budget);
}

}  // namespace
}  // namespace etr::test
