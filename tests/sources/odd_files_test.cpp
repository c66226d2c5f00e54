// Data of another type than its name or its reader says: what is read, and what the errors say.
#include <algorithm>

#include "core/platform_files.h"
#include "io/tar_writer.h"
#include "sources/files.h"

namespace etr::test {
namespace {

TEST(NpyFamily, TypesThatAreNotReadAreNamed) {
  TempDir dir;
  for (const char* type : {">i4", "<u2", "<u4", "<u8", "|i1", "<i2", "<f2", ">f8", "<c8", "|S3",
                           "<U3", "|O", "<M8[ns]"}) {
    put(dir.path("a.npy"), npy(type, "(1,)", std::string(32, '\0')));
    const std::string error = failure(spec_of("npy", {{"arrays", "x=" + dir.path("a.npy")}}));
    EXPECT_HAS(error, cat("a.npy' holds elements of type '", type,
                          "'; bool, uint8 and little-endian int32"));
  }
  std::string structured = npy("QQ", "(1,)", std::string(8, '\0'));
  structured.replace(structured.find("'QQ'"), 4, "[('a', '<f4'), ('b', '<i4')]");
  structured.erase(structured.rfind("   \n") - 24, 24);
  put(dir.path("a.npy"), structured);
  EXPECT_HAS(failure(spec_of("npy", {{"arrays", "x=" + dir.path("a.npy")}})),
             "of type [('a', '<f4'), ('b', '<i4')] (structured)");
  put(dir.path("a.npz"), std::string("PK\x03\x04") + std::string(60, '\0'));
  EXPECT_HAS(failure(spec_of("npy", {{"arrays", "x=" + dir.path("a.npz")}})),
             "archive of arrays (.npz)");
}

// Every header that differs from a good one in a character is read with the same type and shape, or
// refused.
TEST(NpyFamily, DamagedHeadersAreRefused) {
  TempDir dir;
  const auto said_of = [&](const std::string& bytes) {
    put(dir.path("a.npy"), bytes);
    return failure(spec_of("npy", {{"arrays", "x=" + dir.path("a.npy")}}, {{"epochs", 1}}));
  };
  const std::string good = npy("|u1", "(3,)", "abc");
  ASSERT_EQ(said_of(good), "no error");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return said_of(bytes);
  };
  EXPECT_HAS(with("False", "Fa|se"), "where True or False belongs");
  EXPECT_HAS(with("}  ", "} x"), "where nothing belongs");
  EXPECT_HAS(with("'shape'", "'shapf'"), "the .npy header is damaged");
  EXPECT_HAS(with("'shape': (3,)", "'descr': '|u1'").substr(0, 400), "that comes once");
  EXPECT_HAS(with("(3,)", "(3) "), "the .npy header is damaged");
  EXPECT_HAS(with("'descr': '|u1', ", "                "), "the .npy header has no 'descr'");
  EXPECT_HAS(with("{'de", "\x1b\xff\n\t"), "it has '\\x1b\\xff\\x0a\\x09scr");
  for (const auto& [major, minor] : {std::pair(0, 0), {4, 0}, {1, 1}, {255, 0}}) {
    std::string bytes = good;
    bytes[6] = static_cast<char>(major);
    bytes[7] = static_cast<char>(minor);
    EXPECT_HAS(said_of(bytes), cat("version ", major, ".", minor));
  }
  const size_t end = good.find('}') + 1;
  for (size_t at = 10; at < end; ++at)
    for (const char c : {'|', '\0', '\xff', '\'', ')', '}', '-'}) {
      std::string bytes = good;
      if (bytes[at] == ' ' || bytes[at] == c) continue;
      bytes[at] = c;
      const std::string said = said_of(bytes);
      EXPECT_NE(said, "no error") << bytes.substr(10, end);
      EXPECT_LT(said.size(), 400u) << said;
    }
}

TEST(NpyFamily, AFieldIsNamedOnceAFileMayBeTwice) {
  TempDir dir;
  put(dir.path("a.npy"), npy("|u1", "(3,)", "abc"));
  const std::string file = dir.path("a.npy");
  EXPECT_HAS(failure(spec_of("npy", {{"arrays", "x=" + file + ",x=" + file}})),
             "the field 'x' twice");
  const auto items = read_all(spec_of(
      "npy", {{"arrays", "x=" + file + ",y=" + file}, {"shuffle", false}}, {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(text(items[1], "x"), text(items[1], "y"));
}

TEST(TfRecordFamily, FloatsAreOfFourBytes) {
  TempDir dir;
  for (size_t size = 0; size <= 9; ++size) {
    put(dir.path("a"),
        tf_record(delimited(1, feature("x", 2, delimited(1, std::string(size, '\0'))))));
    const std::string error =
        failure(spec_of("tfrecord", {{"pattern", dir.path("a")}}, {{"epochs", 1}}));
    if (size % 4 == 0)
      EXPECT_EQ(error, "no error") << size;
    else
      EXPECT_HAS(error, cat("feature 'x' has ", size, " bytes of floats"));
  }
}

// To look for a name among all others takes time with the square of their number.
TEST(TfRecordFamily, ARecordHas65536FeaturesAtMost) {
  TempDir dir;
  const auto with = [&](int features) {
    std::string all;
    for (int i = 0; i < features; ++i)
      all += feature(std::to_string(i % 65'000), 3, delimited(1, std::string(1, '\x05')));
    put(dir.path("a"), tf_record(delimited(1, all)));
    return spec_of("tfrecord", {{"pattern", dir.path("a")}}, {{"epochs", 1}});
  };
  EXPECT_HAS(failure(with(65'537)), "key 'record 1'");
  EXPECT_HAS(failure(with(65'537)), "the tf.train.Example has more than 65536 features");
  const auto items = read_all(with(65'536));
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].fields.size(), 65'000u);
  EXPECT_EQ(number(items[0], "64999"), 5);
}

// As in every map of protocol buffers.
TEST(TfRecordFamily, OfFeaturesOfOneNameTheLastCounts) {
  TempDir dir;
  std::string all;
  for (int i = 0; i < 200; ++i)
    all +=
        feature(std::to_string(i % 100), 3, delimited(1, std::string(1, static_cast<char>(i / 2))));
  put(dir.path("a"), tf_record(delimited(1, all)));
  const auto items = read_all(spec_of("tfrecord", {{"pattern", dir.path("a")}}, {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 1u);
  ASSERT_EQ(items[0].fields.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(number(items[0], std::to_string(i).c_str()), 50 + i / 2);
}

TEST(JsonlFamily, NullIsNoText) {
  TempDir dir;
  const auto with = [&](const std::string& value, const char* type) {
    put(dir.path("a"), "{\"m\": {\"t\": 1}}\n{\"m\": {\"t\": " + value + "}}\n");
    return failure(spec_of("jsonl",
                           {{"pattern", dir.path("a")}, {"columns", cat("x:", type, "=m.t")}},
                           {{"epochs", 1}}));
  };
  for (const char* type : {"text", "f32", "u8", "i32"}) {
    const std::string error = with("null", type);
    EXPECT_HAS(error, "key 'line 2'");
    EXPECT_HAS(error, "key 'm.t'");
    EXPECT_HAS(error, "null");
  }
  for (const char* value : {"\"null\"", "\"\"", "true", "[1, null]", "{}"})
    EXPECT_EQ(with(value, "text"), "no error") << value;
}

// By its first elements, this list has 4.9 thousand million.
TEST(JsonlFamily, ARaggedListTakesNoMoreMemoryThanItsLine) {
  TempDir dir;
  std::string line = "{\"x\": [[1";
  for (int i = 1; i < 70'000; ++i) line += ",1";
  line += "]";
  for (int i = 1; i < 70'000; ++i) line += ",0";
  put(dir.path("a"), line + "]}\n");
  const std::string error =
      failure(spec_of("jsonl", {{"pattern", dir.path("a")}, {"columns", "x:u8"}}, {{"epochs", 1}}));
  EXPECT_HAS(error, "key 'line 1'");
  EXPECT_HAS(error, "ragged list; its first elements give [70000, 70000]");
}

// Each takes forty times its text. The lines behind it are read.
TEST(JsonlFamily, ALineHasAMillionListsAtMost) {
  TempDir dir;
  std::string line = "{\"y\": [";
  for (int i = 0; i < 1 << 20; ++i) line += "[],";
  put(dir.path("a"), line + "1], \"x\": 2}\n{\"x\": 3}\n");
  Pipeline p(spec_of("jsonl", {{"pattern", dir.path("a")}, {"columns", "x:i32"}},
                     {{"epochs", 1}, {"on_error", "skip"}}));
  const auto items = read_all(p);
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(number(items[0], "x"), 3);
  EXPECT_EQ(p.bad_record_list()[0]["reason"], "the line has more than 1048576 lists and objects");
}

TEST(TextWindowsFamily, CharactersAreUtf8) {
  TempDir dir;
  const auto with = [&](const std::string& bytes, const std::string& alphabet = "") {
    put(dir.path("a.txt"), "abcdef");
    put(dir.path("b.txt"), "gh" + bytes);
    return failure(spec_of("text_windows",
                           {{"pattern", dir.path("{a,b}.txt")},
                            {"length", 2},
                            {"tokens", "characters"},
                            {"alphabet", alphabet}},
                           {{"epochs", 1}}));
  };
  for (const char* bad : {"\xFF", "\x80", "\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF4\x90\x80\x80", "\xF0\x9F\x98", "\xE2\x82x", "\xF8\x88\x80\x80\x80"})
    EXPECT_HAS(with(bad), "b.txt' is not UTF-8 at byte 2");
  for (const std::string& good :
       {std::string("\xC2\x80"), std::string("\xF4\x8F\xBF\xBF"), std::string("\0", 1)})
    EXPECT_EQ(with(good), "no error");
  EXPECT_EQ(with("", "hgfedcba"), "no error");
  EXPECT_HAS(with("", "hgfedcbah"), "holds the character 'h' twice, at places 0 and 8");
  EXPECT_HAS(with("i", "hgfedcba"), "the character 'i', which is not in the alphabet");
}

// A file may be cut within a character, as `split` does it.
TEST(TextWindowsFamily, FilesAreOneText) {
  TempDir dir;
  put(dir.path("a.txt"), "a\xC3");
  put(dir.path("b.txt"), "\xA4z");
  const auto items = read_all(spec_of(
      "text_windows", {{"pattern", dir.path("{a,b}.txt")}, {"length", 2}, {"tokens", "characters"}},
      {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(values<int32_t>(items[0], "input"), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(values<int32_t>(items[0], "target"), (std::vector<int32_t>{2, 1}));
}

TEST(Names, ThatLieAboutCompressionAreToldSo) {
  TempDir dir;
  {
    io::TarWriter writer(dir.path("plain"), 0);
    writer.add("1.x", std::as_bytes(std::span("x", 1)));
    writer.finish();
  }
  const std::string tar = platform::read_file(dir.path("plain"));
  write_gz(dir.path("gz"), tar);
  const std::string gzip = platform::read_file(dir.path("gz"));
  struct Kind {
    const char* name;
    std::string bytes;
    std::vector<const char*> endings;
  };
  const Kind kinds[] = {{"plain tar", tar, {".tar"}},
                        {"gzip", gzip, {".tar.gz", ".tgz"}},
                        {"zstd", zst(tar), {".tar.zst", ".tzst"}}};
  for (const Kind& is : kinds)
    for (const Kind& named : kinds)
      for (const char* ending : named.endings) {
        put(dir.path("a") + ending, is.bytes);
        const std::string error =
            failure(spec_of("webdataset", {{"pattern", dir.path("a") + ending}}, {{"epochs", 1}}));
        if (&is == &named)
          EXPECT_EQ(error, "no error");
        else if (&named == &kinds[0])
          EXPECT_HAS(error, cat("is not a tar archive but ", is.name));
        else
          EXPECT_HAS(error, cat("is named as ", named.name, " data and is ", is.name,
                                " data; rename it to end in ."));
      }
}

}  // namespace
}  // namespace etr::test
