// How much of a stream is read and believed.
#include "io/byte_stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "core/error.h"
#include "core/platform.h"
#include "support/error_text.h"
#include "support/http_server.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

// A stream of some bytes, which may say how many are left.
class Some final : public io::ByteStream {
 public:
  explicit Some(size_t size, std::optional<uint64_t> left = std::nullopt)
      : size_(size), left_(left) {}
  size_t read(std::span<std::byte> out) override {
    const size_t n = std::min(size_, out.size());
    std::memset(out.data(), 'x', n);
    size_ -= n;
    return n;
  }
  std::optional<uint64_t> left() const override { return left_; }

 private:
  size_t size_;
  const std::optional<uint64_t> left_;
};

TEST(ByteStream, ALengthIsTrustedIfTheBytesAreThere) {
  constexpr uint64_t kWanted = uint64_t{1} << 40, kFirst = uint64_t{16} << 20;
  EXPECT_EQ(io::trusted_bytes(Some(0, kWanted), 0, kWanted), kWanted);
  EXPECT_EQ(io::trusted_bytes(Some(0, kWanted - 5), 5, kWanted), kWanted);
  EXPECT_EQ(io::trusted_bytes(Some(0, kWanted - 6), 5, kWanted), 5 + kFirst);
  EXPECT_EQ(io::trusted_bytes(Some(0), 0, kWanted), kFirst);
  EXPECT_EQ(io::trusted_bytes(Some(0), 3 * kFirst, kWanted), 6 * kFirst);
  EXPECT_EQ(io::trusted_bytes(Some(0), 3 * kFirst, 5 * kFirst), 5 * kFirst);
}

TEST(ByteStream, ReadsExactlySoMuchOrSaysThatItEnds) {
  std::vector<std::byte> out(3);
  Some five(5), six(6), large(40 << 20);
  EXPECT_TRUE(io::read_exactly(five, out, 5));
  EXPECT_EQ(out, std::vector<std::byte>(5, std::byte{'x'}));
  EXPECT_TRUE(io::read_exactly(five, out, 0));
  EXPECT_TRUE(out.empty());
  EXPECT_FALSE(io::read_exactly(six, out, 7));
  EXPECT_TRUE(io::read_exactly(large, out, 40 << 20));
  EXPECT_EQ(out, std::vector<std::byte>(40 << 20, std::byte{'x'}));
}

TEST(ByteStream, AWholeFileHasALimit) {
  const TempDir dir;
  for (const size_t size : {size_t{0}, size_t{100}, size_t{1} << 20, (size_t{5} << 20) + 1}) {
    std::string content(size, ' ');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * i >> 7);
    std::ofstream(dir.path("a"), std::ios::binary) << content;
    ASSERT_EQ(std::system(cat("cd ", dir.path(), " && gzip -kf a && zstd -qf a").c_str()), 0);
    for (const char* name : {"a", "a.gz", "a.zst"}) {
      const std::string path = dir.path(name);
      const io::Block whole = io::read_whole(path, {}, size);
      EXPECT_TRUE(std::string_view(reinterpret_cast<const char*>(whole.data.get()), whole.size) ==
                  content)
          << path;
      if (size == 0) continue;
      const std::string has = path.ends_with("a") ? cat("has ", size, " bytes; the limit is ")
                                                  : "holds more than ",
                        end = path.ends_with("a") ? "" : " bytes";
      EXPECT_EQ(error_text([&] {
                  io::read_whole(path, {}, {size - 1, "an option"});
                }),
                cat("'", path, "' ", has, size - 1, end, " (an option)"));
      EXPECT_EQ(error_text([&] { io::read_whole(path, {.budget_bytes = size - 1}); }),
                cat("'", path, "' ", has, size - 1, end, " (budget_bytes)"));
    }
  }
}

// Whatever the pieces in which a stream is read.
TEST(ByteStream, GivesItsBytesInAnyPieces) {
  const TempDir dir;
  std::string content(300'000, ' ');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i >> 9);
  std::ofstream(dir.path("a"), std::ios::binary) << content;
  const std::string command =
      " && gzip -kf a && zstd -qf a && cat a.gz a.gz > b.gz && "
      "head -c 99 /dev/zero >> b.gz && cat a.zst a.zst > b.zst && "
      "cat a a > b";
  ASSERT_EQ(std::system(("cd " + dir.path() + command).c_str()), 0);
  content += content;
  std::map<std::string, std::string> served;
  std::vector<std::string> paths;
  for (const char* name : {"b", "b.gz", "b.zst"}) {
    served[cat("/", name)] = platform::read_file(dir.path(name));
    paths.push_back(dir.path(name));
  }
  const HttpServer server(served);
  for (const auto& [name, bytes] : served) paths.push_back(server.address() + name);
  for (const std::string& path : paths)
    for (const size_t piece : {size_t{1000}, size_t{300'000}, size_t{1} << 21}) {
      const auto stream = io::open_stream(path, {.remote = {.part_bytes = 100'000}});
      std::string out, bytes(piece, ' ');
      size_t got = piece;
      while (got == piece) {
        const auto left = stream->left();
        EXPECT_EQ(left.has_value(), path == paths[0]) << path;
        EXPECT_EQ(left.value_or(content.size() - out.size()), content.size() - out.size());
        got = stream->read(std::as_writable_bytes(std::span(bytes)));
        out.append(bytes, 0, got);
      }
      EXPECT_TRUE(out == content) << path << " " << piece;
      EXPECT_EQ(stream->read(std::as_writable_bytes(std::span(bytes))), 0u);
    }
}

TEST(ByteStream, APipeIsReadOnlyOnce) {
  EXPECT_NE(error_text([] {
              io::open_stream("/dev/zero", {.only_files = true});
            }).find("'/dev/zero' is a pipe and can be read only once"),
            std::string::npos);
  EXPECT_EQ(error_text([] { io::open_stream("/dev/zero"); }), "");
}

TEST(ByteStream, SaysWhatIsWrong) {
  const TempDir dir;
  std::ofstream(dir.path("a")) << std::string(1000, 'a');
  ASSERT_EQ(std::system(cat("cd ", dir.path(), " && gzip -k a && zstd -q a").c_str()), 0);
  for (const auto& [name, kind] : {std::pair("a.gz", "gzip"), {"a.zst", "zstd"}}) {
    const std::string path = dir.path(name), good = platform::read_file(path);
    const auto said = [&](const std::string& bytes) {
      std::ofstream(path, std::ios::binary) << bytes;
      return error_text([&] { io::read_whole(path); });
    };
    EXPECT_EQ(said(good), "");
    EXPECT_EQ(said("").find(cat("'", path, "' is empty; even a ", kind)), 0u);
    EXPECT_EQ(said(good.substr(0, good.size() - 1)),
              cat("'", path, "': the ", kind, " data ends early, after compressed byte ",
                  good.size() - 1, "; the file is truncated"));
    std::string bad = good;
    bad[bad.size() - 5] ^= 1;  // part of the checksum, or of the last block
    bad[bad.size() - 9] ^= 1;
    EXPECT_EQ(said(bad).find(cat("'", path, "': corrupt ", kind, " data near compressed byte ")),
              0u)
        << said(bad);
    EXPECT_EQ(said(bad).find("unknown"), std::string::npos) << said(bad);
    EXPECT_NE(said(good + "more").find(cat("corrupt ", kind)), std::string::npos);
    EXPECT_NE(said(std::string(600, 'x')).find(cat("corrupt ", kind)), std::string::npos);
  }
}

}  // namespace
}  // namespace etr::test
