// Access to the members of documents from outside.
#include "core/json_members.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "core/json.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

class JsonMembersTest : public testing::Test {
 protected:
  template <typename Read>
  std::string problem(const Json& value, Read&& read) const {
    const Json object = {{"key", value}};
    const JsonMembers members(object, "the thing", Code::corrupt_data);
    try {
      read(members);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt_data);
      return error.what();
    }
    return "";
  }
};

TEST_F(JsonMembersTest, HaveTheTypeThatIsAskedFor) {
  const std::function<void(const JsonMembers&)> reads[] = {
      [](const JsonMembers& m) { EXPECT_EQ(m.object("key"), Json::object()); },
      [](const JsonMembers& m) { EXPECT_EQ(m.list("key"), Json::array()); },
      [](const JsonMembers& m) { EXPECT_EQ(m.text("key"), "x"); },
      [](const JsonMembers& m) { EXPECT_TRUE(m.flag("key")); },
      [](const JsonMembers& m) { EXPECT_EQ(m.number("key"), 1.5); }};
  const Json values[] = {Json::object(), Json::array(), "x", true, 1.5};
  const char* names[] = {"an object", "a list", "a string", "true or false",
                         "a number from 0 to 1000000000000000"};
  for (size_t of = 0; of < std::size(reads); ++of)
    for (const Json& value : values)
      EXPECT_EQ(problem(value, reads[of]),
                value == values[of]
                    ? ""
                    : cat("the thing: 'key' is ", value.dump(), ", not ", names[of]));
  EXPECT_EQ(problem(1, [](const JsonMembers& m) { m.at("other"); }),
            "the thing: it has no 'other'");
  EXPECT_EQ(problem(1, [](const JsonMembers& m) { EXPECT_EQ(m.at("key"), 1); }), "");
  EXPECT_EQ(error_text([] { JsonMembers(Json(3), "the thing", Code::state); }),
            "the thing: it is 3, not an object");
}

TEST_F(JsonMembersTest, NumbersHaveARange) {
  const auto number = [&](const Json& value) {
    return problem(value, [&](const JsonMembers& m) { EXPECT_EQ(m.number("key"), value); });
  };
  for (const Json& value : {Json(0), Json(1), Json(0.5), Json(1e15)}) EXPECT_EQ(number(value), "");
  for (const Json& value : {Json(-0.5), Json(-1), Json(2e15), Json(NAN)})
    EXPECT_NE(number(value), "") << value;
  const auto whole = [&](const Json& value, uint64_t most = UINT64_MAX) {
    return problem(value, [&](const JsonMembers& m) { EXPECT_EQ(m.whole("key", most), value); });
  };
  for (const Json& value : {Json(0), Json(0u), Json(7), Json(UINT64_MAX)})
    EXPECT_EQ(whole(value), "") << value;
  for (const Json& value : {Json(-1), Json(1.0), Json("1"), Json(nullptr)})
    EXPECT_EQ(whole(value), cat("the thing: 'key' is ", value.dump(), ", not a whole number"));
  EXPECT_EQ(whole(7, 7), "");
  EXPECT_EQ(whole(8, 7), "the thing: 'key' is 8, not a whole number up to 7");
}

TEST_F(JsonMembersTest, CountsAreSmallEnoughToBeAdded) {
  const auto count = [&](const Json& value) {
    return problem(value, [&](const JsonMembers& m) { EXPECT_EQ(m.count("key"), value); });
  };
  EXPECT_EQ(count(1'000'000'000'000'000), "");
  EXPECT_EQ(count(1'000'000'000'000'001),
            "the thing: 'key' is 1000000000000001, not a whole number up to 1000000000000000");
}

TEST_F(JsonMembersTest, NullIsWhatJsonCannotExpress) {
  const auto real = [&](const Json& value) {
    return problem(value, [&](const JsonMembers& m) {
      const double read = m.real_or_nan("key");
      EXPECT_TRUE(value.is_null() ? std::isnan(read) : read == value) << read;
    });
  };
  for (const Json& value : {Json(-0.5), Json(3), Json(1e300), Json(nullptr)})
    EXPECT_EQ(real(value), "");
  EXPECT_EQ(real("low"), "the thing: 'key' is \"low\", not a number or null");
}

TEST_F(JsonMembersTest, ErrorsOfPartsNameThem) {
  const auto rate = [&](const Json& value) {
    return problem(value, [&](const JsonMembers& m) { EXPECT_EQ(m.part("key").whole("of"), 2); });
  };
  EXPECT_EQ(rate({{"of", 2}}), "");
  EXPECT_EQ(rate({{"of", -2}}), "the thing: 'key': 'of' is -2, not a whole number");
  EXPECT_EQ(rate(2), "the thing: 'key' is 2, not an object");
}

}  // namespace
}  // namespace etr::test
