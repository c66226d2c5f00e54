// What answers about parts of remote files say, and what is refused.
#include "io/remote_answer.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

io::HttpResponse answer_of(long status, const std::string& name, const std::string& value) {
  io::HttpResponse answer;
  answer.status = status;
  answer.headers[name] = value;
  return answer;
}

uint64_t total_of(long status, const std::string& name, const std::string& value) {
  return io::state_of(answer_of(status, name, value), "a").bytes;
}

TEST(RemoteAnswer, SaysHowLongTheFileIs) {
  EXPECT_EQ(total_of(200, "content-length", "12"), 12u);
  EXPECT_EQ(total_of(206, "content-range", "bytes 0-99/1234"), 1234u);
  EXPECT_EQ(total_of(416, "content-range", "bytes */0"), 0u);
}

// What is no number would make an empty file of it.
TEST(RemoteAnswer, AnUnreadableLengthIsRefused) {
  const std::string vast(30, '9');
  for (const std::string total : {"", "*", "x", "1x", "-1"}) {
    EXPECT_THROW(total_of(206, "content-range", "bytes 0-0/" + total), Error) << total;
    EXPECT_THROW(total_of(416, "content-range", "bytes */" + total), Error) << total;
  }
  EXPECT_THROW(total_of(416, "content-range", "bytes */" + vast), Error);
  EXPECT_THROW(total_of(416, "content-range", "bytes"), Error);
  EXPECT_THROW(total_of(200, "content-length", vast), Error);
  EXPECT_EQ(error_text([&] { total_of(200, "content-length", "+1"); }),
            "'a': the server does not say how long it is ('+1')");
}

// The rest may repeat the request, with the session token of a signed address.
TEST(RemoteAnswer, OfAStoresErrorCodeAndMessageAreShown) {
  const auto shown = [](const std::string& text) {
    io::HttpResponse answer;
    for (const char c : text) answer.body.push_back(static_cast<std::byte>(c));
    return answer.body_text();
  };
  EXPECT_EQ(shown("<Error><Code>ExpiredToken</Code><Message>Too late</Message>"
                  "<Token-0>secret</Token-0></Error>"),
            "ExpiredToken: Too late");
  EXPECT_EQ(shown("<Error><Code>SlowDown</Code></Error>"), "SlowDown");
  EXPECT_EQ(shown("<html>closed\n</html>"), "<html>closed </html>");
  EXPECT_EQ(shown("<Code>cut"), "<Code>cut");
}

TEST(RemoteAnswer, AStatusLineBeginsANewResponse) {
  io::HttpResponse answer;
  for (const char* line : {"HTTP/1.1 302 Found\r\n", "Location: /b\r\n", "\r\n", "HTTP/2 206 \r\n",
                           "ETag:\t\"1\" \r\n", "retry-AFTER: 2\r\n", "no header\r\n"})
    answer.take_line(line);
  EXPECT_EQ(answer.status, 206);
  EXPECT_EQ(answer.headers,
            (std::map<std::string, std::string>{{"etag", "\"1\""}, {"retry-after", "2"}}));
  EXPECT_EQ(answer.asked_pause(), 2);
  answer.take_line("HTTP/");
  EXPECT_EQ(answer.status, 0);
  EXPECT_TRUE(answer.headers.empty());
}

}  // namespace
}  // namespace etr::test
