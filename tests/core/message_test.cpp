#include "core/message.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/log.h"

namespace etr::test {
namespace {

TEST(Message, HidesWhatSignsAnAddress) {
  EXPECT_EQ(as_message("cannot read 'https://h/a.tar?X-Amz-Date=2026&X-Amz-Signature=ab12': 403"),
            "cannot read 'https://h/a.tar?X-Amz-Date=2026&X-Amz-Signature=***': 403");
  EXPECT_EQ(as_message("https://h/a?sv=1&sig=a%2Fb%3D&se=2"), "https://h/a?sv=1&sig=***&se=2");
  EXPECT_EQ(as_message("xy://h?ACCESS_TOKEN=t;b=1#end"), "xy://h?ACCESS_TOKEN=***;b=1#end");
  EXPECT_EQ(as_message("xy://h/a?token=b=c"), "xy://h/a?token=***");
  EXPECT_EQ(as_message("(see xy://h/a?token=b), then"), "(see xy://h/a?token=***), then");
  EXPECT_EQ(as_message("'xy://h/my file?token=a b' is new"), "'xy://h/my file?token=***' is new");
  EXPECT_EQ(as_message("\"xy://h/Bob's?token=a'b\" is new"), "\"xy://h/Bob's?token=***\" is new");
}

TEST(Message, HidesUsersAndPasswords) {
  EXPECT_EQ(as_message("'http://me:p@ss@host:80/a@b'"), "'http://***@host:80/a@b'");
  EXPECT_EQ(as_message("http://a:b@h and http://c@i?q=d@e"), "http://***@h and http://***@i?q=d@e");
  EXPECT_EQ(as_message("'http://me:p/a?s#s@host/a'"), "'http://***@host/a'");
  EXPECT_EQ(as_message("http://h:80/a@b http://[::1]:80/a@b"),
            "http://h:80/a@b http://[::1]:80/a@b");
}

TEST(Message, FindsEveryAddressAndWhatIsLeftOfOne) {
  EXPECT_EQ(as_message("image=xy://u:p@h/x,label=xy://u:p@h/y"),
            "image=xy://***@h/x,label=xy://***@h/y");
  EXPECT_EQ(as_message("'https://proxy/?url=https://h/a?sig=s'"),
            "'https://proxy/?url=https://h/a?sig=***'");
  EXPECT_EQ(as_message("'a.tar?token=b' was 'c.tar?token=d'"),
            "'a.tar?token=***' was 'c.tar?token=***'");
}

TEST(Message, KeepsTheRest) {
  for (const char* text : {"", "://", "?", "s3://bucket/signature=1/a?b", "token=1, key? yes",
                           "https://h/?&=&token&page=2", "xy://h/a#b?token=c", "C://data@24/x.tar",
                           "xy://h/***?sig=***"})
    EXPECT_EQ(as_message(text), text);
  EXPECT_EQ(as_message("xy://h/\xFF?key=\xFE"), "xy://h/\\xFF?key=***");
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
