#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <locale>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/format_text.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/log.h"
#include "core/nearest.h"
#include "core/number_text.h"
#include "core/options.h"
#include "core/packed.h"
#include "core/platform.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/utf8.h"
#include "support/data.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

// Known answers from the authors' reference (Random123's kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxBlock{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
}

TEST(Rng, StreamsAreIndependentAndRepeatable) {
  std::set<uint32_t> firsts;
  for (uint64_t a = 0; a < 10; ++a)
    for (uint64_t b = 0; b < 10; ++b)
      for (uint64_t c = 0; c < 10; ++c) firsts.insert(Rng(1, a, b, c).next_u32());
  EXPECT_GT(firsts.size(), 998u);
  EXPECT_EQ(Rng(5, 1, 2, 3).next_u32(), Rng(5, 1, 2, 3).next_u32());
}

// Runs that are resumed, and shards that are packed again, depend on the very order.
TEST(Rng, ShufflesAsEver) {
  std::vector<int> items(10);
  std::iota(items.begin(), items.end(), 0);
  Rng rng(5, 1), same(5, 1);
  shuffle(items, rng);
  EXPECT_EQ(items, (std::vector<int>{1, 2, 4, 0, 8, 6, 9, 3, 5, 7}));
  std::vector<int> none, one{3};
  shuffle(none, same);
  shuffle(one, same);
  EXPECT_EQ(same.next_u32(), Rng(5, 1).next_u32()) << "fewer than two take no draw";
}

TEST(Rng, MomentsAreRight) {
  Rng rng(3);
  double sum = 0, squares = 0, uniform = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    const double n = rng.normal();
    sum += n;
    squares += n * n;
    const float u = rng.uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    uniform += u;
    ASSERT_LT(rng.below(7), 7u);
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
  EXPECT_NEAR(uniform / kDraws, 0.5, 0.005);
}

TEST(Crc32c, KnownAnswers) {  // RFC 3720, B.4
  const std::vector<std::byte> zeros(32), ones(32, std::byte{0xFF});
  EXPECT_EQ(crc32c(zeros), 0x8A9136AAu);
  EXPECT_EQ(crc32c(ones), 0x62A8AB43u);
  const std::string text = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(text))), 0xE3069283u);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(text)).subspan(4),
                   crc32c(std::as_bytes(std::span(text)).first(4))),
            0xE3069283u);
}

TEST(Crc32c, IsTheRemainderOfEveryLength) {
  Rng rng(1);
  std::vector<std::byte> bytes(100);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.below(256));
  uint32_t expected = ~0u;  // bit by bit
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(crc32c(std::span(bytes).first(i)), ~expected) << i;
    EXPECT_EQ(
        crc32c(std::span(bytes).first(i).subspan(i / 3), crc32c(std::span(bytes).first(i / 3))),
        ~expected);
    expected ^= std::to_integer<uint32_t>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit)
      expected = (expected >> 1) ^ ((expected & 1) ? 0x82F63B78u : 0u);
  }
}

constexpr OptionSpec kSchema[] = {
    {"rate", OptionType::number, "0.5", "a share", 0, 1},
    {"count", OptionType::integer, nullptr, "how many", 1, 10, "items"},
    {"mode", OptionType::string, "\"fast\"", "which", 0, 0, "", "fast|slow"},
    {"mean", OptionType::numbers, "[1]", "list", 0, 5},
};

std::string option_error(const char* json) {
  try {
    Options(kSchema, "thing", parse_json(json, "test"));
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
}

TEST(Text, CountsAndArticles) {
  EXPECT_EQ(counted(0, "sample"), "0 samples");
  EXPECT_EQ(counted(1, "sample"), "1 sample");
  EXPECT_EQ(counted(2, "class", "classes"), "2 classes");
  EXPECT_EQ(with_article("echo"), "an echo");
  EXPECT_EQ(with_article("cache"), "a cache");
}

TEST(Options, DefaultsAndValues) {
  const Options options(kSchema, "thing", parse_json(R"({"count": 3})", "test"));
  EXPECT_EQ(options.number("rate"), 0.5);
  EXPECT_EQ(options.integer("count"), 3);
  EXPECT_EQ(options.string("mode"), "fast");
  EXPECT_EQ(options.numbers("mean"), std::vector<double>{1});
}

TEST(Options, OneTextIsAListOfOne) {
  constexpr OptionSpec schema[] = {{"names", OptionType::strings, "[]", "some names"}};
  for (const Json& given : {Json("a"), Json::array({"a"})})
    EXPECT_EQ(Options(schema, "test", {{"names", given}}).strings("names"),
              std::vector<std::string>{"a"});
  for (const Json& given : {Json(1), Json::array({1}), Json(nullptr), Json(std::string("a\0b", 3))})
    EXPECT_THROW(Options(schema, "test", {{"names", given}}), Error) << given;
}

TEST(Options, ErrorsNameTheKeyAndTheNearestOne) {
  EXPECT_EQ(option_error("{}"), "thing: option 'count' (integer) is required: how many");
  EXPECT_EQ(option_error(R"({"cuont": 1})"),
            "thing: unknown option 'cuont' (did you mean 'count'?)");
  EXPECT_EQ(option_error(R"({"count": 1, "zzzzzzzz": 1})"),
            "thing: unknown option 'zzzzzzzz' (valid: rate, count, mode, mean)");
  EXPECT_EQ(option_error(R"({"count": 11})"),
            "thing: option 'count' is 11 items; it must lie in [1, 10]");
  EXPECT_EQ(option_error(R"({"count": 1.5})"),
            "thing: option 'count' must be of type integer, not 1.5");
  EXPECT_EQ(option_error(R"({"count": 1, "mode": "slaw"})"),
            "thing: option 'mode' cannot be 'slaw' (did you mean 'slow'?)");
  EXPECT_EQ(option_error(R"({"count": 1, "mean": [1, 9]})"),
            "thing: option 'mean' is 9; it must lie in [0, 5]");
  EXPECT_NE(option_error("[1]").find("expected an object"), std::string::npos);
}

TEST(Options, ErrorsStateBoundsInFull) {
  constexpr OptionSpec schema[] = {
      {"size", OptionType::integer, "1", "how many", 1, 16777216, "samples"},
      {"share", OptionType::number, "1", "how much", 1e-12, 0.1234567}};
  const auto option_error = [&](const Json& options) {
    return test::error_text([&] { Options(schema, "thing", options); });
  };
  EXPECT_EQ(option_error({{"size", 16777217}}),
            "thing: option 'size' is 16777217 samples; it must lie in [1, 16777216]");
  EXPECT_EQ(option_error({{"share", 0.1234568}}),
            "thing: option 'share' is 0.1234568; it must lie in [1e-12, 0.1234567]");
}

TEST(Options, FormerNamesStillWork) {
  constexpr OptionSpec schema[] = {
      {"ema_decay", OptionType::number, "0", "a share", 0, 1, "", "", "average"},
      {"decay", OptionType::number, "0", "another", 0, 1}};
  const Options given(schema, "thing", {{"average", 0.5}});
  EXPECT_EQ(given.number("ema_decay"), 0.5);
  EXPECT_FALSE(given.json().contains("average"));
  const auto option_error = [&](const Json& options) {
    return test::error_text([&] { Options(schema, "thing", options); });
  };
  EXPECT_EQ(option_error({{"average", 0.5}, {"ema_decay", 0.5}}),
            "thing: 'average' is the former name of option 'ema_decay'; give one of them");
  EXPECT_EQ(option_error({{"average", 2}}),
            "thing: option 'ema_decay' is 2; it must lie in [0, 1]");
  EXPECT_EQ(schema_json(schema)[0]["former"], "average");
  EXPECT_FALSE(schema_json(schema)[1].contains("former"));
}

TEST(Options, WhatIsSuggestedIsNear) {
  const std::vector<std::string> stages = {"pad",           "echo",       "resize",
                                           "random_affine", "webdataset", "random_resized_crop"};
  for (const auto& [word, near] : {std::pair{"ehco", "echo"},
                                   {"webdata", "webdataset"},
                                   {"random_resize", "random_resized_crop"},
                                   {"rezise", "resize"},
                                   {"paf", "pad"},
                                   {"png", ""},
                                   {"crop", ""},
                                   {"zip", ""},
                                   {"", ""},
                                   {"affine", ""}})
    EXPECT_EQ(nearest(word, stages), near) << word;
}

TEST(NumberText, Separators) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(1234567), "1,234,567");
  EXPECT_EQ(number_text(999.96, 1), "1,000");
  EXPECT_EQ(number_text(-1234.5, 1), "-1,234.5");
}

// A program may have set the locale of its language, in which 1234.5 is "1.234,5".
TEST(Locale, NumbersDoNotFollowTheProgramsLocale) {
  TempDir dir;
  ASSERT_EQ(std::system(cat("localedef -i de_DE -f UTF-8 ", dir.path("de_DE.UTF-8")).c_str()), 0)
      << "install the package locales";
  setenv("LOCPATH", dir.path().c_str(), 1);
  std::locale::global(std::locale("de_DE.UTF-8"));  // that of C, too
  char text[16];
  std::snprintf(text, sizeof text, "%.1f", 0.5);
  std::ostringstream stream;
  stream << 12345;
  EXPECT_EQ(stream.str() + " " + text, "12.345 0,5") << "the locale of the program";
  EXPECT_EQ(cat(1234567, " ", 0.5), "1234567 0.5");
  EXPECT_EQ(format_text("%.1f %d", 1234.5, 12345), "1234.5 12345");
  EXPECT_EQ(number_text(1234.5, 1), "1,234.5");
  EXPECT_EQ(Json(0.5).dump(), "0.5");
  EXPECT_EQ(parse_json("[0.25]", "text")[0], 0.25);
  std::locale::global(std::locale::classic());
  unsetenv("LOCPATH");
}

TEST(FormatText, HasAnyLength) {
  const std::string name(1000, 'x');
  EXPECT_EQ(format_text("%s %d", name.c_str(), 7), name + " 7");
  EXPECT_EQ(format_text("%s", ""), "");
  EXPECT_EQ(format_text("%160d", 1).size(), 160u);
}

TEST(Json, ErrorsNameTheText) {
  try {
    parse_json("{\"a\": }", "job file 'x.json'");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("job file 'x.json' is not valid JSON"),
              std::string::npos);
  }
}

TEST(Platform, FilesAreReplacedWhole) {
  TempDir dir;
  const std::string path = dir.path("f"), first = "one", second = "number two";
  platform::write_file_atomic(path, std::as_bytes(std::span(first)));
  platform::write_file_atomic(path, std::as_bytes(std::span(second)));
  EXPECT_EQ(platform::read_file(path), second);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  EXPECT_THROW(platform::read_file(dir.path("none")), Error);
  EXPECT_THROW(platform::read_file(dir.path()), Error) << "a folder is no file";
}

TEST(Platform, EveryLibraryThatWasTriedIsNamed) {
  constexpr const char* kNames[] = {"libnone-a.so", "libnone-b.so"};
  try {
    platform::Library library(kNames);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("libnone-a.so"), std::string::npos);
    EXPECT_NE(text.find("libnone-b.so"), std::string::npos);
  }
}

// FIPS 180-4's examples, and RFC 4231's.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(to_hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(to_hex(hmac_sha256(std::string(131, '\xaa'),
                               "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(PackedNumbers, ComeBackAndAreShort) {
  const std::vector<uint64_t> numbers = {0, 1, 127, 128, 300, uint64_t{1} << 40, UINT64_MAX};
  EXPECT_EQ(unpack_numbers(pack_numbers(numbers)), numbers);
  EXPECT_TRUE(unpack_numbers(pack_numbers({})).empty());
  std::vector<uint64_t> many;
  Rng rng(3);
  for (int i = 0; i < 1'000'000; ++i) many.push_back(rng.below(4));
  const std::string packed = pack_numbers(many);
  EXPECT_LT(packed.size(), 500'000u);
  EXPECT_EQ(unpack_numbers(packed), many);
}

TEST(PackedNumbers, DamageIsAnError) {
  const std::string packed = pack_numbers(std::vector<uint64_t>{1, 2, 3});
  EXPECT_THROW(unpack_numbers("?"), Error);
  EXPECT_THROW(unpack_numbers(""), Error);
  EXPECT_THROW(unpack_numbers(packed.substr(0, packed.size() - 3)), Error);
}

TEST(PackedNumbers, AreBase64) {
  std::string packed;
  for (uint64_t n = 0; n < 8; ++n) {
    const std::string text = pack_numbers(std::vector<uint64_t>(n, n + 1000 * n * n));
    EXPECT_NE(text.size() % 4, 1u) << "a digit too many";
    if (text.size() % 4 == 0) packed = text;
  }
  ASSERT_FALSE(packed.empty());
  EXPECT_NO_THROW(unpack_numbers(packed));
  for (const char other : {'?', '\0', '=', '-'})
    EXPECT_THROW(unpack_numbers(packed + other), Error) << "not a digit";
}

TEST(PackedNumbers, DamageInsideIsAnError) {
  for (const char* text : {"", "AAAA",          // no frames of zstd
                           "KLUv/QBYAQAA",      // a frame that does not tell its size
                           "KLUv/aAAAAAIAQAA",  // one that promises the most, and has nothing in it
                           "KLUv/SALWQAAgICAgICAgICAgAA",  // a number of more than 64 bits
                           "KLUv/SABCQAAgA"})              // a number without its end
    EXPECT_EQ(error_text([&] { unpack_numbers(text); }), "a packed list of numbers is damaged")
        << text;
}

// Few bytes of text can stand for a list that fills the memory.
TEST(PackedNumbers, AListOfMoreThanAnyPositionHoldsIsRefused) {
  std::string packed = pack_numbers(std::vector<uint64_t>(1'000'000));
  EXPECT_EQ(unpack_numbers(packed).size(), 1'000'000u);
  EXPECT_LT(packed.size(), 200u);
  // A zstd frame without blocks that says it has 2^27 + 1 bytes.
  EXPECT_EQ(error_text([&] { unpack_numbers("KLUv/aABAAAIAQAA"); }),
            "a packed list of 134217729 bytes; at most 134217728 are read");
}

// By table 3-7 of the Unicode standard, the ends of each of its ranges.
TEST(Utf8, CharactersAreThoseOfTheStandard) {
  for (const char* text :
       {"\x01", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xe0\xbf\xbf", "\xe1\x80\x80",
        "\xec\xbf\xbf", "\xed\x80\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf",
        "\xf0\x90\x80\x80", "\xf0\xbf\xbf\xbf", "\xf1\x80\x80\x80", "\xf3\xbf\xbf\xbf",
        "\xf4\x80\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(character_length(text + std::string("\xbf")), std::string_view(text).size()) << text;
  for (const char* text :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2\x7f", "\xc2\xc0", "\xe0\x9f\x80",
        "\xe1\x80\x7f", "\xe1\x80\xc0", "\xed\xa0\x80", "\xf0\x8f\x80\x80", "\xf1\x80\x80\xc0",
        "\xf1\x80\x7f\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff\x80\x80\x80"})
    EXPECT_EQ(character_length(text), 0u) << text;
  // The end of a view may lie within a character.
  const std::string_view euro = "\xe2\x82\xac";
  const std::vector<char> alone{'\xff'};  // beyond which the address sanitizer lets nobody read
  EXPECT_EQ(character_length({alone.data(), 1}), 0u);
  EXPECT_EQ(character_length(euro.substr(0, 2)), 0u);
  EXPECT_EQ(as_utf8(euro.substr(0, 2)), "\\xE2\\x82");
  EXPECT_EQ(as_utf8(std::string("a\0\xe2\x82\xac\xff", 6)), "a\\x00\xe2\x82\xac\\xFF");
}

TEST(Json, MembersAreRemovedInOrder) {
  Json object{{"a", 1}, {"b", {{"c", 2}}}, {"a key too long to be kept in place", 3}, {"d", "x"}};
  remove_member(object, "a");
  EXPECT_EQ(object.dump(), R"({"b":{"c":2},"a key too long to be kept in place":3,"d":"x"})");
  remove_member(object, "c");
  EXPECT_EQ(object.size(), 3u);
  remove_member(object, "d");
  remove_member(object, "b");
  EXPECT_EQ(object.dump(), R"({"a key too long to be kept in place":3})");
}

TEST(Json, LongValuesAreShownInPart) {
  EXPECT_EQ(brief_json(Json{{"a", {1, 2}}}), R"({"a":[1,2]})");
  EXPECT_EQ(brief_json("\xc3\xa9\xff"), "\"\xc3\xa9\xef\xbf\xbd\"") << "UTF-8 as it is";
  EXPECT_EQ(brief_json(std::string(58, 'x')), '"' + std::string(58, 'x') + '"');
  EXPECT_EQ(brief_json(std::string(59, 'x')), '"' + std::string(59, 'x') + "...");
}

TEST(Text, MatchesPatterns) {
  for (const auto& [pattern, text] : {std::pair("", ""),
                                      {"*", ""},
                                      {"*", "abc"},
                                      {"a*", "a"},
                                      {"a*c", "abcbc"},
                                      {"*b*c*", "abbcd"},
                                      {"conv_*.weight", "conv_1.a.weight"},
                                      {"abc", "abc"}})
    EXPECT_TRUE(matches(pattern, text)) << pattern << " " << text;
  for (const auto& [pattern, text] : {std::pair("", "a"),
                                      {"a", ""},
                                      {"a*c", "abcb"},
                                      {"*b", "abc"},
                                      {"abc", "abcd"},
                                      {"a.c", "abc"}})
    EXPECT_FALSE(matches(pattern, text)) << pattern << " " << text;
}

}  // namespace
}  // namespace etr::test
