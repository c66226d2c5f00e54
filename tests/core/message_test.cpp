#include "core/message.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace etr::test {
namespace {

TEST(Message, HidesWhatSignsAnAddress) {
  EXPECT_EQ(as_message("cannot read 'https://h/a.tar?X-Amz-Date=2026&X-Amz-Signature=ab12': 403"),
            "cannot read 'https://h/a.tar?X-Amz-Date=2026&X-Amz-Signature=***': 403");
  EXPECT_EQ(as_message("https://h/a?sv=1&sig=a%2Fb%3D&se=2"), "https://h/a?sv=1&sig=***&se=2");
  EXPECT_EQ(as_message("x://h?ACCESS_TOKEN=t;b=1#end"), "x://h?ACCESS_TOKEN=***;b=1#end");
  EXPECT_EQ(as_message("x://h/a?token=b=c"), "x://h/a?token=***");
}

TEST(Message, HidesUsersAndPasswords) {
  EXPECT_EQ(as_message("'http://me:p@ss@host:80/a@b'"), "'http://***@host:80/a@b'");
  EXPECT_EQ(as_message("http://a:b@h and http://c@i?q=d@e"), "http://***@h and http://***@i?q=d@e");
}

TEST(Message, KeepsTheRest) {
  for (const char* text : {"", "://", "s3://bucket/signature=1/a?b", "https://h/?&=&token&page=2",
                           "x://h/a#b?token=c", "token=1 a?token=2", "x://h/***?sig=***"})
    EXPECT_EQ(as_message(text), text);
  EXPECT_EQ(as_message("x://h/\xFF?key=\xFE"), "x://h/\\xFF?key=***");
}

TEST(Message, IsWhatAnErrorSays) { EXPECT_STREQ(Error(Code::io, "x://u:p@h").what(), "x://***@h"); }

}  // namespace
}  // namespace etr::test
