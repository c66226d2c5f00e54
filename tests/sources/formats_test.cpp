// Every rule of the small formats: what is read at their limits, and what the errors say beyond
// them.
#include "core/platform_files.h"
#include "sources/alone.h"

namespace etr::test {
namespace {

// Reads all samples of a file whose content is `bytes`. Returns the first error, or "no error".
struct OneFile {
  std::string error(const std::string& bytes) const {
    put(dir.path("file"), bytes);
    return failure(spec_of(stage.c_str(), options, {{"epochs", 1}}));
  }
  std::vector<Item> items(const std::string& bytes) const {
    put(dir.path("file"), bytes);
    return read_all(spec_of(stage.c_str(), options, {{"epochs", 1}}));
  }
  const TempDir& dir;
  std::string stage;
  Json options;
};

std::string place_of(const Item& item) {
  return std::filesystem::path(*item.origin->shard).filename().string() + ":" + item.origin->key;
}

TEST(IdxFormat, HeadersAreChecked) {
  using namespace std::string_literals;
  TempDir dir;
  const OneFile idx{dir, "idx", {{"images", dir.path("file")}, {"shuffle", false}}};
  const auto array = [](const std::string& magic, std::initializer_list<uint32_t> extents,
                        size_t bytes) {
    std::string out = magic;
    for (const uint32_t extent : extents) out += big_endian(extent);
    return out + std::string(bytes, 'x');
  };
  const auto magic = [](char rank, char type = 8) { return std::string{0, 0, type, rank}; };
  using Text = std::string;
  const std::pair<Text, Text> cases[] = {
      {"", "not an IDX file (it has 0 bytes)"},
      {"\0\0\x08"s, "not an IDX file (it has 3 bytes)"},
      {magic(3), "the file ends in its header"},
      {array(magic(3), {1, 2}, 3), "the file ends in its header"},
      {array(Text{1, 0, 8, 3}, {1, 2, 3}, 6), "begins with other bytes than 0 0"},
      {array(Text{0, 1, 8, 3}, {1, 2, 3}, 6), "begins with other bytes than 0 0"},
      {array(magic(3, 9), {1, 2, 3}, 6), "IDX type 9; only u8 (8) is read"},
      {magic(0), "an array of 0 axes; expected 1 to 4"},
      {array(magic(5), {1, 1, 1, 1, 1}, 1), "an array of 5 axes; expected 1 to 4"},
      {array(magic(3), {1, 0, 3}, 0), "an axis of length 0"},
      {array(magic(3), {1, 3, 0}, 0), "an axis of length 0"},
      {array(magic(4), {1, 1u << 31, 1u << 31, 8}, 0), "an array of more than 2^64 bytes"},
      {array(magic(2), {2, 3}, 6), "images are [N, H, W] or [N, H, W, C]"},
      {array(magic(3), {1, 2, 3}, 6), "no error"},
      {array(magic(4), {1, 2, 3, 2}, 12), "no error"}};
  for (const auto& [bytes, part] : cases) EXPECT_HAS(idx.error(bytes), part);
  const auto items = idx.items(array(magic(4), {2, 2, 3, 2}, 24));
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[1].find("image")->shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(place_of(items[1]), "file:1");
  put(dir.path("labels"), array(magic(2), {1, 1}, 1));
  const OneFile both{dir, "idx", {{"images", dir.path("file")}, {"labels", dir.path("labels")}}};
  EXPECT_HAS(both.error(array(magic(3), {1, 2, 3}, 6)), "labels' holds [1, 1]; the 1 images");
}

TEST(CifarFormat, LabelsOfEachKind) {
  TempDir dir;
  std::string pixels;
  for (int i = 0; i < 3072; ++i) pixels += static_cast<char>(i % 251);
  const auto labelled = [&](const char* labels, const std::string& head) {
    const OneFile cifar{
        dir, "cifar", {{"pattern", dir.path("file")}, {"labels", labels}, {"shuffle", false}}};
    const auto items = cifar.items(head + pixels + head + pixels);
    EXPECT_EQ(items.size(), 2u);
    EXPECT_EQ(place_of(items[1]), "file:1");
    for (int p = 0; p < 1024; ++p)
      for (int c = 0; c < 3; ++c)
        EXPECT_EQ(values<uint8_t>(items[1], "image")[3 * p + c], (1024 * c + p) % 251);
    return number(items[1], "label");
  };
  EXPECT_EQ(labelled("cifar10", "\7"), 7);
  EXPECT_EQ(labelled("cifar100", "\7\x09"), 9);
  EXPECT_EQ(labelled("cifar100_coarse", "\7\x09"), 7);
  const OneFile cifar{dir, "cifar", {{"pattern", dir.path("file")}}};
  EXPECT_HAS(cifar.error(""), "has 0 bytes, which is not a number of records of 3073 bytes");
}

// An .npy file of any version whose header is `dict`.
std::string npy_with(int version, const std::string& dict, const std::string& data) {
  using namespace std::string_literals;
  std::string out = "\x93NUMPY"s + static_cast<char>(version) + '\0';
  if (version == 1)
    out += raw(static_cast<uint16_t>(dict.size()));
  else
    out += raw(static_cast<uint32_t>(dict.size()));
  return out + dict + data;
}

std::string dict_of(const std::string& type, const std::string& shape,
                    const std::string& order = "False") {
  return "{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + shape + "}";
}

TEST(NpyFormat, EveryVersionAndNotationIsRead) {
  using namespace std::string_literals;
  TempDir dir;
  const OneFile file{dir, "npy", {{"arrays", "x=" + dir.path("file")}, {"shuffle", false}}};
  for (const std::string& dict :
       {dict_of("'|u1'", "(3,)"), dict_of("\"|u1\"", "( 3 , )"), dict_of("'|b1'", "(3, 1)"),
        "\n{ \"shape\" : (3,1,) ,\t\"fortran_order\":False,\"descr\":'|u1' , } \r\n"s,
        "{'shape':(3,),'fortran_order':False,'descr':'|u1',}"s})
    for (const int version : {1, 2, 3}) {
      const auto items = file.items(npy_with(version, dict, "abc"));
      ASSERT_EQ(items.size(), 3u) << dict << version;
      EXPECT_EQ(values<uint8_t>(items[2], "x"), std::vector<uint8_t>{'c'});
      EXPECT_EQ(place_of(items[2]), "file:2");
    }
  // The data begin at an odd byte, for which there is a copy, or at an even one.
  for (const char* blanks : {"", " ", "  ", "   "}) {
    const auto floats = file.items(
        npy_with(1, dict_of("'<f4'", "(2,2)") + blanks, raw(1.f) + raw(2.f) + raw(3.f) + raw(4.f)));
    EXPECT_EQ(values<float>(floats[1], "x"), (std::vector<float>{3, 4}));
    EXPECT_EQ(floats[1].find("x")->dtype(), DType::f32);
    const auto whole = file.items(npy_with(1, dict_of("'<i4'", "(2,)") + blanks, raw(7) + raw(-8)));
    EXPECT_EQ(number(whole[1], "x"), -8);
    EXPECT_EQ(whole[1].find("x")->dtype(), DType::i32);
  }
  const int64_t least = INT32_MIN, most = INT32_MAX;
  const auto limits = file.items(npy_with(1, dict_of("'<i8'", "(1,2)"), raw(least) + raw(most)));
  EXPECT_EQ(values<int32_t>(limits[0], "x"), (std::vector<int32_t>{INT32_MIN, INT32_MAX}));
}

TEST(NpyFormat, SaysWhatIsWrong) {
  using namespace std::string_literals;
  TempDir dir;
  const OneFile file{dir, "npy", {{"arrays", "x=" + dir.path("file")}}};
  const auto u8 = [](const std::string& shape) {
    return npy_with(1, dict_of("'|u1'", shape), "ab");
  };
  const auto header = [](const std::string& dict) { return npy_with(1, dict, "ab"); };
  const std::string good = dict_of("'|u1'", "(2,)"), deep = "(1,1,1,1,1,1,1,1,1,1)";
  std::string huge = npy_with(2, std::string((1 << 20) + 1, ' '), "");
  const std::string cases[][2] = {
      {"\x93NUMPY\1\0\1\0{"s, "is not a .npy file"},
      {"\x92NUMPY\1\0"s + std::string(30, 'x'), "is not a .npy file"},
      {"PK\x03\x05"s + std::string(30, 'x'), "is not a .npy file"},
      {npy_with(1, good, "").substr(0, 40), "the file ends in its header"},
      {huge, "a header of 1048577 bytes; the limit is 1048576"},
      {u8("()"), "holds a single value, not an array of samples"},
      {u8(deep), "has the shape (1, 1, 1, 1, 1, 1, 1, 1, 1, 1): samples of 9 axes; at most 8"},
      {u8("(3,)"), "the shape (3,) needs 3 bytes after the header; the file has 2"},
      {u8("(3, 4)"), "the shape (3, 4) needs 12 bytes"},
      {u8("(9223372036854775808,)"), "which no array has"},
      {u8("(0, 9223372036854775808)"), "which no array has"},
      {u8("(4294967296, 4294967296)"), "which no array has"},
      {u8("(0, 4294967296, 4294967296)"), "which no array has"},
      {header(dict_of("'|u1'", "(2,)", "True")), "is in Fortran order"},
      {header(dict_of("('|u1', (2,))", "(2,)")), "(structured)"},
      {header(dict_of("[(\"a\", '|u1'), ('b', '<f4', (2, 3))]", "(2,)")), "(structured)"},
      {header(dict_of("[)", "(2,)")), "where a whole number belongs"},
      {header("{"), "'' at character 2, where a string belongs"},
      {header("x"), "'x' at character 1, where { belongs"},
      {header("{3"), "'3' at character 2, where a string belongs"},
      {header("{'descr"), "where a string belongs"},
      {header("{'descr' '|u1'"), "where : belongs"},
      {header("{'other': 1"), "where 'descr', 'fortran_order' or 'shape' before it belongs"},
      {header("{'shape': (2,) 'descr'"), "where ',' or '}' belongs"},
      {header("{'shape': 2"), "where ( belongs"},
      {header("{'shape': (x"), "'x' at character 12, where a whole number belongs"},
      {header("{'shape': (2 3"), "where ',' belongs"},
      {header("{'shape': (2, 3 4"), "where ',' belongs"},
      {header("{" + std::string(59, '~') + "!"), "it has '" + std::string(59, '~') + "!' at"},
      {header("{" + std::string(60, '~') + "!"), "it has '" + std::string(60, '~') + "...' at"},
      {header("{\x7f\x1f"), "it has '\\x7f\\x1f' at"}};
  for (const auto& [bytes, part] : cases) EXPECT_HAS(file.error(bytes), part);
  put(dir.path("file"), u8("(2,)"));
  put(dir.path("one"), u8("(1,)"));
  EXPECT_HAS(
      failure(spec_of("npy", {{"arrays", "x=" + dir.path("file") + ",y=" + dir.path("one")}})),
      "one' holds 1 samples, '" + dir.path("file") + "' holds 2");
  EXPECT_HAS(failure(spec_of("npy", {{"arrays", "=" + dir.path("file")}})), "write FIELD=FILE");
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value > 127; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}

TEST(TfRecordFormat, ListsMayBePackedOrNot) {
  TempDir dir;
  const OneFile file{dir, "tfrecord", {{"pattern", dir.path("file")}}};
  const auto of = [](const std::string& features) { return tf_record(delimited(1, features)); };
  const auto wholes = [&](const std::string& list) {
    return values<int32_t>(file.items(of(feature("n", 3, list))).at(0), "n");
  };
  const uint64_t least = static_cast<uint64_t>(int64_t{INT32_MIN}), most = INT32_MAX;
  EXPECT_EQ(wholes(delimited(1, varint(5) + varint(300))), (std::vector<int32_t>{5, 300}));
  EXPECT_EQ(wholes("\x08" + varint(5) + "\x08" + varint(300)), (std::vector<int32_t>{5, 300}));
  EXPECT_EQ(wholes("\x10\7\x08" + varint(5) + delimited(2, "xx")), std::vector<int32_t>{5})
      << "other fields are passed over";
  EXPECT_EQ(wholes(delimited(1, varint(least) + varint(most))),
            (std::vector<int32_t>{INT32_MIN, INT32_MAX}));
  const auto floats = [&](const std::string& list) {
    return values<float>(file.items(of(feature("f", 2, list))).at(0), "f");
  };
  EXPECT_EQ(floats(delimited(1, raw(1.f)) + delimited(1, raw(2.f) + raw(3.f))),
            (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(floats("\x0D" + raw(1.f) + "\x0D" + raw(2.f)), (std::vector<float>{1, 2}));
  EXPECT_EQ(floats(delimited(2, raw(9.f)) + "\x15" + raw(9.f) + delimited(1, raw(1.f))),
            std::vector<float>{1});
  EXPECT_HAS(file.error(of(feature("n", 3, delimited(1, varint(most + 1))))),
             "feature 'n': 2147483648 does not fit in 32 bits");
  EXPECT_HAS(file.error(of(feature("n", 3, delimited(1, varint(least - 1))))),
             "feature 'n': -2147483649 does not fit in 32 bits");
  EXPECT_HAS(file.error(of(feature("b", 1, delimited(1, "x") + delimited(1, "y")))),
             "feature 'b' holds 2 byte strings; one is read");
  for (const std::string& none : {std::string(), delimited(2, feature("b", 1, delimited(1, "x")))})
    EXPECT_HAS(file.error(tf_record(none)), "the record holds no tf.train.Example with features");
}

TEST(TfRecordFormat, RecordsHavePlacesAndLimits) {
  TempDir dir;
  put(dir.path("file"), example(0) + example(1) + example(2));
  Alone source("tfrecord",
               {{"pattern", dir.path("file")}, {"max_record_bytes", example(0).size() - 16}});
  int64_t offset = 0;
  for (int i = 0; i < 3; ++i) {
    Item item;
    ASSERT_EQ(source.next(item), "") << "a record of exactly as many bytes as it may have";
    EXPECT_EQ(place_of(item), cat("file:record ", i + 1));
    EXPECT_EQ(item.origin->offset, offset);
    offset += static_cast<int64_t>(example(i).size());
  }
  const OneFile file{dir, "tfrecord", {{"pattern", dir.path("file")}}};
  EXPECT_HAS(file.error(example(0) + example(1).substr(0, 11)), "ends inside a record's head");
  std::string head = example(0);
  head[8] ^= 1;
  EXPECT_HAS(file.error(head), "the checksum of the record's length does not match");
  // Each file begins anew, also after one that has failed.
  put(dir.path("a.tfr"), example(0) + example(1).substr(0, 30));
  put(dir.path("b.tfr"), example(2) + tf_record("") + example(3));
  const auto rest =
      read_all(spec_of("tfrecord", {{"pattern", dir.path("*.tfr")}, {"shuffle_shards", false}},
                       {{"epochs", 1}, {"on_error", "skip"}}));
  ASSERT_EQ(rest.size(), 3u);
  EXPECT_EQ(place_of(rest[2]), "b.tfr:record 3");
}

TEST(JsonlFormat, BooleansAndEmptyListsAreNumbers) {
  TempDir dir;
  const OneFile file{dir, "jsonl", {{"pattern", dir.path("file")}, {"columns", "x:f32=a.b"}}};
  const auto items = file.items("{\"a\": {\"b\": [true, false, 2]}}\n{\"a\": {\"b\": []}}\n");
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(values<float>(items[0], "x"), (std::vector<float>{1, 0, 2}));
  EXPECT_EQ(items[1].find("x")->shape(), Shape{0});
  EXPECT_EQ(place_of(items[1]), "file:line 2");
  EXPECT_HAS(file.error("[1]\n"), "the line is not a JSON object");
  EXPECT_HAS(file.error("{\"a\": 3}\n"), "a.b");
  EXPECT_HAS(file.error("{/* c */ \"a\": {\"b\": 1}}\n"), "line 1");
}

TEST(CsvFormat, RowsHavePlaces) {
  TempDir dir;
  const OneFile file{dir, "csv", {{"pattern", dir.path("file")}, {"columns", "x:i32=a"}}};
  const auto items = file.items("a,b\n1,\"x\ny\"\n2,z\n");
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(place_of(items[1]), "file:line 4");
  EXPECT_EQ(number(items[1], "x"), 2);
  EXPECT_HAS(file.error(""), "is empty; expected a row with names");
  EXPECT_HAS(file.error("a,b,a\n1,2,3\n"), "a");
  EXPECT_NE(file.error("a,b,a\n1,2,3\n"), "no error") << "which of the two columns is meant?";
}

Json column_of(const std::string& path, const std::string& name) {
  return {{"stage", "csv"}, {"pattern", path}, {"columns", name + ":i32=a"}};
}

// What belongs together stays together.
TEST(ZipFormat, ABadRecordOfOneSourceIsOneOfTheWhole) {
  TempDir dir;
  put(dir.path("x"), "a\n1\nbad\n3\nbad\n5\n");
  put(dir.path("y"), "a\n1\n2\n3\nalso bad\nbad\n");
  const Json sources{column_of(dir.path("x"), "x"), column_of(dir.path("y"), "y")};
  Pipeline p(spec_of("zip", {{"sources", sources}}, {{"epochs", 1}, {"on_error", "skip"}}));
  const auto items = read_all(p);
  ASSERT_EQ(items.size(), 2u);
  for (const Item& item : items) EXPECT_EQ(number(item, "x"), number(item, "y"));
  EXPECT_EQ(place_of(items[1]), "x:line 4") << "the place in the first source";
  const Json bad = p.bad_record_list();
  ASSERT_EQ(bad.size(), 3u);
  EXPECT_HAS(bad[0]["reason"].get<std::string>(), "'bad' is not a number");
  EXPECT_HAS(bad[1]["reason"].get<std::string>(), "'bad' is not a number");
  EXPECT_HAS(bad[2]["reason"].get<std::string>(), "'bad' is not a number");
}

TEST(ZipFormat, CountsTheSamplesOfTheShortestSource) {
  TempDir dir;
  put(dir.path("long"), idx_images(5, 2, 2));
  put(dir.path("short"), idx_images(3, 2, 2));
  put(dir.path("text"), "a\n1\n");
  const auto images = [&](const char* name) {
    return Json{{"stage", "idx"}, {"images", dir.path(name)}, {"shuffle", false}};
  };
  const auto samples_of = [&](const Json& first, const Json& second) {
    const Json json{{"sources", {first, second}}, {"prefixes", "a_,b_"}, {"equal_lengths", false}};
    const Options options(pipeline::find_stage("zip").options, "zip", json);
    const pipeline::AnyStage stage = pipeline::find_stage("zip").make(options, {});
    return pipeline::source_of(stage)->samples();
  };
  EXPECT_EQ(samples_of(images("long"), images("short")), 3u);
  EXPECT_EQ(samples_of(images("short"), images("long")), 3u);
  EXPECT_EQ(samples_of(images("long"), column_of(dir.path("text"), "x")), std::nullopt);
  EXPECT_HAS(failure(spec_of("zip", {{"sources", {images("long"), images("short")}},
                                     {"prefixes", "a_,b_,c_"}})),
             "stage 'zip': 3 prefixes for 2 sources");
}

// The error names how many samples of this pass were given.
TEST(ZipFormat, EachPassCountsAnew) {
  TempDir dir;
  put(dir.path("x"), "a\n1\n2\n3\n");
  put(dir.path("y"), "a\n1\n2\n3\n4\n");
  const Json sources{column_of(dir.path("x"), "x"), column_of(dir.path("y"), "y")};
  const Options options(pipeline::find_stage("zip").options, "zip", {{"sources", sources}});
  const pipeline::AnyStage stage = pipeline::find_stage("zip").make(options, {});
  pipeline::Source& source = *pipeline::source_of(stage);
  for (uint64_t pass = 0; pass < 2; ++pass) {
    source.start_pass(0, pass);
    std::string error;
    try {
      for (Item item; source.next(item); item = {}) continue;
    } catch (const Error& found) {
      error = found.what();
    }
    EXPECT_HAS(error, "source 1 ends after 3 samples");
  }
}

}  // namespace
}  // namespace etr::test
