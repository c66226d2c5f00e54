// What each source reads, and what it says of damaged files.
#include <zstd.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/platform.h"
#include "core/rng.h"
#include "io/fast_shard.h"
#include "pipeline/permutation.h"
#include "sources/files.h"
#include "support/error_text.h"
#include "support/http_server.h"

namespace etr::test {
namespace {

// Reading -----------------------------------------------------------------------------------------

TEST(Idx, ReadsImagesAndLabelsPlainAndCompressed) {
  TempDir dir;
  write(dir.path("images"), idx_images(7, 3, 5));
  write_gz(dir.path("labels.gz"), idx_labels(7));
  const auto items = read_all(spec_of(
      "idx",
      {{"images", dir.path("images")}, {"labels", dir.path("labels.gz")}, {"shuffle", false}},
      {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 7u);
  EXPECT_EQ(items[2].find("image")->shape(), (Shape{3, 5, 1}));
  EXPECT_EQ(values<uint8_t>(items[2], "image")[4], 34);
  EXPECT_EQ(number(items[6], "label"), 6);
}

TEST(Idx, SaysWhatIsWrong) {
  TempDir dir;
  write(dir.path("images"), idx_images(7, 3, 5));
  write(dir.path("labels"), idx_labels(6));
  write(dir.path("short"), idx_images(7, 3, 5).substr(0, 60));
  write(dir.path("text"), "no idx file");
  const auto with = [&](const char* images, const char* labels) {
    return failure(spec_of("idx", {{"images", dir.path(images)}, {"labels", dir.path(labels)}}));
  };
  EXPECT_HAS(with("images", "labels"), "the 7 images");
  EXPECT_HAS(with("labels", "images"), "swapped");
  EXPECT_HAS(with("short", "labels"), "truncated");
  EXPECT_HAS(with("text", "labels"), "not an IDX file");
  write(dir.path("long"), idx_images(7, 3, 5) + "x");
  write_gz(dir.path("long.gz"), idx_images(7, 3, 5) + idx_images(7, 3, 5));
  write(dir.path("many"), idx_labels(7) + std::string(7, '\0'));
  for (const char* images : {"long", "long.gz"})
    EXPECT_HAS(with(images, "labels"), "takes 105; the number of samples or the file is wrong");
  EXPECT_HAS(with("images", "many"), "it has 14 bytes after the header, but [7] takes 7");
  EXPECT_HAS(with("nowhere", "labels"), "nowhere");
}

TEST(Cifar, ReadsPlanarRecordsOfSeveralFiles) {
  TempDir dir;
  for (int file = 0; file < 2; ++file) {
    std::string bytes;
    for (int record = 0; record < 3; ++record) {
      bytes += static_cast<char>(file * 3 + record);
      for (int plane = 0; plane < 3; ++plane)
        bytes += std::string(1024, static_cast<char>(10 * plane + record));
    }
    write(dir.path("batch_" + std::to_string(file) + ".bin"), bytes);
  }
  const Json options{{"pattern", dir.path("batch_*.bin")}, {"shuffle", false}};
  const auto items = read_all(spec_of("cifar", options, {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 6u);
  EXPECT_EQ(number(items[4], "label"), 4);
  EXPECT_EQ(items[4].find("image")->shape(), (Shape{32, 32, 3}));
  const auto pixels = values<uint8_t>(items[4], "image");
  EXPECT_EQ((std::vector<int>{pixels[0], pixels[1], pixels[2]}), (std::vector<int>{1, 11, 21}));
  Json wrong = options;
  wrong["labels"] = "cifar100";
  EXPECT_HAS(failure(spec_of("cifar", wrong)), "another CIFAR");
}

// A pipeline asks for the data more than once: for a position, for its length, for each pass.
TEST(SeveralFiles, OfWhichOneIsDamagedAreNeverReadInPart) {
  TempDir dir;
  for (int shard = 0; shard < 3; ++shard) {
    io::FastShardWriter writer(dir.path(std::to_string(shard) + ".ets"));
    const std::string text = std::to_string(shard);
    const io::FastShardWriter::Field fields[] = {{"cls", std::as_bytes(std::span(text)), 0}};
    writer.add(text, fields);
    writer.finish();
    write(dir.path(std::to_string(shard) + ".bin"), std::string(3073, '\0'));
  }
  for (const auto& [stage, ending] : {std::pair("fast_shard", ".ets"), {"cifar", ".bin"}}) {
    const Json spec = spec_of(stage, {{"pattern", dir.path(std::string("*") + ending)}});
    const Json state = Pipeline(spec).save();
    const std::string damaged = dir.path(std::string("1") + ending);
    const std::string whole = platform::read_file(damaged);
    put(damaged, whole.substr(0, whole.size() - 5));
    Pipeline p(spec);
    const std::string said = error_text([&] { p.restore(state); });
    EXPECT_HAS(said, damaged);
    EXPECT_HAS(error_text([&] { p.length(); }), damaged);
    EXPECT_HAS(error_text([&] { read_all(p); }), damaged);
    Pipeline later(spec);
    EXPECT_HAS(error_text([&] { later.restore(state); }), damaged);
    put(damaged, whole);
    EXPECT_EQ(read_all(later).size(), 3u);
  }
}

TEST(Idx, IsNotReadAgainForTheLengthAfterRestoring) {
  TempDir dir;
  write(dir.path("images"), idx_images(7, 3, 5));
  write(dir.path("labels"), idx_labels(7));
  const Json spec =
      spec_of("idx", {{"images", dir.path("images")}, {"labels", dir.path("labels")}});
  Pipeline first(spec), second(spec);
  Item item;
  first.next(item);
  // Saved once: whether the first one has read its pass to the end depends on the moment.
  const Json state = first.save();
  second.restore(state);
  std::filesystem::remove(dir.path("images"));
  EXPECT_EQ(second.length(), 7u);
  EXPECT_EQ(second.save(), state);
}

// Fast shards of a record each, by path: "/0.ets".
std::map<std::string, std::string> fast_shards(const TempDir& dir, int count) {
  std::map<std::string, std::string> files;
  for (int shard = 0; shard < count; ++shard) {
    const std::string name = std::to_string(shard) + ".ets", text(1000, 'x');
    io::FastShardWriter writer(dir.path(name));
    const io::FastShardWriter::Field fields[] = {{"cls", std::as_bytes(std::span(text)), 0}};
    writer.add(std::to_string(shard), fields);
    writer.finish();
    files["/" + name] = platform::read_file(dir.path(name));
  }
  return files;
}

Json fast_shard_spec(const std::string& pattern, const std::string& cache, uint64_t cache_bytes) {
  return spec_of("fast_shard", {{"pattern", pattern}},
                 {{"epochs", 1},
                  {"on_error", "skip"},
                  {"remote_cache_dir", cache},
                  {"remote_cache_bytes", cache_bytes}});
}

// The cache would drop the first ones while the last ones are fetched. The records of shards that
// lie neither in memory nor are kept open, because they are many, would then be gone.
TEST(FastShard, RemoteOnesThatTheCacheHasNoRoomForAreRefused) {
  TempDir dir;
  const auto files = fast_shards(dir, 4);
  const size_t bytes = files.at("/0.ets").size();
  for (const auto answers : {HttpServer::Answers::in_ranges, HttpServer::Answers::whole}) {
    const HttpServer server(files, answers);
    const std::string cache = dir.path(cat("cache", static_cast<int>(answers)));
    const auto spec = [&](const char* names, uint64_t cache_bytes) {
      return fast_shard_spec(cat(server.address(), "/", names, ".ets"), cache, cache_bytes);
    };
    const std::string said = failure(spec("{0..3}", 3 * bytes - 1));
    EXPECT_HAS(said, cat(server.address(), "/{0..3}.ets': its 4 remote shards take ", 4 * bytes,
                         " bytes, and the cache that they are read from keeps ", 3 * bytes - 1,
                         ": set the pipeline's remote_cache_bytes to at least ", 4 * bytes));
    EXPECT_FALSE(std::filesystem::exists(cache)) << "nothing is fetched";
    EXPECT_EQ(read_all(spec("{0..3}", 4 * bytes)).size(), 4u);
    EXPECT_EQ(read_all(spec("2", 1)).size(), 1u) << "nothing is fetched behind it";
  }
}

TEST(FastShard, RemoteOnesAreAskedForOnceAndTogether) {
  TempDir dir;
  HttpServer server(fast_shards(dir, 12));
  Json spec = fast_shard_spec(server.address() + "/{0..11}.ets", dir.path("cache"), 1'000'000);
  spec["remote_connections"] = 4;
  EXPECT_EQ(read_all(spec).size(), 12u);
  EXPECT_EQ(server.requests(), 24) << "for the state, and for the whole";
  server.wait_for(5);
  EXPECT_EQ(read_all(spec).size(), 12u);
  EXPECT_EQ(server.requests(), 36) << "what the cache has is asked for once";
  EXPECT_GE(server.most_together(), 2u);
  EXPECT_LE(server.most_together(), 4u);
}

// As some servers that know no ranges.
TEST(FastShard, RemoteOnesMayComeWithoutTheirLength) {
  TempDir dir;
  const HttpServer server(fast_shards(dir, 4), HttpServer::Answers::chunked);
  const Json spec = fast_shard_spec(server.address() + "/{0..3}.ets", dir.path("cache"), 1'000'000);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(read_all(spec).size(), 4u);
}

// They are counted when they have come.
TEST(FastShard, RemoteOnesWithoutTheirLengthNeedRoomInTheCache) {
  TempDir dir;
  const auto files = fast_shards(dir, 4);
  const size_t bytes = files.at("/0.ets").size();
  const HttpServer server(files, HttpServer::Answers::chunked);
  const std::string pattern = server.address() + "/{0..3}.ets", cache = dir.path("cache");
  EXPECT_HAS(failure(fast_shard_spec(pattern, cache, 3 * bytes - 1)),
             cat(pattern, "': its 4 remote shards take at least ", 3 * bytes,
                 " bytes, and the cache that they are read from keeps ", 3 * bytes - 1,
                 ": set the pipeline's remote_cache_bytes to more than that"));
  EXPECT_EQ(read_all(fast_shard_spec(pattern, cache, 4 * bytes)).size(), 4u);
  EXPECT_EQ(read_all(fast_shard_spec(server.address() + "/2.ets", cache, 1)).size(), 1u);
}

// What a source keeps in memory is not left to the queues.
TEST(SourceMemory, CountsTowardsTheBudget) {
  TempDir dir;
  write(dir.path("a.txt"), std::string(1'000'000, 'x'));
  write_gz(dir.path("a.bin.gz"), std::string(300 * 3073, '\0'));
  write_gz(dir.path("x.npy.gz"), npy("|u1", "(1000, 1000)", std::string(1'000'000, '\0')));
  write_gz(dir.path("images.gz"), idx_images(1000, 10, 100));
  write_gz(dir.path("labels.gz"), idx_labels(1000));
  {
    io::FastShardWriter writer(dir.path("a.ets"));
    const std::string text(100'000, 'x');
    const io::FastShardWriter::Field fields[] = {{"txt", std::as_bytes(std::span(text)), 0}};
    for (int i = 0; i < 10; ++i) writer.add(std::to_string(i), fields);
    writer.finish();
  }
  const Json text{{"stage", "text_windows"}, {"pattern", dir.path("a.txt")}, {"length", 10}};
  const auto holds = [](const char* stage, const Json& options, int64_t budget) {
    const std::string said = error_text([&] {
      Pipeline(spec_of(stage, options, {{"budget_bytes", budget}}));
    });
    const std::string begin = cat("'", stage, "' holds "), end = ", and the queues need";
    const size_t from = said.find(begin) + begin.size();
    EXPECT_NE(said.find(begin), std::string::npos) << said;
    return said.substr(from, said.find(end) - from);
  };
  EXPECT_EQ(holds("text_windows", text, 1'100'000), "1.0 MB");
  Json characters = text;
  characters["tokens"] = "characters";
  EXPECT_EQ(holds("text_windows", characters, 5'000'000), "4.0 MB") << "four bytes each";
  EXPECT_EQ(holds("cifar", {{"pattern", dir.path("a.bin.gz")}}, 1'000'000), "921.9 kB");
  EXPECT_EQ(holds("npy", {{"arrays", "x=" + dir.path("x.npy.gz")}}, 1'100'000), "1.0 MB");
  const Json idx{{"images", dir.path("images.gz")}, {"labels", dir.path("labels.gz")}};
  EXPECT_EQ(holds("idx", idx, 1'100'000), "1.0 MB");
  EXPECT_EQ(holds("fast_shard", {{"pattern", dir.path("a.ets")}}, 1'100'000), "1.0 MB")
      << "its index holds the values";
  EXPECT_EQ(holds("mix", {{"sources", {text, text}}}, 2'200'000), "2.0 MB");
  EXPECT_EQ(holds("zip", {{"sources", {text, text}}, {"prefixes", "a,b"}}, 2'200'000), "2.0 MB");
  // Two ways, each with the text and 1000 of its windows of 80 bytes.
  const Json ways{{"sources", {text}}, {"cycle_length", 2}, {"ahead", 1000}};
  EXPECT_EQ(holds("interleave", ways, 2'200'000), "2.2 MB");
  // Of each file at most an eighth of the budget.
  Json many = ways;
  many["ahead"] = 1'000'000;
  EXPECT_EQ(holds("interleave", many, 2'600'000), "2.7 MB");
}

// Returns lines that do not compress, of which one ends about every `width` bytes.
std::string noise_lines(size_t bytes, size_t width) {
  std::string lines;
  Rng rng(1, 2, 3, 4);
  while (lines.size() < bytes) {
    lines += static_cast<char>(rng.next_u32() | 0x80);
    if (lines.size() % width == 0) lines += '\n';
  }
  return lines;
}

// So is what a stream holds: parts of a file that are read ahead, and the window of zstd.
TEST(SourceMemory, OfStreamsCountsTowardsTheBudget) {
  TempDir dir;
  const std::string lines = noise_lines(10'000'000, 500'000);
  const HttpServer server({{"/a.txt", lines}});
  const auto holds = [](const std::string& pattern, int64_t budget, Json options) {
    options.update({{"budget_bytes", budget}});
    const std::string said = error_text([&] {
      Pipeline(spec_of("text_lines", {{"pattern", pattern}, {"skip_empty", false}}, options));
    });
    const std::string begin = "'text_lines' holds ";
    const size_t from = said.find(begin) + begin.size();
    EXPECT_NE(said.find(begin), std::string::npos) << said;
    return said.substr(from, said.find(", and the queues need") - from);
  };
  const std::string remote = server.address() + "/a.txt";
  // Two parts for each connection, and the current one.
  EXPECT_EQ(holds(remote, 2'000'000, {{"remote_part_bytes", 100'000}, {"remote_connections", 2}}),
            "500.0 kB");
  EXPECT_EQ(holds(remote, 2'400'000, {}), "600.0 kB") << "a quarter of the budget";
  ZSTD_CCtx* const zstd = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, 1);
  ZSTD_CCtx_setParameter(zstd, ZSTD_c_windowLog, 22);
  std::string packed(ZSTD_compressBound(lines.size()), '\0');
  packed.resize(ZSTD_compress2(zstd, packed.data(), packed.size(), lines.data(), lines.size()));
  ZSTD_freeCCtx(zstd);
  write(dir.path("a.zst"), packed);
  EXPECT_NEAR(std::stod(holds(dir.path("a.zst"), 5'000'000, {})), 4.6, 0.4) << "MB";
}

// A quarter of the budget for each would leave nothing.
TEST(SourceMemory, SourcesThatAreCombinedShareWhatTheyReadAhead) {
  TempDir dir;
  std::string lines;
  while (lines.size() < 4'000'000) lines += std::string(999, 'x') + "\n";
  write(dir.path("a.txt"), lines);
  const HttpServer server({{"/a.txt", lines}});
  const Json remote{{"stage", "text_lines"}, {"pattern", server.address() + "/a.txt"}};
  const Json local{{"stage", "text_lines"}, {"pattern", dir.path("a.txt")}};
  const Json ahead{{"stage", "interleave"}, {"ahead", 1'000'000}, {"sources", {local}}};
  for (const Json& source : {remote, ahead}) {
    const Json sources{source, source, source, source}, budget{{"budget_bytes", 10'000'000}};
    const Json zip{{"sources", sources}, {"prefixes", "a,b,c,d"}};
    EXPECT_NO_THROW(Pipeline(spec_of("mix", {{"sources", sources}}, budget))) << source;
    EXPECT_NO_THROW(Pipeline(spec_of("zip", zip, budget))) << source;
  }
}

// Also of sources that hold more of a larger budget.
TEST(SourceMemory, TheBudgetThatTheErrorNamesIsEnough) {
  TempDir dir;
  const std::string lines = noise_lines(4'000'000, 1000);
  write(dir.path("a.txt"), lines);
  write(dir.path("a.zst"), zst(lines));
  for (int shard = 0; shard < 10; ++shard) {
    io::FastShardWriter writer(dir.path(cat(shard, ".ets")));
    const io::FastShardWriter::Field fields[] = {
        {"eti", std::as_bytes(std::span(lines).first(200'000)), 200'000}};
    writer.add(cat(shard), fields);
    writer.finish();
  }
  const HttpServer server({{"/a.txt", lines}, {"/a.zst", zst(lines)}});
  const auto text = [](const std::string& path) {
    return Json{{"stage", "text_lines"}, {"pattern", path}, {"skip_empty", false}};
  };
  const Json local = text(dir.path("a.txt")), remote = text(server.address() + "/a.txt"),
             packed = text(server.address() + "/a.zst");
  const auto of = [](const char* stage, const Json& sources) {
    return Json{{"stage", stage}, {"sources", sources}};
  };
  Json zip = of("zip", {remote, packed, remote, remote, local});
  zip["prefixes"] = "a,b,c,d,e";
  Json ways = of("interleave", Json::array({remote}));
  ways["ahead"] = 1'000'000;
  const Json shards{{"stage", "fast_shard"}, {"pattern", dir.path("*.ets")}};
  for (const Json& source :
       {local, text(dir.path("a.zst")), remote, packed, of("mix", {remote, remote}), zip, ways,
        of("mix", {ways, remote, local}), shards}) {
    const auto refusal = [&](int64_t budget, const std::string& part) {
      const std::string said = error_text([&] {
        Pipeline({{"budget_bytes", budget},
                  {"stages", {source, {{"stage", "shuffle"}, {"buffer", 3000}}}}});
      });
      EXPECT_HAS(said, part) << source;
      return said;
    };
    const std::string before = "set budget_bytes to at least ", said = refusal(100'000, before);
    const int64_t enough = std::stoll(said.substr(said.find(before) + before.size()));
    EXPECT_EQ(refusal(enough, ""), "") << source << " " << said;
    // What is kept of a file is all or nothing.
    if (source != shards) refusal(enough - 1100, before);
  }
}

TEST(Npy, ReadsArraysAndNarrowsThem) {
  TempDir dir;
  std::string x, y, big;
  for (int i = 0; i < 12; ++i) x += raw(0.25 * i);
  for (int64_t i = 0; i < 4; ++i) y += raw(i - 1);
  for (int64_t i = 0; i < 4; ++i) big += raw(i << 40);
  write(dir.path("x.npy"), npy("<f8", "(4, 3)", x));
  write(dir.path("y.npy"), npy("<i8", "(4,)", y));
  write(dir.path("big.npy"), npy("<i8", "(4,)", big));
  write(dir.path("u.npy"), npy("|u1", "(4, 2, 1)", "abcdefgh"));
  write(dir.path("three.npy"), npy("|u1", "(3,)", "abc"));
  write(dir.path("c.npy"), npy("<c8", "(4,)", std::string(32, ' ')));
  const auto spec = [&](const std::string& arrays) {
    return spec_of("npy", {{"arrays", arrays}, {"shuffle", false}}, {{"epochs", 1}});
  };
  const auto items = read_all(
      spec("x=" + dir.path("x.npy") + ", label=" + dir.path("y.npy") + ",u=" + dir.path("u.npy")));
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(values<float>(items[1], "x"), (std::vector<float>{0.75f, 1.0f, 1.25f}));
  EXPECT_EQ(number(items[0], "label"), -1);
  EXPECT_EQ(items[3].find("u")->shape(), (Shape{2, 1}));
  EXPECT_EQ(text(items[3], "u"), "gh");
  EXPECT_HAS(failure(spec("y=" + dir.path("big.npy"))), "does not fit in 32 bits");
  EXPECT_HAS(failure(spec("y=" + dir.path("y.npy") + ",u=" + dir.path("three.npy"))),
             "holds 3 samples");
  EXPECT_HAS(failure(spec("c=" + dir.path("c.npy"))), "<c8");
  EXPECT_HAS(failure(spec(dir.path("y.npy"))), "FIELD=FILE");
}

TEST(TfRecord, ReadsExamples) {
  TempDir dir;
  write(dir.path("a.tfrecord"), example(0) + example(1));
  write_gz(dir.path("b.tfrecord.gz"), example(2));
  const auto items = read_all(spec_of(
      "tfrecord", {{"pattern", dir.path("{a.tfrecord,b.tfrecord.gz}")}, {"shuffle_shards", false}},
      {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(text(items[i], "png"), "image " + std::to_string(i));
    EXPECT_EQ(values<float>(items[i], "x"), (std::vector<float>{0.5f, static_cast<float>(i)}));
    EXPECT_EQ(number(items[i], "label"), i);
    EXPECT_EQ(items[i].find("label")->shape(), Shape{});
  }
}

TEST(TfRecord, GoesOnBehindABadRecordButNotBehindABadHead) {
  TempDir dir;
  std::string bad_data = example(1), bad_head = example(1);
  bad_data[20] ^= 1;
  bad_head[1] ^= 1;
  write(dir.path("data"), example(0) + bad_data + example(2));
  write(dir.path("head"), example(0) + bad_head + example(2));
  write(dir.path("short"), example(0) + example(1).substr(0, 30));
  const auto spec = [&](const char* name) {
    return spec_of("tfrecord", {{"pattern", dir.path(name)}},
                   {{"epochs", 1}, {"on_error", "skip"}});
  };
  EXPECT_EQ(read_all(spec("data")).size(), 2u);
  EXPECT_EQ(read_all(spec("head")).size(), 1u);
  EXPECT_EQ(read_all(spec("short")).size(), 1u);
  const std::string message = failure(spec_of("tfrecord", {{"pattern", dir.path("data")}}));
  EXPECT_HAS(message, "record 2");
  EXPECT_HAS(message, "checksum of the record's data");
}

TEST(Csv, ReadsTypedColumns) {
  TempDir dir;
  write(dir.path("a.csv"),
        "\xEF\xBB\xBFwidth,height,kind,note\r\n1.5,2,3,\"a, "
        "\"\"quoted\"\"\nnote\"\r\n\r\n-1e3,+4,0,plain\r\n");
  const auto items =
      read_all(spec_of("csv",
                       {{"pattern", dir.path("a.csv")},
                        {"columns", "x:f32=width+height, label:i32=kind, note:text"}},
                       {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(values<float>(items[0], "x"), (std::vector<float>{1.5f, 2.0f}));
  EXPECT_EQ(text(items[0], "note"), "a, \"quoted\"\nnote");
  EXPECT_EQ(values<float>(items[1], "x"), (std::vector<float>{-1000.0f, 4.0f}));
  EXPECT_EQ(number(items[1], "label"), 0);
  write(dir.path("b.tsv"), "5\t6\n7\t8\n");
  const auto bare = read_all(spec_of("csv",
                                     {{"pattern", dir.path("b.tsv")},
                                      {"columns", "y:u8=1"},
                                      {"header", false},
                                      {"delimiter", "\\t"}},
                                     {{"epochs", 1}}));
  ASSERT_EQ(bare.size(), 2u);
  EXPECT_EQ(values<uint8_t>(bare[1], "y"), (std::vector<uint8_t>{8}));
}

TEST(Csv, NamesColumnAndLine) {
  TempDir dir;
  write(dir.path("a.csv"), "width,kind\n1,2\nwide,3\n4,5,6\n7,300\n8,9\n");
  const auto spec = [&](const char* columns, const char* on_error = "fail") {
    return spec_of("csv", {{"pattern", dir.path("a.csv")}, {"columns", columns}},
                   {{"epochs", 1}, {"on_error", on_error}});
  };
  const std::string message = failure(spec("width:f32"));
  EXPECT_HAS(message, "line 3");
  EXPECT_HAS(message, "column 'width': 'wide' is not a number");
  EXPECT_EQ(read_all(spec("width:f32,kind:u8", "skip")).size(), 2u);
  EXPECT_HAS(failure(spec("widht:f32")), "did you mean 'width'");
  EXPECT_HAS(failure(spec("width")), "FIELD:TYPE");
  EXPECT_HAS(failure(spec("width:f64")), "types are u8, i32, f32 and text");
}

TEST(Jsonl, ReadsNumbersListsAndText) {
  TempDir dir;
  write(dir.path("a.jsonl"),
        "{\"x\": [[1, 2, 3], [4, 5, 6]], \"meta\": {\"class\": 7}, \"a\": 1, \"b\": 0.5, \"s\": "
        "\"hi\"}\n\n"
        "{\"x\": [[1, 2], [3]], \"meta\": {\"class\": 8}, \"a\": 1, \"b\": 2, \"s\": \"ho\"}\n"
        "{\"x\": [[9]], \"meta\": {\"class\": 8.5}, \"a\": 1, \"b\": 2, \"s\": \"ho\"}\n"
        "not json\n");
  const auto spec = [&](const char* columns, const char* on_error) {
    return spec_of("jsonl", {{"pattern", dir.path("a.jsonl")}, {"columns", columns}},
                   {{"epochs", 1}, {"on_error", on_error}});
  };
  const char* all = "x:f32,label:i32=meta.class,ab:f32=a+b,s:text";
  const auto items = read_all(spec(all, "skip"));
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].find("x")->shape(), (Shape{2, 3}));
  EXPECT_EQ(values<float>(items[0], "x")[4], 5.0f);
  EXPECT_EQ(number(items[0], "label"), 7);
  EXPECT_EQ(values<float>(items[0], "ab"), (std::vector<float>{1.0f, 0.5f}));
  EXPECT_EQ(text(items[0], "s"), "hi");
  EXPECT_HAS(failure(spec("x:f32", "fail")), "ragged");
  EXPECT_HAS(failure(spec("label:i32=meta.class", "fail")), "8.5 is not a whole number");
  EXPECT_HAS(failure(spec("y:f32", "fail")), "no key 'y'");
}

TEST(Jsonl, RefusesLinesWithAKeyTwice) {
  TempDir dir;
  write(dir.path("a.jsonl"), "{\"x\": 1, \"x\": 2}\n{\"x\": 3}\n");
  const auto spec = [&](const char* on_error) {
    return spec_of("jsonl", {{"pattern", dir.path("a.jsonl")}, {"columns", "x:i32"}},
                   {{"epochs", 1}, {"on_error", on_error}});
  };
  EXPECT_EQ(read_all(spec("skip")).size(), 1u);
  EXPECT_HAS(failure(spec("fail")), "duplicate key 'x' in one object, at line 1, column 2");
}

TEST(Text, LinesAndWindows) {
  TempDir dir;
  write(dir.path("a.txt"), "first\n\nsecond line\r\nno end");
  const auto lines =
      read_all(spec_of("text_lines", {{"pattern", dir.path("a.txt")}}, {{"epochs", 1}}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(text(lines[1], "text"), "second line");
  EXPECT_EQ(text(lines[2], "text"), "no end");

  write(dir.path("b.txt"),
        "abc\xC3\xA4"
        "abcab");
  const auto spec = [&](Json options) {
    options.update({{"pattern", dir.path("b.txt")}, {"shuffle", false}});
    return spec_of("text_windows", options, {{"epochs", 1}});
  };
  const auto bytes = read_all(spec({{"length", 4}}));
  ASSERT_EQ(bytes.size(), 2u);  // 10 bytes: windows at 0 and 4, each with one more for its target
  EXPECT_EQ(values<int32_t>(bytes[0], "input"), (std::vector<int32_t>{'a', 'b', 'c', 0xC3}));
  EXPECT_EQ(values<int32_t>(bytes[0], "target"), (std::vector<int32_t>{'b', 'c', 0xC3, 0xA4}));
  const auto characters = read_all(spec({{"length", 3}, {"stride", 1}, {"tokens", "characters"}}));
  ASSERT_EQ(characters.size(), 6u);
  EXPECT_EQ(values<int32_t>(characters[1], "input"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(values<int32_t>(characters[1], "target"), (std::vector<int32_t>{2, 3, 0}));
  EXPECT_HAS(failure(spec({{"length", 3}, {"tokens", "characters"}, {"alphabet", "abc"}})),
             "not in the alphabet");
  EXPECT_HAS(failure(spec({{"length", 10}})), "need 11");
  // The last half: its symbols are numbered by the alphabet of the whole.
  const auto half =
      read_all(spec({{"length", 3}, {"stride", 1}, {"tokens", "characters"}, {"begin", 0.5}}));
  ASSERT_EQ(half.size(), 2u);
  EXPECT_EQ(values<int32_t>(half[0], "input"), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_HAS(failure(spec({{"length", 3}, {"begin", 0.5}, {"end", 0.5}})), "must lie before");
}

// Windows go on from one file to the next, whether it is compressed or not.
TEST(Text, WindowsOfSeveralFilesAreThoseOfOne) {
  TempDir dir;
  std::string whole, parts[3];
  for (size_t i = 0; i < 3'000'000; ++i) whole += static_cast<char>('a' + (i * i / 7 + i) % 26);
  for (size_t i = 0; i < 3; ++i) parts[i] = whole.substr(i * 1'000'000, 1'000'000);
  write(dir.path("whole"), whole);
  write(dir.path("a.txt"), parts[0]);
  write_gz(dir.path("b.txt.gz"), parts[1]);
  write(dir.path("c.txt"), parts[2]);
  for (const char* tokens : {"bytes", "characters"}) {
    const auto spec = [&](const char* files) {
      return spec_of("text_windows",
                     {{"pattern", dir.path(files)}, {"length", 999}, {"tokens", tokens}},
                     {{"epochs", 1}, {"seed", 3}, {"rank", 1}, {"world_size", 2}});
    };
    const Json joined = spec("{a.txt,b.txt.gz,c.txt}");
    const auto inputs = [](const std::vector<Item>& items) {
      std::vector<std::vector<int32_t>> out;
      for (const Item& item : items) out.push_back(values<int32_t>(item, "input"));
      return out;
    };
    const auto of_whole = inputs(read_all(spec("whole")));
    EXPECT_EQ(of_whole.size(), 1501u);
    EXPECT_EQ(inputs(read_all(joined)), of_whole);
    Pipeline p(joined);
    Item item;
    for (int i = 0; i < 700; ++i) ASSERT_EQ(p.next(item), Pipeline::Next::item);
    Pipeline later(joined);
    later.restore(p.save());
    EXPECT_EQ(inputs(read_all(later)), inputs(read_all(p)));
  }
}

TEST(Text, FilesBeyondTheBudgetAreNamedWithIt) {
  TempDir dir;
  for (const char* name : {"a", "b", "c"}) {
    write(dir.path(std::string(name) + ".txt"), std::string(40'000, 'x'));
    write_gz(dir.path(std::string(name) + ".gz"), std::string(40'000, 'x'));
  }
  const auto said = [&](const char* files, int64_t budget, const char* tokens) {
    return failure(spec_of("text_windows",
                           {{"pattern", dir.path(files)}, {"length", 9}, {"tokens", tokens}},
                           {{"budget_bytes", budget}}));
  };
  EXPECT_HAS(said("a.txt", 30'000, "bytes"),
             "a.txt' has 40000 bytes; the limit is 30000 (the room for text in budget_bytes)");
  EXPECT_HAS(said("a.gz", 30'000, "bytes"),
             "a.gz' holds more than 30000 bytes (the room for text in budget_bytes)");
  EXPECT_HAS(said("a.txt", 150'000, "characters"),
             "a.txt' has 40000 bytes; the limit is 30000 (the room for text in budget_bytes, at 5 "
             "bytes of memory for each)");
  EXPECT_HAS(said("{a,b,c}.gz", 90'000, "bytes"),
             "c.gz' holds more than 10000 bytes (the room for text that is left in budget_bytes)");
  EXPECT_HAS(said("{a,b,c}.txt", 90'000, "bytes"),
             "{a,b,c}.txt' holds more than 90000 bytes of text; its memory would go beyond 90000 "
             "bytes (budget_bytes)");
  std::filesystem::resize_file(dir.path("b.txt"), uint64_t{20} << 30);  // a hole
  EXPECT_HAS(said("b.txt", 0, "bytes"),
             "b.txt' has 21474836480 bytes; the limit is 17179869184 (the room for text in 16 "
             "GiB)");
}

// A second source would hold the text once more.
TEST(Text, TheLengthOfARunningPipelineIsThatOfItsOwnSource) {
  TempDir dir;
  write(dir.path("a.txt"), std::string(1'000'000, 'x'));
  Pipeline p(spec_of("text_windows", {{"pattern", dir.path("a.txt")}, {"length", 9}}));
  Item item;
  p.next(item);
  std::filesystem::remove(dir.path("a.txt"));
  EXPECT_EQ(p.length(), 111'111u);
}

TEST(Files, AreSamples) {
  TempDir dir;
  std::filesystem::create_directory(dir.path("cat"));
  write(dir.path("cat/1.png"), "one");
  write(dir.path("cat/2.png"), "two");
  const auto items = read_all(
      spec_of("files", {{"pattern", dir.path("cat/*.png")}, {"shuffle", false}}, {{"epochs", 1}}));
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(text(items[1], "png"), "two");
  EXPECT_EQ(text(items[1], "folder"), "cat");
  EXPECT_EQ(text(items[1], "name"), "2.png");
}

TEST(Webdataset, ReadsGzip) {
  TempDir dir;
  Pipeline p(
      spec_of("webdataset", {{"pattern", make_shards(dir, 1, 9, 0, 10, ".tar")}}, {{"epochs", 1}}));
  const auto plain = read_all(p);
  std::ifstream in(dir.path("shard-0.tar"), std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  write_gz(dir.path("again.tar.gz"), bytes + std::string());
  EXPECT_EQ(
      read_all(spec_of("webdataset", {{"pattern", dir.path("again.tar.gz")}}, {{"epochs", 1}}))
          .size(),
      plain.size());
  write(dir.path("cut.tar.gz"), [&] {
    std::ifstream gz(dir.path("again.tar.gz"), std::ios::binary);
    std::string all(std::istreambuf_iterator<char>(gz), {});
    return all.substr(0, all.size() / 2);
  }());
  EXPECT_HAS(failure(spec_of("webdataset", {{"pattern", dir.path("cut.tar.gz")}})), "truncated");
}

// Limits against files that are made to fill the memory -------------------------------------------

TEST(Limits, OfTarShards) {
  TempDir dir;
  const std::string shard = make_shards(dir, 1, 10, 8);
  const auto with = [&](const char* option, int64_t value) {
    return failure(spec_of("webdataset", {{"pattern", shard}, {option, value}}, {{"epochs", 1}}));
  };
  EXPECT_EQ(with("max_member_bytes", 1000), "no error");
  EXPECT_HAS(with("max_member_bytes", 60), "the limit is 60 (max_member_bytes)");
  EXPECT_EQ(with("max_members", 30), "no error");
  EXPECT_HAS(with("max_members", 29), "the limit is 29 (max_members)");
  EXPECT_HAS(with("max_name_bytes", 3), "the limit is 3 (max_name_bytes)");
}

TEST(Limits, OfDecompression) {
  TempDir dir;
  const std::string zeros(8 << 20, '\n');
  write_gz(dir.path("zeros.gz"), zeros);
  std::string zst(ZSTD_compressBound(zeros.size()), '\0');
  zst.resize(ZSTD_compress(zst.data(), zst.size(), zeros.data(), zeros.size(), 3));
  write(dir.path("zeros.zst"), zst);
  for (const char* name : {"zeros.gz", "zeros.zst"}) {
    const auto with = [&](double ratio) {
      return failure(spec_of("text_lines", {{"pattern", dir.path(name)}, {"max_ratio", ratio}}));
    };
    EXPECT_HAS(with(100), "more than 100 times its size");
    EXPECT_EQ(with(1e6), "no error");
  }
}

TEST(Limits, OfLinesAndRecords) {
  TempDir dir;
  write(dir.path("t"), "short\n" + std::string(100, 'x') + "\n");
  EXPECT_HAS(failure(spec_of("text_lines", {{"pattern", dir.path("t")}, {"max_line_bytes", 99}})),
             "line 2 is longer than 99 bytes");
  EXPECT_EQ(failure(spec_of("text_lines", {{"pattern", dir.path("t")}, {"max_line_bytes", 100}})),
            "no error");
  write(dir.path("r"), example(1));
  EXPECT_HAS(failure(spec_of("tfrecord", {{"pattern", dir.path("r")}, {"max_record_bytes", 9}})),
             "the limit is 9 (max_record_bytes)");
}

TEST(Permutation, IsOneForEverySizeAndKey) {
  for (const uint64_t n : {1, 2, 3, 7, 16, 17, 64, 1000, 4097}) {
    std::set<uint64_t> seen;
    const pipeline::Permutation order(n, 5 * n);
    for (uint64_t i = 0; i < n; ++i) seen.insert(order[i]);
    EXPECT_EQ(seen.size(), n);
    EXPECT_EQ(*seen.rbegin(), n - 1);
  }
  // No place prefers a value: 2,000 keys over 10 values, 200 expected in each cell.
  std::vector<int> cells(100);
  for (uint64_t key = 0; key < 2000; ++key)
    for (uint64_t i = 0; i < 10; ++i) ++cells[i * 10 + pipeline::Permutation(10, key)[i]];
  for (const int cell : cells) EXPECT_NEAR(cell, 200, 70);  // five standard deviations
}

}  // namespace
}  // namespace etr::test
