// CSV files as other programs write them.
#include "sources/alone.h"

namespace etr::test {
namespace {

// What the source gives of a text, rows apart from bad ones: the first cell of each that has as
// many as the first row.
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

}  // namespace
}  // namespace etr::test
