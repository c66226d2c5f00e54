// Every source: what it reads, what it says of damaged files, and that it can be shared out, shuffled
// and restored.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "core/crc32c.h"
#include "core/error.h"
#include "io/fast_shard.h"
#include "pipeline/permutation.h"
#include "support/data.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

// Leaves a file that is there alone: a pipeline may have mapped it.
void write(const std::string& path, const std::string& bytes) {
  if (std::filesystem::exists(path)) return;
  std::ofstream(path, std::ios::binary) << bytes;
}

void write_gz(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

std::string big_endian(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

Json spec_of(const char* stage, Json options, const Json& more = Json::object()) {
  options["stage"] = stage;
  Json out = more;
  out["stages"] = Json::array({options});
  return out;
}

// All items of an epoch.
std::vector<Item> read_all(Pipeline& p) {
  std::vector<Item> out;
  Item item;
  while (p.next(item) == Pipeline::Next::item) out.push_back(item);
  return out;
}
std::vector<Item> read_all(const Json& spec) {
  Pipeline p(spec);
  return read_all(p);
}

// The message of the error that reading ends with.
std::string failure(const Json& spec) {
  try {
    read_all(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

template <typename T>
std::vector<T> values(const Item& item, const char* field) {
  const Tensor* t = item.find(field);
  if (!t) return {};
  return {t->view<T>().begin(), t->view<T>().end()};
}
std::string text(const Item& item, const char* field) {
  const auto chars = values<char>(item, field);
  return {chars.begin(), chars.end()};
}
int32_t number(const Item& item, const char* field) { return values<int32_t>(item, field).at(0); }

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// Files of each kind -----------------------------------------------------------------------------

std::string idx_images(uint32_t n, uint32_t h, uint32_t w) {
  std::string out = std::string("\0\0\x08\x03", 4) + big_endian(n) + big_endian(h) + big_endian(w);
  for (uint32_t i = 0; i < n * h * w; ++i) out += static_cast<char>(i);
  return out;
}
std::string idx_labels(uint32_t n) {
  std::string out = std::string("\0\0\x08\x01", 4) + big_endian(n);
  for (uint32_t i = 0; i < n; ++i) out += static_cast<char>(i % 10);
  return out;
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((10 + header.size() + 64) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  return "\x93NUMPY\x01" + std::string(1, '\0') + raw(static_cast<uint16_t>(header.size())) +
         header + data;
}

std::string delimited(int field, const std::string& bytes) {
  std::string out(1, static_cast<char>(field << 3 | 2));
  for (size_t n = bytes.size();; n >>= 7) {
    out += static_cast<char>((n & 0x7F) | (n > 0x7F ? 0x80 : 0));
    if (n <= 0x7F) break;
  }
  return out + bytes;
}

std::string feature(const std::string& name, int kind, const std::string& list) {
  return delimited(1, delimited(1, name) + delimited(2, delimited(kind, list)));
}

uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

std::string tf_record(const std::string& data) {
  const std::string length = raw(static_cast<uint64_t>(data.size()));
  return length + raw(masked_crc(length)) + data + raw(masked_crc(data));
}

// A record with the features "png", "x" and "label".
std::string example(int number) {
  return tf_record(delimited(
      1, feature("png", 1, delimited(1, "image " + std::to_string(number))) +
             feature("x", 2, delimited(1, raw(0.5f) + raw(static_cast<float>(number)))) +
             feature("label", 3, delimited(1, std::string(1, static_cast<char>(number))))));
}

// Reading ------------------------------------------------------------------------------------------

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
  const auto characters = read_all(spec({{"length", 3}, {"stride", 1}, {"symbols", "characters"}}));
  ASSERT_EQ(characters.size(), 6u);
  EXPECT_EQ(values<int32_t>(characters[1], "input"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(values<int32_t>(characters[1], "target"), (std::vector<int32_t>{2, 3, 0}));
  EXPECT_HAS(failure(spec({{"length", 3}, {"symbols", "characters"}, {"alphabet", "abc"}})),
             "not in the alphabet");
  EXPECT_HAS(failure(spec({{"length", 10}})), "need 11");
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

// What all sources have in common -------------------------------------------------------------------

class EverySource : public testing::TestWithParam<const char*> {
 protected:
  // 37 samples in two or more files, where there can be several.
  Json spec(const Json& more = Json::object()) {
    const std::string stage = GetParam();
    Json options;
    if (stage == "webdataset") {
      options["pattern"] = dir_.path("shard-*.tar.zst");
      if (!std::filesystem::exists(dir_.path("shard-0.tar.zst"))) make_shards(dir_, 1, 37);
    } else if (stage == "fast_shard") {
      options["pattern"] = dir_.path("*.ets");
      for (const int shard : {0, 1}) {
        io::FastShardWriter writer(dir_.path(std::to_string(shard) + ".ets"));
        for (int i = shard; i < 37; i += 2) {
          const std::string text = std::to_string(i);
          const auto bytes = std::as_bytes(std::span(text));
          const auto frame = io::zstd_frame(bytes, 3);
          const io::FastShardWriter::Field fields[] = {{"cls", bytes, 0},
                                                       {"bin", frame, bytes.size()}};
          writer.add(text, fields);
        }
        writer.finish();
      }
    } else if (stage == "folder" || stage == "files") {
      for (int i = 0; i < 37; ++i) {
        std::filesystem::create_directories(dir_.path("root/" + std::to_string(i % 3)));
        write(dir_.path("root/" + std::to_string(i % 3) + "/" + std::to_string(i) + ".bin"),
              std::to_string(i));
      }
      options = stage == "folder" ? Json{{"root", dir_.path("root")}}
                                  : Json{{"pattern", dir_.path("root/*/*.bin")}};
    } else if (stage == "idx") {
      write(dir_.path("images"), idx_images(37, 2, 2));
      options["images"] = dir_.path("images");
    } else if (stage == "cifar") {
      std::string bytes;
      for (int i = 0; i < 37; ++i)
        bytes += static_cast<char>(i) + std::string(3072, static_cast<char>(i));
      write(dir_.path("a.bin"), bytes);
      options["pattern"] = dir_.path("a.bin");
    } else if (stage == "npy") {
      std::string data;
      for (int i = 0; i < 37; ++i) data += raw(i);
      write(dir_.path("x.npy"), npy("<i4", "(37,)", data));
      options["arrays"] = "x=" + dir_.path("x.npy");
    } else if (stage == "text_windows") {
      std::string data;
      for (int i = 0; i < 38; ++i) data += static_cast<char>(i + 30);
      write(dir_.path("t"), data);
      options = {{"pattern", dir_.path("t")}, {"length", 1}};
    } else {  // files of lines or records
      std::string a, b;
      for (int i = 0; i < 37; ++i) {
        std::string& to = i % 4 ? a : b;
        if (stage == "tfrecord") to += example(i);
        if (stage == "jsonl") to += "{\"x\": " + std::to_string(i) + "}\n";
        if (stage == "csv" || stage == "text_lines") to += std::to_string(i) + "\n";
      }
      write(dir_.path("0.data"), a);
      write(dir_.path("1.data"), b);
      options["pattern"] = dir_.path("*.data");
      if (stage == "csv") options.update({{"columns", "x:f32=0"}, {"header", false}});
      if (stage == "jsonl") options["columns"] = "x:f32";
    }
    Json out = spec_of(GetParam(), options, more);
    out["seed"] = 3;
    return out;
  }
  // What tells samples apart: all their bytes.
  static std::vector<std::string> contents(Pipeline& p) {
    std::vector<std::string> out;
    for (const Item& item : read_all(p)) {
      std::string all;
      for (const auto& field : item.fields)
        all += field.name + ":" +
               std::string(reinterpret_cast<const char*>(field.tensor.data()),
                           field.tensor.size_bytes());
      out.push_back(all);
    }
    return out;
  }
  std::vector<std::string> epoch(const Json& more = Json::object()) {
    Pipeline p(spec(more));
    return contents(p);
  }
  TempDir dir_;
};

TEST_P(EverySource, GivesEachSampleOnceAnEpoch) {
  Pipeline p(spec());
  auto first = contents(p), second = contents(p);
  EXPECT_EQ(first.size(), 37u);
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 37u);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
}

// The ranks' samples, dealt out in turn, are those of one process; all have as many.
TEST_P(EverySource, IsSharedOutEqually) {
  const auto whole = epoch();
  for (const int world : {2, 3, 5}) {
    std::vector<std::vector<std::string>> shares;
    for (int rank = 0; rank < world; ++rank)
      shares.push_back(epoch({{"rank", rank}, {"world", world}}));
    for (size_t i = 0; i < 37 / static_cast<size_t>(world) * static_cast<size_t>(world); ++i)
      ASSERT_EQ(shares[i % static_cast<size_t>(world)].at(i / static_cast<size_t>(world)),
                whole[i]);
    for (const auto& share : shares) EXPECT_EQ(share.size(), 37u / static_cast<size_t>(world));
  }
}

TEST_P(EverySource, IsRestoredInTheMiddle) {
  for (const int world : {1, 3}) {
    const Json shared{{"rank", world - 1}, {"world", world}};
    Pipeline original(spec(shared));
    Item item;
    for (int i = 0; i < 7; ++i) original.next(item);
    Pipeline restored(spec(shared));
    restored.restore(parse_json(original.save().dump(), "state"));
    for (int e = 0; e < 2; ++e) EXPECT_EQ(contents(original), contents(restored));
  }
}

TEST_P(EverySource, GoesOnWithAnotherNumberOfRanksBetweenEpochs) {
  Pipeline original(spec({{"world", 2}}));
  contents(original);
  const Json between = original.save();
  Pipeline alone(spec()), reference(spec());
  alone.restore(between);
  contents(reference);
  EXPECT_EQ(contents(alone), contents(reference));
  Item item;
  original.next(item);
  Pipeline refused(spec());
  EXPECT_THROW(refused.restore(original.save()), Error);
}

TEST_P(EverySource, EndsWhenItHasNothingToRead) {
  Json missing = spec();
  for (const char* key : {"pattern", "root", "images"})
    if (missing["stages"][0].contains(key)) missing["stages"][0][key] = dir_.path("nothing/here");
  if (missing["stages"][0].contains("arrays"))
    missing["stages"][0]["arrays"] = "x=" + dir_.path("nothing/here");
  EXPECT_HAS(failure(missing), "nothing/here");
}

std::vector<const char*> sources() {
  std::vector<const char*> out;
  for (const pipeline::StageSpec* stage : pipeline::stage_table())
    // Functions of the program: tests/capi/own_stage_test.cpp.
    if (stage->kind == pipeline::StageKind::source && stage->name != std::string("source"))
      out.push_back(stage->name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Sources, EverySource, testing::ValuesIn(sources()),
                         [](const auto& source) { return std::string(source.param); });

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
