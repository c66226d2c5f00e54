#include "core/message.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/log.h"

namespace etr::test {
namespace {

std::string shown(std::string_view text) { return as_message(text); }

TEST(Message, HidesWhatSignsAnAddress) {
  EXPECT_EQ(shown("cannot read 'https://h/a.tar?X-Amz-Date=2026&X-Amz-Signature=ab12': 403"),
            "cannot read 'https://h/a.tar?X-Amz-Date=2026&X-Amz-Signature=***': 403");
  EXPECT_EQ(shown("https://h/a?sv=1&sig=a%2Fb%3D&se=2"), "https://h/a?sv=1&sig=***&se=2");
  EXPECT_EQ(shown("xy://h?ACCESS_TOKEN=t;b=1#end"), "xy://h?ACCESS_TOKEN=***;b=1#end");
  EXPECT_EQ(shown("xy://h/a?token=b=c"), "xy://h/a?token=***");
  EXPECT_EQ(shown("(see xy://h/a?token=b), then"), "(see xy://h/a?token=***), then");
  EXPECT_EQ(shown("'xy://h/my file?token=a b' is new"), "'xy://h/my file?token=***' is new");
  EXPECT_EQ(shown("\"xy://h/Bob's?token=a'b\" is new"), "\"xy://h/Bob's?token=***\" is new");
}

TEST(Message, HidesUsersAndPasswords) {
  EXPECT_EQ(shown("'http://me:p@ss@host:80/a@b'"), "'http://***@host:80/a@b'");
  EXPECT_EQ(shown("http://a:b@h and http://c@i?q=d@e"), "http://***@h and http://***@i?q=d@e");
  EXPECT_EQ(shown("'http://me:p/a?s#s@host/a'"), "'http://***@host/a'");
  EXPECT_EQ(shown("http://h:80/a@b http://[::1]:80/a@b"), "http://h:80/a@b http://[::1]:80/a@b");
}

TEST(Message, FindsEveryAddressAndWhatIsLeftOfOne) {
  EXPECT_EQ(shown("image=xy://u:p@h/x,label=xy://u:p@h/y"),
            "image=xy://***@h/x,label=xy://***@h/y");
  EXPECT_EQ(shown("'https://proxy/?url=https://h/a?sig=s'"),
            "'https://proxy/?url=https://h/a?sig=***'");
  EXPECT_EQ(shown("'a.tar?token=b' was 'c.tar?token=d'"),
            "'a.tar?token=***' was 'c.tar?token=***'");
}

TEST(Message, KeepsTheRest) {
  for (const char* text : {"", "://", "?", "s3://bucket/signature=1/a?b", "token=1, key? yes",
                           "https://h/?&=&token&page=2", "xy://h/a#b?token=c", "C://data@24/x.tar",
                           "xy://h/***?sig=***"})
    EXPECT_EQ(shown(text), text);
  EXPECT_EQ(shown("xy://h/\xFF?key=\xFE"), "xy://h/\\xFF?key=***");
}

TEST(Message, IsWhatAnErrorSays) {
  EXPECT_STREQ(Error(Code::io, "xy://u:p@h").what(), "xy://***@h");
  // The bindings raise the program's own exception again, which they find by its words.
  EXPECT_STREQ(Error(Code::callback, "xy://u:p@h").what(), "xy://u:p@h");
  EXPECT_EQ(brief_json(Json("xy://user:" + std::string(100, 'p') + "@h")), R"("xy://***@h")");
}

TEST(Message, IsWhatTheLogSays) {
  std::string line;
  set_log_hook([&](LogLevel, const char* text) { line = text; });
  log_line(LogLevel::info, "xy://u:p@h");
  set_log_hook(nullptr);
  EXPECT_EQ(line, "xy://***@h");
}

}  // namespace
}  // namespace etr::test
