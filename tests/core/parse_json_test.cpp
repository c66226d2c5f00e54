#include "core/parse_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"
#include "core/json.h"
#include "core/rng.h"
#include "support/deep_json.h"

namespace etr::test {
namespace {

std::string parse_error(const std::string& text, const JsonRules& rules = {}) {
  try {
    parse_json(text, "the thing", rules);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), rules.code);
    return error.what();
  }
  return "";
}

std::string nested(size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(ParseJson, GivesWhatNlohmannGives) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "1.5e-3", R"("a\u00e9\n")", "[]", "{}",
        R"({"z": 1, "a": [1, [2, {"b": {}}], "x"], "m": {"k": null}})",
        R"([{}, [], [[]], {"a": []}])", R"({"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}], "A": 4})"})
    EXPECT_EQ(parse_json(text, "the thing"), Json::parse(text)) << text;
  std::string wide = "{\"first\": 0";  // more keys than are compared one by one
  for (int i = 0; i < 1000; ++i) wide += cat(", \"k", i, "\": [", i, "]");
  wide += "}";
  EXPECT_EQ(parse_json(wide, "the thing"), Json::parse(wide));
  EXPECT_EQ(parse_json(wide, "the thing").dump(), Json::parse(wide).dump()) << "in the same order";
}

TEST(ParseJson, NamesTheTextAndThePlace) {
  EXPECT_NE(parse_error("[1, }").find("the thing is not valid JSON: "), std::string::npos);
  EXPECT_NE(parse_error("[1, }").find("column 5"), std::string::npos);
  EXPECT_NE(parse_error("1e999").find("number overflow"), std::string::npos);
  for (const char* text : {"", "[1] 2", "[1", "{\"a\" 1}", "\"\xff\""})
    EXPECT_NE(parse_error(text), "");
  EXPECT_EQ(parse_error("[1] // a comment"), "");
  EXPECT_NE(parse_error("[1] // a comment", {.comments = false, .code = Code::corrupt_data}), "");
}

TEST(ParseJson, AZeroByteEndsNoDocument) {
  const std::string document = "{\"x\": [1, \"a\"],\n \"y\": 2} // and\n";
  for (size_t at = 0; at <= document.size(); ++at) {
    std::string text = document;
    text.insert(at, 1, '\0');
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<int>(at), '\n');
    EXPECT_NE(parse_error(text).find(cat("the thing is not valid JSON: line ", line, ", column ")),
              std::string::npos)
        << at << ": " << parse_error(text);
  }
  EXPECT_EQ(parse_error(std::string("{\"x\":1}\0garbage", 15)),
            "the thing is not valid JSON: column 8: a zero byte, which JSON does not have");
  EXPECT_FALSE(parse_if_json(std::string("1\0", 2), "the thing"));
}

TEST(ParseJson, RefusesKeysThatComeTwice) {
  EXPECT_EQ(parse_error("{\"a\": {\"b\": 1},\n \"c\": 2, \"b\":\n 3,\n\n   \"c\" : 4}"),
            "the thing: duplicate key 'c' in one object, at line 2, column 2 and at line 5, "
            "column 4");
  EXPECT_NE(parse_error(R"([{"\"\\": 1, "\u0022\\": 2}])").find("and at line 1, column 14"),
            std::string::npos)
      << "the same key, written otherwise";
  EXPECT_EQ(parse_error(R"({"\\\"b\"": 1, "\\\u0022b\"": 2})"),
            "the thing: duplicate key '\\\"b\"' in one object, at line 1, column 2 and at line 1, "
            "column 16")
      << "quotation marks within";
  EXPECT_NE(
      parse_error(R"({"": 1, "": 2})")
          .find("duplicate key '' in one object, at line 1, column 2 and at line 1, column 9"),
      std::string::npos);
  EXPECT_NE(parse_error(R"({"a": 1 /* "a": */, "b": [{"b": 2}], "a": null})")
                .find("and at line 1, column 38"),
            std::string::npos);
  EXPECT_THROW(parse_if_json(R"({"a": 1, "a": 2})", "--set x"), Error);
}

// Objects of all sizes, one of whose keys comes again.
TEST(ParseJson, FindsTheSecondOfAnyTwoKeys) {
  Rng rng(7);
  for (uint32_t keys = 2; keys < 60; ++keys) {
    const uint32_t second = 1 + rng.below(keys - 1), first = rng.below(second);
    std::string text = "{";
    size_t places[2] = {};
    for (uint32_t i = 0; i < keys; ++i) {
      if (i == first || i == second) places[i == second] = text.size() + 1;
      text += cat("\"k", i == second ? first : i, "\": [{\"k\": 1}]", i + 1 < keys ? ", " : "}");
    }
    EXPECT_EQ(parse_error(text),
              cat("the thing: duplicate key 'k", first, "' in one object, at line 1, column ",
                  places[0], " and at line 1, column ", places[1]));
  }
}

// Whatever is cut off or overwritten: plain words with a place, and no name of the library that
// parsed.
TEST(ParseJson, SaysInPlainWordsWhatIsWrong) {
  const std::string whole = "{\n \"a\": [1, 2.5, true],\n \"b\": {\"c\": \"\u00e9\\n\"}\n}";
  EXPECT_EQ(parse_error("{\n \"a\": ,\n}").find("the thing is not valid JSON: line 2, column 7: "),
            0u);
  EXPECT_EQ(parse_error("[1, }").find("the thing is not valid JSON: column 5: "), 0u)
      << "what has one line has no number of it";
  for (size_t at = 0; at < whole.size(); ++at)
    for (const char* damage : {"", "}", "\"", "\x01", "\xff", "1e999", "\\u"}) {
      const std::string error =
          parse_error(whole.substr(0, at) + damage + (*damage ? whole.substr(at + 1) : ""));
      EXPECT_EQ(error.find("json.exception"), std::string::npos) << error;
      EXPECT_EQ(error.find("parse error"), std::string::npos) << error;
    }
}

TEST(ParseJson, MayHaveALimitOnContainers) {
  EXPECT_EQ(parse_error("[{}, [], 1, 2, 3]", {.most_containers = 3}), "");
  EXPECT_EQ(parse_error("[{}, [], 1, 2, 3]", {.most_containers = 2}),
            "the thing has more than 2 lists and objects");
  EXPECT_NE(parse_error("[{}", {.most_containers = 2}).find("is not valid JSON"),
            std::string::npos);
}

TEST(ParseJson, HasALimitOnDepth) {
  EXPECT_EQ(parse_error(nested(kMaxJsonDepth)), "");
  EXPECT_EQ(parse_error(nested(kMaxJsonDepth + 1)),
            "the thing is nested more than 256 levels deep");
  for (const std::string& text : deep_documents(200'000))
    EXPECT_NE(parse_error(text).find("256 levels deep"), std::string::npos);
  EXPECT_THROW(parse_if_json(nested(kMaxJsonDepth + 1), "--set x"), Error);
  EXPECT_FALSE(parse_if_json("plain text", "--set x"));
  EXPECT_FALSE(parse_if_json("2 // two", "--set x"));
  EXPECT_EQ(parse_if_json("[2]", "--set x"), Json::array({2}));
}

// Each of these takes minutes where members are searched for or copied again and again.
TEST(ParseJson, TakesTimeInProportion) {
  std::string wide = "{\"first\": 0";
  for (int i = 0; i < 300'000; ++i) wide += cat(", \"k", i, "\": {\"x\": [[", i, "]]}");
  wide += "}";
  EXPECT_EQ(parse_json(wide, "the thing").size(), 300'001u);
}

// By core/json.h's own operator, not the library's template.
TEST(Json, IsComparedWithALiteral) {
  const Json json = {{"mode", "fixed"}, {"empty", ""}, {"count", 3}, {"none", nullptr}};
  EXPECT_TRUE(json["mode"] == "fixed");
  EXPECT_TRUE("fixed" == json["mode"]);
  EXPECT_FALSE(json["mode"] != "fixed");
  EXPECT_FALSE(json["mode"] == "fix");
  EXPECT_TRUE(json["mode"] != "auto");
  EXPECT_TRUE(json["empty"] == "");
  EXPECT_FALSE(json["count"] == "3");
  EXPECT_TRUE(json["none"] != "");
  EXPECT_TRUE(json["count"] == 3);
}

// The library only asserts it, which would end the host's process, or nothing in a release build.
TEST(Json, AMissingMemberOfAConstantIsAnException) {
  const Json json = {{"a", {1, 2}}};
  EXPECT_THROW(static_cast<void>(json["b"]), std::logic_error);
}

}  // namespace
}  // namespace etr::test
