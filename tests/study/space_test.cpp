#include "study/space.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/parse_json.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

using study::SequenceKind;
using study::Space;

Space space(const char* text) { return Space(parse_json(text, "space"), "space"); }

Json value(const char* range, double unit) {
  return study::dimension_of("x", parse_json(range, "range"), 0, "space").at(unit);
}

double number(const char* range, double unit) { return value(range, unit).get<double>(); }

TEST(Space, ScalesMapTheUnitInterval) {
  EXPECT_DOUBLE_EQ(number(R"({"from": 2, "to": 6})", 0.25), 3);
  EXPECT_NEAR(number(R"({"from": 1e-4, "to": 1, "scale": "log"})", 0.5), 1e-2, 1e-15);
  EXPECT_NEAR(number(R"({"from": 0, "to": 0.999, "scale": "log_complement"})", 1.0 / 3), 0.9,
              1e-12);
  EXPECT_NEAR(number(R"({"from": 0.9, "to": 0.9999, "scale": "log_complement"})", 1), 0.9999,
              1e-12);
  EXPECT_NEAR(number(R"({"from": 0.9, "to": 0.9999, "scale": "log_complement"})", 0), 0.9, 1e-12);
}

TEST(Space, WholeNumbersAndValuesHaveEqualShares) {
  std::map<std::string, int> drawn;
  for (int i = 0; i < 900; ++i) {
    ++drawn[value(R"({"from": 1, "to": 9, "integer": true})", (i + 0.5) / 900).dump()];
    ++drawn[value(R"({"values": [0.5, "text", true]})", (i + 0.5) / 900).dump()];
  }
  for (int i = 1; i <= 9; ++i) EXPECT_EQ(drawn[std::to_string(i)], 100) << i;
  EXPECT_EQ(drawn["0.5"], 300);
  EXPECT_EQ(drawn["\"text\""], 300);
  EXPECT_EQ(drawn["true"], 300);
  EXPECT_EQ(value(R"({"from": 1, "to": 64, "scale": "log", "integer": true})", 1).dump(), "64");
}

TEST(Space, APointDependsOnItsNumberAloneAndKeysKeepTheirCoordinates) {
  Space whole = space(R"({"a": {"from": 0, "to": 1}, "b": {"from": 0, "to": 1}})");
  Space part = whole;
  part.remove("a");
  Space more = whole;
  more.change(parse_json(R"({"c": {"from": 0, "to": 1}, "a": null})", "change"), "space");
  for (const SequenceKind kind : {SequenceKind::sobol, SequenceKind::halton})
    for (uint64_t i = 0; i < 20; ++i) {
      const Json all = whole.point(kind, i, 7).values;
      EXPECT_EQ(part.point(kind, i, 7).values.dump(), Json({{"b", all["b"]}}).dump());
      EXPECT_EQ(more.point(kind, i, 7).values["b"], all["b"]);
      EXPECT_NE(more.point(kind, i, 7).values["c"], all["a"]);
      EXPECT_NE(whole.point(kind, i, 8).values, all);
    }
}

TEST(Space, IsReadBackAsWritten) {
  const Space one = space(
      R"({"a": {"from": 1, "to": 4, "integer": true}, "b": {"values": [1, "x"]}, "c": {"from": 0.1, "to": 0.2, "scale": "log_complement"}})");
  const Space again(one.json(), "space");
  EXPECT_EQ(one.json(), again.json());
  EXPECT_EQ(one.point(SequenceKind::sobol, 3, 1).values,
            again.point(SequenceKind::sobol, 3, 1).values);
}

TEST(Space, ErrorsNameTheKey) {
  const auto problem = [](const char* text) { return error_text([&] { space(text); }); };
  EXPECT_NE(problem(R"({"rate": {"from": 0, "to": 1, "scale": "log"}})").find("'rate'"),
            std::string::npos);
  EXPECT_NE(problem(R"({"rate": {"from": 2, "to": 1}})").find("begins below its end"),
            std::string::npos);
  const std::string wide = problem(R"({"rate": {"from": -1.7e308, "to": 1.7e308}})");
  EXPECT_NE(wide.find("'rate': 'from' is -1.7e+308 and 'to' is 1.7e+308"), std::string::npos)
      << wide;
  EXPECT_NE(problem(R"({"n": {"from": 1, "to": 1e19, "integer": true}})").find("whole numbers are"),
            std::string::npos);
  EXPECT_NE(problem(R"({"rate": {"from": 0, "to": 1, "scale": "log_complement"}})").find("below 1"),
            std::string::npos);
  EXPECT_NE(
      problem(R"({"rate": {"from": 0, "to": 1, "scael": "log"}})").find("did you mean 'scale'"),
      std::string::npos);
  EXPECT_NE(problem(R"({"rate": {"values": []}})").find("'values'"), std::string::npos);
  EXPECT_NE(problem(R"({"rate": 3})").find("'rate' is 3"), std::string::npos);
  std::string many = "{";
  for (int i = 0; i < 17; ++i) many += cat(i ? ", " : "", "\"k", i, "\": {\"from\": 0, \"to\": 1}");
  EXPECT_NE(problem((many + "}").c_str()).find("at most 16"), std::string::npos);
}

}  // namespace
}  // namespace etr::test
