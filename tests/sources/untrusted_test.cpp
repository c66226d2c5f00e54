// Files that shrink, pipes that never end, lengths that lie, names that are not UTF-8: errors of
// the record, never the end of the process.
#include <sys/stat.h>
#include <zstd.h>

#include <algorithm>
#include <future>
#include <iterator>
#include <set>
#include <thread>

#include "io/fast_shard.h"
#include "io/tar_writer.h"
#include "sources/alone.h"
#include "support/child.h"

namespace etr::test {
namespace {

void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Shrinking ---------------------------------------------------------------------------------------

constexpr size_t kLarge = size_t{9} << 20;

struct Shrinking {
  const char* stage;
  const char* file;  // the option that names it
  std::string (*bytes)();
  Json more;
};

// Bytes that do not compress.
std::string noise(size_t size) {
  std::string out(size, '\0');
  uint64_t state = 1;
  for (char& c : out)
    c = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  return out;
}

std::string large_tar() {
  TempDir dir;
  io::TarWriter writer(dir.path("a.tar"), 0);
  const std::string bytes(kLarge / 2, 't');
  for (const char* name : {"a.bin", "b.bin", "c.bin"})
    writer.add(name, std::as_bytes(std::span(bytes)));
  writer.finish();
  return platform::read_file(dir.path("a.tar"));
}

// Beyond what is kept of an array in memory; most of it is a hole in the file.
constexpr uint32_t kRows = 300, kRow = 1 << 20;

const Shrinking kShrinking[] = {
    {"idx",
     "images",
     [] { return idx_images(0, 1, kRow).replace(4, 4, big_endian(kRows)); },
     {{"shuffle", false}}},
    {"npy",
     "arrays",
     [] { return npy("|u1", cat("(", kRows, ", ", kRow, ")"), ""); },
     {{"shuffle", false}}},
    {"cifar", "pattern", [] { return std::string(3073, 'c'); }, {{"shuffle", false}}},
    {"webdataset", "pattern", large_tar, Json::object()},
    {"text_lines", "pattern",
     [] { return std::string(kLarge, 'x') + "\n" + std::string(kLarge, 'y') + "\n"; },
     Json::object()},
};

// Mapped, this would end the process by SIGBUS.
TEST(Shrinking, IsAnErrorOfTheRecord) {
  for (const Shrinking& row : kShrinking) {
    TempDir dir;
    const std::string path = dir.path("file");
    const std::string bytes = row.bytes();
    overwrite(path, bytes);
    const uint64_t size = kRows * uint64_t{kRow};
    if (bytes.size() < kLarge)
      std::filesystem::resize_file(path, row.stage == std::string("idx")
                                             ? bytes.size() + size
                                             : (size + 4096) / 3073 * 3073);
    Json options = row.more;
    options[row.file] = row.stage == std::string("npy") ? "x=" + path : path;
    Alone source(row.stage, options);
    Item first, item;
    EXPECT_EQ(source.next(first), "") << row.stage;
    std::filesystem::resize_file(path, 5000);
    std::string last;
    for (int i = 0; last.empty() && i < 10'000; ++i) last = source.next(item);
    EXPECT_NE(last, "") << row.stage;
    EXPECT_HAS(last, path);
    const auto before = first.fields[0].tensor.bytes();  // what was read before stays
    EXPECT_LE(std::count(before.begin(), before.end(), std::byte{0}), std::ssize(before));
  }
}

TEST(Shrinking, RecordsOfAFastShardAreNamed) {
  TempDir dir;
  const std::string path = dir.path("a.ets");
  {
    io::FastShardWriter writer(path);
    for (int i = 0; i < 100; ++i) {
      const std::string bytes = noise(30'000);
      const auto frame = io::zstd_frame(std::as_bytes(std::span(bytes)), 1);
      const io::FastShardWriter::Field fields[] = {{"bin", frame, bytes.size()}};
      writer.add(std::to_string(i), fields);
    }
    writer.finish();
  }
  Pipeline p(spec_of("fast_shard", {{"pattern", path}, {"shuffle", false}},
                     {{"epochs", 1},
                      {"on_error", "skip"},
                      {"queue_items", 4},
                      {"budget_bytes", 16 << 20}}));  // it is not kept in memory
  Item item;
  ASSERT_EQ(p.next(item), Pipeline::Next::item);
  std::filesystem::resize_file(path, 1'500'000);
  read_all(p);
  const Json list = p.bad_record_list();
  ASSERT_GT(list.size(), 40u);
  std::set<std::string> keys;  // several threads read, so they come in any order
  for (const Json& bad : list) {
    EXPECT_EQ(bad["shard"], path);
    keys.insert(bad["key"]);
  }
  EXPECT_TRUE(keys.contains("record 99"));
}

// Pipes -------------------------------------------------------------------------------------------

// Nobody writes to it: opening and reading would wait for ever.
TEST(Pipes, CancelEndsTheWait) {
  const std::pair<const char*, Json> sources[] = {{"webdataset", {}},
                                                  {"tfrecord", {}},
                                                  {"text_lines", {}},
                                                  {"csv", {{"columns", "x:f32"}}},
                                                  {"jsonl", {{"columns", "x:f32"}}}};
  for (const char* ending : {"", ".gz", ".zst"})
    for (auto [stage, options] : sources) {
      TempDir dir;
      const std::string path = dir.path(std::string("pipe") + ending);
      ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
      options["pattern"] = path;
      Pipeline p(spec_of(stage, options, {{"on_error", "skip"}}));
      std::promise<void> asks;
      std::thread consumer([&] {
        Item item;
        asks.set_value();
        EXPECT_THROW(p.next(item), Error) << stage;
      });
      asks.get_future().wait();
      p.cancel();
      consumer.join();
      EXPECT_EQ(p.stats()["bad_records"], 0) << stage << ": that it was cancelled is no bad record";
    }
}

TEST(Pipes, AreReadLikeFiles) {
  TempDir dir;
  const std::string path = dir.path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string lines;
  for (int i = 0; i < 50'000; ++i) lines += cat("line ", i, "\n");
  std::thread writer([&] { std::ofstream(path) << lines; });
  const auto items = read_all(spec_of("text_lines", {{"pattern", path}}, {{"epochs", 1}}));
  writer.join();
  ASSERT_EQ(items.size(), 50'000u);
  EXPECT_EQ(text(items.back(), "text"), "line 49999");
}

// Lengths -----------------------------------------------------------------------------------------

TEST(Lengths, OfATfRecordAreBelievedWhenItIsThere) {
  TempDir dir;
  const std::string length = raw(uint64_t{2'000'000'000});
  overwrite(dir.path("a"), length + raw(masked_crc(length)) + "0123456789");
  EXPECT_EQ(in_child([&] {
              if (!limit_memory(200 << 20)) return 1;
              const std::string error = Alone("tfrecord", {{"pattern", dir.path("a")}}).next();
              return error.find("ends inside a record") == std::string::npos ? 2 : 0;
            }),
            0);
}

TEST(Lengths, WhoseProductWrapsAreRefused) {
  TempDir dir;
  const auto extents = [](const std::vector<uint32_t>& all) {
    std::string out("\0\0\x08", 3);
    out += static_cast<char>(all.size());
    for (const uint32_t extent : all) out += big_endian(extent);
    return out + "data";
  };
  for (const auto& all : {std::vector<uint32_t>{1 << 16, 1 << 20, 1 << 28},
                          {2, 1u << 31, 1u << 31, 4},
                          {1000, 0, 1u << 31, 1u << 31},
                          {3, 1u << 31, 1u << 31, 1u << 31}}) {
    overwrite(dir.path("a.idx"), extents(all));
    EXPECT_HAS(failure(spec_of("idx", {{"images", dir.path("a.idx")}})), "a.idx");
  }
  for (const char* shape :
       {"(4611686018427387904, 4)", "(2, 9223372036854775807, 2)", "(-1, 3)",
        "(0, 9223372036854775807, 9223372036854775807)", "(99999999999999999999,)"}) {
    overwrite(dir.path("a.npy"), npy("<f4", shape, "data"));
    EXPECT_HAS(failure(spec_of("npy", {{"arrays", "x=" + dir.path("a.npy")}})), "a.npy");
  }
}

TEST(Lengths, AnNpyFileOfManyAxesIsNamed) {
  TempDir dir;
  overwrite(dir.path("a.npy"), npy("|u1", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)", "x"));
  const std::string message = failure(spec_of("npy", {{"arrays", "x=" + dir.path("a.npy")}}));
  EXPECT_HAS(message, "a.npy");
  EXPECT_HAS(message, "samples of 9 axes; at most 8");
  overwrite(dir.path("b.npy"), npy("|u1", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", "x"));
  EXPECT_EQ(failure(spec_of("npy", {{"arrays", "x=" + dir.path("b.npy")}}, {{"epochs", 1}})),
            "no error");
  overwrite(dir.path("c.npy"), npy("<f8", "(1,)", raw(1e300)));
  EXPECT_HAS(failure(spec_of("npy", {{"arrays", "x=" + dir.path("c.npy")}})),
             "does not fit in 32 bits");
}

// A record may not take more than the whole pipeline.
TEST(Lengths, OfOneRecordKeepToTheBudget) {
  TempDir dir;
  std::string line = noise(20'000'000);
  std::replace(line.begin(), line.end(), '\n', ' ');
  overwrite(dir.path("lines"), "short\n" + line + "\n");
  std::string zst(ZSTD_compressBound(line.size()), '\0');
  zst.resize(ZSTD_compress(zst.data(), zst.size(), line.data(), line.size(), 1));
  overwrite(dir.path("whole.zst"), zst);
  const Json budget{{"budget_bytes", 10'000'000}, {"epochs", 1}};
  EXPECT_HAS(failure(spec_of("text_lines", {{"pattern", dir.path("lines")}}, budget)),
             "(budget_bytes)");
  EXPECT_HAS(failure(spec_of("cifar", {{"pattern", dir.path("whole.zst")}}, budget)),
             "(budget_bytes)");
  EXPECT_HAS(failure(spec_of("files", {{"pattern", dir.path("lines")}}, budget)), "(budget_bytes)");
}

// Rows --------------------------------------------------------------------------------------------

TEST(CsvRows, KeepLineEndsWithinQuotes) {
  TempDir dir;
  overwrite(dir.path("a.csv"), "\xEF\xBB\xBF\"a\",\"b\"\r\n\"one\r\ntwo\nthree\r\n\",2\r\n");
  const auto items = read_all(spec_of(
      "csv", {{"pattern", dir.path("a.csv")}, {"columns", "a:text,b:f32"}}, {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(text(items[0], "a"), "one\r\ntwo\nthree\r\n");
  overwrite(dir.path("b.csv"), "\xEF\xBB\xBF\"1\"\r\n");
  EXPECT_EQ(failure(spec_of(
                "csv", {{"pattern", dir.path("b.csv")}, {"columns", "x:f32=0"}, {"header", false}},
                {{"epochs", 1}})),
            "no error")
      << "a byte order mark without a header";
}

TEST(CsvRows, RefuseNumbersThatAreNone) {
  TempDir dir;
  for (const char* cell : {"+-1", "1e39", "-3.5e38", "1e400"}) {
    overwrite(dir.path("a.csv"), std::string("x\n") + cell + "\n");
    EXPECT_HAS(failure(spec_of("csv", {{"pattern", dir.path("a.csv")}, {"columns", "x:f32"}})),
               "line 2");
  }
  for (const char* cell : {"3.4028235e38", "inf", "nan", "1e-50", "+1"}) {
    overwrite(dir.path("a.csv"), std::string("x\n") + cell + "\n");
    EXPECT_EQ(failure(spec_of("csv", {{"pattern", dir.path("a.csv")}, {"columns", "x:f32"}},
                              {{"epochs", 1}})),
              "no error")
        << cell;
  }
}

TEST(CsvRows, AQuoteThatIsNotClosedDoesNotTakeTheFile) {
  TempDir dir;
  std::string rows = "x,y\n\"never closed,1\n";
  for (int i = 0; i < 100; ++i) rows += "5,6\n";
  overwrite(dir.path("a.csv"), rows);
  Pipeline p(spec_of("csv",
                     {{"pattern", dir.path("a.csv")}, {"columns", "y:f32"}, {"max_line_bytes", 50}},
                     {{"epochs", 1}, {"on_error", "skip"}}));
  EXPECT_GT(read_all(p).size(), 80u);
  EXPECT_EQ(p.stats()["bad_records"], 1);
  EXPECT_HAS(p.bad_record_list()[0]["reason"].get<std::string>(), "is a quote not closed?");
}

// Each line and each field is short, but not the row.
TEST(CsvRows, OfShortLinesKeepToTheLimit) {
  TempDir dir;
  std::string rows = "x\n1,\"";
  for (int i = 0; i < 100; ++i) rows += "\n\",\"";
  overwrite(dir.path("a.csv"), rows + "\"\n\"\n7\n");
  Pipeline p(spec_of("csv",
                     {{"pattern", dir.path("a.csv")}, {"columns", "x:i32"}, {"max_line_bytes", 90}},
                     {{"epochs", 1}, {"on_error", "skip"}}));
  const auto items = read_all(p);
  ASSERT_FALSE(items.empty());
  EXPECT_EQ(number(items.back(), "x"), 7);
  EXPECT_EQ(p.bad_record_list()[0]["reason"],
            "the row is longer than 90 bytes (max_line_bytes); is a quote not closed?");
}

// An empty cell takes 32 times its text in memory.
TEST(CsvRows, HaveAMillionColumnsAtMost) {
  TempDir dir;
  overwrite(dir.path("a.csv"), "x\n" + std::string(1 << 20, ',') + "\n7\n");
  Pipeline p(spec_of("csv", {{"pattern", dir.path("a.csv")}, {"columns", "x:i32"}},
                     {{"epochs", 1}, {"on_error", "skip"}}));
  const auto items = read_all(p);
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(number(items[0], "x"), 7);
  EXPECT_EQ(p.bad_record_list()[0]["reason"], "the row has more than 1048576 columns");
}

TEST(LongLines, AreOneBadRecordEach) {
  TempDir dir;
  overwrite(dir.path("a"),
            "one\n" + std::string(1'000'000, 'x') + "\ntwo\n" + std::string(500, 'y'));
  Pipeline p(spec_of("text_lines", {{"pattern", dir.path("a")}, {"max_line_bytes", 100}},
                     {{"epochs", 1}, {"on_error", "skip"}}));
  const auto items = read_all(p);
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(text(items[1], "text"), "two");
  EXPECT_EQ(p.stats()["bad_records"], 2);
}

// Archives ----------------------------------------------------------------------------------------

std::string tar_of(const std::vector<std::string>& names) {
  TempDir dir;
  io::TarWriter writer(dir.path("a.tar"), 0);
  for (const std::string& name : names) writer.add(name, std::as_bytes(std::span(name)));
  writer.finish();
  return platform::read_file(dir.path("a.tar"));
}

TEST(Shards, ANameTwiceIsAnErrorOfItsSample) {
  TempDir dir;
  overwrite(dir.path("a.tar"), tar_of({"0.x", "1.x", "1.y", "1.x", "2.x"}));
  Alone source("webdataset", {{"pattern", dir.path("a.tar")}});
  EXPECT_EQ(source.next(), "");
  EXPECT_HAS(source.next(), "two members of the name '1.x'");
  Item last;
  EXPECT_EQ(source.next(last), "");
  EXPECT_EQ(last.origin->key, "2");
  EXPECT_EQ(source.next(), "end");
}

TEST(Shards, ABadMemberSpoilsItsSampleOnly) {
  TempDir dir;
  std::filesystem::create_directories(dir.path("in"));
  for (const char* name : {"0.x", "1.x", "2.x"})
    overwrite(dir.path(std::string("in/") + name), name);
  std::filesystem::create_hard_link(dir.path("in/0.x"), dir.path("in/1.y"));
  ASSERT_EQ(std::system(("tar --sort=name -C " + dir.path("in") + " -cf " + dir.path("a.tar") +
                         " 0.x 1.x 1.y 2.x")
                            .c_str()),
            0);
  Pipeline p(spec_of("webdataset", {{"pattern", dir.path("a.tar")}},
                     {{"epochs", 2}, {"on_error", "skip"}}));
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto items = read_all(p);
    ASSERT_EQ(items.size(), 2u);
    EXPECT_EQ(items[0].origin->key, "0");
    EXPECT_EQ(items[1].origin->key, "2");
  }
  const Json bad = p.bad_record_list();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0]["key"], "1");
  EXPECT_HAS(bad[0]["reason"].get<std::string>(), "'1.y'");
}

// Options for a source to which members of more than 4 bytes are bad. Those of tar_of() hold their
// own names: "1.x" is good, and "1.long" is bad.
Json small_members(const std::string& pattern) {
  return {{"pattern", pattern}, {"shuffle_shards", false}, {"max_member_bytes", 4}};
}

// What the rest of a pass gives: the keys of samples with their fields, "0(x,y)", and those of
// errors, "!1".
std::string rest_of(Alone& source) {
  std::string out;
  Item item;
  for (std::string said = source.next(item); said != "end"; said = source.next(item)) {
    out += out.empty() ? "" : " ";
    if (!said.empty()) {
      out += "!" + item.origin->key;
      continue;
    }
    std::string fields;
    for (const pipeline::Field& field : item.fields)
      fields += (fields.empty() ? "" : ",") + field.name;
    out += item.origin->key + "(" + fields + ")";
  }
  return out;
}

TEST(Shards, ABadMemberMaySitAnywhereInItsSample) {
  for (const auto& [members, samples] :
       {std::pair<std::vector<std::string>, std::string>{{"0.x", "1.long", "1.y", "2.x"},
                                                         "0(x) !1 2(x)"},
        {{"0.x", "1.y", "1.long", "2.x"}, "0(x) !1 2(x)"},
        {{"0.long", "0.x", "1.x"}, "!0 1(x)"},
        {{"0.x", "1.x", "1.long"}, "0(x) !1"},
        {{"0.x", "1.long"}, "0(x) !1"},
        {{"0.x", "1.long", "2.long", "2.x", "3.x"}, "0(x) !1 !2 3(x)"},
        {{"0.x", "0.x", "1.long", "2.x"}, "!0 !1 2(x)"},  // 0 has two members of one name
        {{"1.long", "2.x", "2.x", "3.x"}, "!1 !2 3(x)"},
        {{"0.x", "1.long", "2.x", "1.y", "1.z"}, "0(x) !1 2(x) 1(y,z)"}}) {
    TempDir dir;
    overwrite(dir.path("a.tar"), tar_of(members));
    Alone source("webdataset", small_members(dir.path("a.tar")));
    EXPECT_EQ(rest_of(source), samples);
  }
}

// As stage `take` does. What was read ahead is of no pass that follows.
TEST(Shards, APassMayEndAnywhere) {
  TempDir dir;
  overwrite(dir.path("a.tar"), tar_of({"1.x", "2.x", "1.long", "1.z", "3.x"}));
  for (int samples = 0; samples < 5; ++samples) {
    Alone source("webdataset", small_members(dir.path("a.tar")));
    for (int n = 0; n < samples; ++n) source.next();
    source.start_pass(1);
    EXPECT_EQ(rest_of(source), "1(x) 2(x) !1 3(x)") << "after " << samples;
  }
}

// Once a shard was read to its end, skipped samples are read only on the way to one that is wanted.
TEST(Shards, ABadSampleThatIsSkippedLeavesNothingInTheNext) {
  TempDir dir;
  overwrite(dir.path("a.tar"), tar_of({"0.x", "1.y", "1.y", "2.x", "3.x", "3.long", "4.x"}));
  Alone source("webdataset", small_members(dir.path("a.tar")));
  EXPECT_EQ(rest_of(source), "0(x) !1 2(x) !3 4(x)");
  for (const auto& [skipped, rest] : {std::pair(2, "2(x) !3 4(x)"), {4, "4(x)"}}) {
    source.start_pass(1);
    for (int n = 0; n < skipped; ++n) source.skip();
    EXPECT_EQ(rest_of(source), rest);
  }
}

// Sample 1 might have more members.
TEST(Shards, TheSampleInFrontOfATruncationIsLost) {
  TempDir dir;
  overwrite(dir.path("a.tar"), tar_of({"0.x", "1.x", "2.x"}).substr(0, 2048 + 100));
  Alone source("webdataset", small_members(dir.path("a.tar")));
  EXPECT_EQ(rest_of(source), "0(x) !1");
}

TEST(Shards, SamplesAndErrorsSayWhereTheyAre) {
  TempDir dir;
  overwrite(dir.path("a.tar"), tar_of({"0.x", "1.x", "1.long", "2.x"}));
  overwrite(dir.path("b.tar"), std::string(2000, '?'));
  Alone source("webdataset", small_members(dir.path("{a,b}.tar")));
  Item item;
  for (const auto& [file, key, offset] : {std::tuple("a.tar", "0", 0),
                                          {"a.tar", "1", 2048},
                                          {"a.tar", "2", 3072},
                                          {"b.tar", "", -1}}) {
    source.next(item);
    EXPECT_EQ(*item.origin->shard, dir.path(file));
    EXPECT_EQ(item.origin->key, key);
    EXPECT_EQ(item.origin->offset, offset) << key;
  }
}

// A key ends at the first dot of the base name.
TEST(Names, OfMembersAreAKeyAndAField) {
  TempDir dir;
  overwrite(dir.path("a.tar"), tar_of({"a.b/7.tar.gz", "a./7.x", "a/.x", ".x", "7", "a.b/7"}));
  Alone source("webdataset", {{"pattern", dir.path("a.tar")}});
  EXPECT_EQ(rest_of(source), "a.b/7(tar.gz) a./7(x) a/(x) (x) 7() a.b/7()");
}

TEST(Shards, OfNothingAreErrorsUnlessTheyAreArchives) {
  TempDir dir;
  for (const char* name : {"a.tar", "a.tar.gz", "a.tgz", "a.tar.zst", "a.tzst"}) {
    overwrite(dir.path(name), "");
    EXPECT_HAS(failure(spec_of("webdataset", {{"pattern", dir.path(name)}})), "empty");
  }
  overwrite(dir.path("a.tar"), tar_of({}));
  EXPECT_EQ(failure(spec_of("webdataset", {{"pattern", dir.path("a.tar")}}, {{"epochs", 1}})),
            "no error");
}

TEST(Shards, TgzIsTarGz) {
  TempDir dir;
  write_gz(dir.path("a.tgz"), tar_of({"0.x", "1.x"}));
  EXPECT_EQ(
      read_all(spec_of("webdataset", {{"pattern", dir.path("a.tgz")}}, {{"epochs", 1}})).size(),
      2u);
}

TEST(Names, OfFieldsAreUtf8) {
  TempDir dir;
  overwrite(dir.path("a.tar"), tar_of({"0.caf\xE9"}));
  const auto items =
      read_all(spec_of("webdataset", {{"pattern", dir.path("a.tar")}}, {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].fields[0].name, "caf\\xE9");
}

// Positions name the files, and are JSON, which is UTF-8.
TEST(Names, OfFilesAreUtf8InPositions) {
  TempDir dir;
  overwrite(dir.path("caf\xE9.tar"), tar_of({"0.x", "1.x", "2.x"}));
  const Json spec = spec_of("webdataset", {{"pattern", dir.path("*.tar")}}, {{"epochs", 1}});
  Pipeline original(spec), restored(spec);
  Item item;
  original.next(item);
  const std::string position = original.save().dump();
  EXPECT_HAS(position, R"(caf\\xE9.tar)");
  restored.restore(parse_json(position, "position"));
  EXPECT_EQ(read_all(restored).size(), 2u);
}

}  // namespace
}  // namespace etr::test
