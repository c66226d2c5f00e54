// What lies beside the data, is named wrongly, has no end or is of another type: what is read as before, and what the errors say.
#include <sys/stat.h>
#include <zstd.h>

#include <algorithm>
#include <mutex>

#include "core/log.h"
#include "core/platform_files.h"
#include "io/tar_writer.h"
#include "sources/alone.h"
#include "support/child.h"

namespace etr::test {
namespace {

void put(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string zst(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

// The lines that are logged while it lives.
class Log {
 public:
  Log() {
    set_log_hook([this](LogLevel, const char* line) {
      std::scoped_lock lock(mutex_);
      lines_ += cat(line, '\n');
    });
  }
  ~Log() { set_log_hook(nullptr); }
  std::string lines() const {
    std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::string lines_;
};

// Folders of images ---------------------------------------------------------------------------------

Json images_spec(const TempDir& dir, const Json& more = Json::object()) {
  Json out{
      {"epochs", 1},
      {"stages",
       {{{"stage", "folder"}, {"root", dir.path()}, {"shuffle", false}}, {{"stage", "decode"}}}}};
  out.update(more);
  return out;
}

TEST(ImageFolder, TakesImagesInCapitalsAndPassesOverTheRest) {
  TempDir dir;
  const std::string png = make_png(4, 4, 1, 1);
  for (const char* name : {"a/1.png", "a/2.PNG", "b/3.Png", "b/notes.png.txt", "b/.4.png",
                           "b/deep/5.png", "b/README", "stray.png", "none/notes.txt"})
    put(dir.path(name), png);
  std::filesystem::create_directory_symlink(dir.path("loop"), dir.path("loop"));
  std::filesystem::create_symlink("6.png", dir.path("a/6.png"));
  std::filesystem::create_directory_symlink("..", dir.path("a/up"));
  std::filesystem::create_symlink("1.png", dir.path("a/7.png"));
  ASSERT_EQ(mkfifo(dir.path("a/8.png").c_str(), 0600), 0);
  const Log log;
  const auto items = read_all(images_spec(dir));
  std::vector<std::string> keys;
  for (const Item& item : items) {
    keys.push_back(item.origin->key);
    EXPECT_NE(item.find("image"), nullptr);
    EXPECT_EQ(item.fields.size(), 2u) << "the field with the file is gone";
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"a/1.png", "a/2.PNG", "a/7.png", "b/3.Png"}));
  EXPECT_EQ(text(items[3], "cls"), "1");
  EXPECT_HAS(log.lines(), "'a/6.png' (a link that leads nowhere)");
  EXPECT_HAS(log.lines(), "'a/8.png' (not a regular file)");
  EXPECT_HAS(log.lines(), "'a/up' (a folder within a class folder), ...");
  EXPECT_HAS(log.lines(), "holds 10 entries beside its samples");
  EXPECT_EQ(log.lines().find(".4.png"), std::string::npos);
}

TEST(ImageFolder, OfOtherExtensionsIsReadWhereItIsTold) {
  TempDir dir;
  put(dir.path("a/1.TIFF"), "x");
  put(dir.path("a/2.txt"), "y");
  const auto with = [&](const char* extensions) {
    return spec_of("folder", {{"root", dir.path()}, {"extensions", extensions}, {"shuffle", false}},
                   {{"epochs", 1}});
  };
  EXPECT_HAS(failure(with("png,jpg")), "'a/1.TIFF' is not one of the extensions that are read");
  EXPECT_EQ(read_all(with("")).size(), 2u);
  for (const char* one : {"tiff", ".TIFF", " tiff , bmp"}) {
    const auto items = read_all(with(one));
    ASSERT_EQ(items.size(), 1u) << one;
    EXPECT_EQ(text(items[0], "tiff"), "x") << "fields have names in small letters";
  }
  EXPECT_HAS(failure(with("tiff,,bmp")), "'extensions' is 'tiff,,bmp'");
}

TEST(ImageFolder, ABrokenImageIsABadRecordWhoseErrorSaysTheFix) {
  const std::string png = make_png(40, 40, 3, 1);
  for (const std::string& bytes : {std::string(), png.substr(0, 7), png.substr(0, png.size() / 2),
                                   std::string("no image"), std::string(64, '\0')}) {
    TempDir dir;
    put(dir.path("a/1.jpg"), bytes);
    put(dir.path("a/2.png"), png);
    const std::string error = failure(images_spec(dir));
    EXPECT_HAS(error, "key 'a/1.jpg'");
    EXPECT_HAS(error, "set on_error to skip or quarantine");
    Pipeline p(images_spec(dir, {{"on_error", "skip"}}));
    EXPECT_EQ(read_all(p).size(), 1u);
    EXPECT_EQ(p.stats()["bad_records"], 1);
  }
  TempDir dir;  // which no policy mends
  EXPECT_EQ(failure(spec_of("text_lines", {{"pattern", dir.path("none")}})).find("on_error"),
            std::string::npos);
}

TEST(ImageFolder, ThatMayNotBeReadIsNamed) {
  TempDir dir;
  put(dir.path("a/1.png"), make_png(4, 4, 1, 1));
  put(dir.path("b/1.png"), make_png(4, 4, 1, 1));
  chmod(dir.path().c_str(), 0755);  // for the child, whose user is another
  chmod(dir.path("b").c_str(), 0);
  const int status = in_child([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return 1;  // who may read everything
    for (const auto& [stage, options] :
         {std::pair<const char*, Json>{"folder", {{"root", dir.path()}}},
          {"files", {{"pattern", dir.path("*/*.png")}}}}) {
      const std::string error = failure_alone(stage, options);
      if (error.find("cannot list '" + dir.path("b") + "': Permission denied") != error.npos)
        continue;
      std::fprintf(stderr, "%s\n", error.c_str());
      return 2;
    }
    return 0;
  });
  chmod(dir.path("b").c_str(), 0700);
  EXPECT_EQ(status, 0);
}

TEST(Globs, PassOverFoldersAndLinksThatLeadNowhere) {
  TempDir dir;
  put(dir.path("1.txt"), "x");
  put(dir.path("sub/2.txt"), "y");
  std::filesystem::create_directory_symlink(dir.path("loop"), dir.path("loop"));
  const auto with = [&](const char* pattern) {
    return failure(spec_of("files", {{"pattern", dir.path(pattern)}}, {{"epochs", 1}}));
  };
  EXPECT_EQ(with("[1s]*"), "no error");
  EXPECT_EQ(with("*/*.txt"), "no error");
  EXPECT_HAS(with("s*"), "only folders match '" + dir.path("s*"));
  EXPECT_HAS(with("loop/*"), "no file matches");
  EXPECT_HAS(with("sub"), dir.path("sub"));
}

TEST(Decode, FindsItsFieldInCapitals) {
  TempDir dir;
  io::TarWriter writer(dir.path("a.tar"), 0);
  const std::string png = make_png(4, 4, 1, 1);
  for (const char* name : {"1.PNG", "2.png"}) writer.add(name, std::as_bytes(std::span(png)));
  writer.finish();
  for (const char* field : {"", "png", "Png"}) {
    const Json spec{{"epochs", 1},
                    {"stages",
                     {{{"stage", "webdataset"}, {"pattern", dir.path("a.tar")}},
                      {{"stage", "decode"}, {"field", field}}}}};
    EXPECT_EQ(read_all(spec).size(), 2u) << field;
  }
}

// CSV -----------------------------------------------------------------------------------------------

// What the source gives of a text, rows apart from bad ones: the first cell of each that has as many as the first row.
TEST(CsvFamily, IsReadAsPythonReadsIt) {
  TempDir dir;
  ASSERT_EQ(
      std::system(("python3 " ETR_SOURCE_DIR "/tests/sources/csv_family.py > " + dir.path("family"))
                      .c_str()),
      0);
  std::ifstream family(dir.path("family"));
  int texts = 0;
  for (std::string line; std::getline(family, line); ++texts) {
    const Json expected = parse_json(line, "family");
    const Json& rows = expected["rows"];
    put(dir.path("a.csv"), expected["text"].get<std::string>());
    Alone source("csv",
                 {{"pattern", dir.path("a.csv")}, {"columns", "a:text=0"}, {"header", false}});
    for (size_t i = 0; i < rows.size(); ++i) {
      Item item;
      const std::string error = source.next(item);
      if (expected["open"] == true && i + 1 == rows.size()) {
        EXPECT_HAS(error, "never closed");
      } else if (rows[i].size() != rows[0].size()) {
        EXPECT_HAS(error, cat("the row has ", rows[i].size(), " columns"));
      } else {
        ASSERT_EQ(error, "") << line;
        EXPECT_EQ(text(item, "a"), rows[i][0].get<std::string>()) << line;
      }
    }
    EXPECT_EQ(source.next(), "end") << line;
  }
  EXPECT_EQ(texts, 1 + 5 + 25 + 125 + 625 + 243);
}

std::string csv_failure(const TempDir& dir, const std::string& bytes, Json options) {
  put(dir.path("a.csv"), bytes);
  options["pattern"] = dir.path("a.csv");
  return failure(spec_of("csv", options, {{"epochs", 1}}));
}

TEST(CsvFamily, BlankFieldsAreRows) {
  TempDir dir;
  for (const char* row : {"\"\"", " ", "\t"}) {
    const std::string bytes = std::string("x\n1\n") + row + "\n2\n";
    EXPECT_HAS(csv_failure(dir, bytes, {{"columns", "x:f32"}}), "key 'line 3'");
    EXPECT_EQ(csv_failure(dir, bytes, {{"columns", "x:text"}}), "no error");
    EXPECT_EQ(read_all(spec_of("csv", {{"pattern", dir.path("a.csv")}, {"columns", "x:text"}},
                               {{"epochs", 1}}))
                  .size(),
              3u);
  }
  EXPECT_EQ(csv_failure(dir, "\n\r\nx\n\n1\r\r\n\r\n", {{"columns", "x:u8"}}), "no error");
}

TEST(CsvFamily, CarriageReturnsEndNoLines) {
  TempDir dir;
  EXPECT_HAS(csv_failure(dir, "x,y\r1,2\r3,4\r", {{"columns", "x:f32"}}), "a carriage return");
  EXPECT_HAS(csv_failure(dir, "x,y\n1,2\n3\r,4\n", {{"columns", "x:f32"}}), "key 'line 3'");
  EXPECT_EQ(csv_failure(dir, "x,y\n\"1\r\",2\r\n", {{"columns", "x:f32"}}), "no error");
}

TEST(CsvFamily, DelimitersAndNamesMustTellColumnsApart) {
  TempDir dir;
  for (const char* delimiter : {"\"", "\n", "\r", "", ",,", "\xC3\xA4"})
    EXPECT_HAS(csv_failure(dir, "x\n1\n", {{"columns", "x:f32"}, {"delimiter", delimiter}}),
               "'delimiter'");
  EXPECT_HAS(csv_failure(dir, "x,y,x\n1,2,3\n", {{"columns", "x:f32"}}),
             "more than one column 'x'");
  EXPECT_EQ(csv_failure(dir, "x,y,x\n1,2,3\n", {{"columns", "y:f32"}}), "no error");
  EXPECT_HAS(csv_failure(dir, "x,y\n1,2\n", {{"columns", "x:f32,x:f32=y"}}), "field 'x' twice");
  // Columns go by their names, in whatever order a file has them.
  put(dir.path("b/1.csv"), "x,y\n1,2\n");
  put(dir.path("b/2.csv"), "y,x\n2,1\n");
  for (const Item& item : read_all(spec_of(
           "csv", {{"pattern", dir.path("b/*")}, {"columns", "y:f32,x:f32"}}, {{"epochs", 1}})))
    EXPECT_EQ(values<float>(item, "x"), std::vector<float>{1});
}

TEST(CsvFamily, AColumnThatIsMissingEndsTheFileUnderEveryPolicy) {
  TempDir dir;
  put(dir.path("a.csv"), "1\n2\n3\n");
  Pipeline p(spec_of(
      "csv", {{"pattern", dir.path("a.csv")}, {"columns", "a:f32=0,b:f32=7"}, {"header", false}},
      {{"epochs", 1}, {"on_error", "skip"}}));
  EXPECT_EQ(read_all(p).size(), 0u);
  EXPECT_EQ(p.stats()["bad_records"], 1);
}

// Without an end ------------------------------------------------------------------------------------

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
      "");
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

// Of another type -----------------------------------------------------------------------------------

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

// Every header that differs from a good one in a character is read with the same type and shape, or refused.
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

TEST(TextWindowsFamily, CharactersAreUtf8) {
  TempDir dir;
  const auto with = [&](const std::string& bytes, const std::string& alphabet = "") {
    put(dir.path("a.txt"), "abcdef");
    put(dir.path("b.txt"), "gh" + bytes);
    return failure(spec_of("text_windows",
                           {{"pattern", dir.path("{a,b}.txt")},
                            {"length", 2},
                            {"symbols", "characters"},
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
  const auto items = read_all(
      spec_of("text_windows",
              {{"pattern", dir.path("{a,b}.txt")}, {"length", 2}, {"symbols", "characters"}},
              {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(values<int32_t>(items[0], "input"), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(values<int32_t>(items[0], "target"), (std::vector<int32_t>{2, 1}));
}

// Names that lie ------------------------------------------------------------------------------------

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
          EXPECT_HAS(error, cat("is no tar archive but ", is.name));
        else
          EXPECT_HAS(error, cat("is named as ", named.name, " data and is ", is.name,
                                " data; rename it to end in ."));
      }
}

}  // namespace
}  // namespace etr::test
