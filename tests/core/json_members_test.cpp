#include "core/json_members.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "core/json.h"

namespace etr::test {
namespace {

std::string error_of(const Json& document, const std::function<void(const JsonMembers&)>& read) {
  try {
    read(JsonMembers(document, "the record", Code::corrupt_data));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::corrupt_data);
    return error.what();
  }
  return "";
}

TEST(JsonMembers, GivesWhatIsThere) {
  const Json document{{"steps", 3},  {"loss", -0.5}, {"accuracy", nullptr}, {"done", true},
                      {"name", "a"}, {"most", 1e15}, {"list", {1, 2}},      {"of", {{"rate", 2}}}};
  const JsonMembers members(document, "the record", Code::corrupt_data);
  EXPECT_TRUE(members.has("steps"));
  EXPECT_FALSE(members.has("step"));
  EXPECT_EQ(members.count("steps"), 3);
  EXPECT_EQ(members.whole("steps", 3), 3);
  EXPECT_EQ(members.real_or_nan("loss"), -0.5);
  EXPECT_TRUE(std::isnan(members.real_or_nan("accuracy")));
  EXPECT_TRUE(members.flag("done"));
  EXPECT_EQ(members.text("name"), "a");
  EXPECT_EQ(members.number("most"), 1e15);
  EXPECT_EQ(members.list("list").size(), 2);
  EXPECT_EQ(members.part("of").number("rate"), 2);
}

TEST(JsonMembers, SaysWhichMemberIsWrong) {
  const Json document{{"steps", -1},
                      {"loss", "low"},
                      {"far", 1e300},
                      {"half", 0.5},
                      {"many", uint64_t{1'000'000'000'000'001}},
                      {"of", {{"rate", -2}}}};
  const auto error = [&](const std::function<void(const JsonMembers&)>& read) {
    return error_of(document, read);
  };
  EXPECT_EQ(error([](const auto& m) { m.count("step"); }), "the record: it has no 'step'");
  EXPECT_EQ(error([](const auto& m) { m.count("steps"); }),
            "the record: 'steps' is -1, not a whole number");
  EXPECT_EQ(error([](const auto& m) { m.whole("half"); }),
            "the record: 'half' is 0.5, not a whole number");
  EXPECT_EQ(error([](const auto& m) { m.count("many"); }),
            "the record: 'many' is 1000000000000001, not a whole number up to 1000000000000000");
  EXPECT_EQ(error([](const auto& m) { m.real_or_nan("loss"); }),
            "the record: 'loss' is \"low\", not a number or null");
  EXPECT_EQ(error([](const auto& m) { m.number("far"); }),
            "the record: 'far' is 1e+300, not a number from 0 to 1000000000000000");
  EXPECT_EQ(error([](const auto& m) { m.part("of").number("rate"); }),
            "the record: 'of': 'rate' is -2, not a number from 0 to 1000000000000000");
  EXPECT_EQ(error([](const auto& m) { m.part("half"); }),
            "the record: 'half' is 0.5, not an object");
  EXPECT_EQ(error_of(Json::array(), [](const auto&) {}), "the record: it is [], not an object");
}

}  // namespace
}  // namespace etr::test
