// What is made of the answers of HTTP servers.
#include "io/http.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/error.h"
#include "support/error_text.h"
#include "support/http_server.h"

namespace etr::test {
namespace {

// An answer whose length is told.
std::string answer(const std::string& status, const std::string& body = "",
                   const std::string& headers = "") {
  return cat("HTTP/1.1 ", status, "\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n",
             headers, "\r\n", body);
}

// Without a pause, which would take longer than the tests.
std::string busy(const std::string& status) {
  return answer(status, "try later", "Retry-After: 0.01\r\n");
}

std::string text_of(const io::HttpResponse& response) {
  return {reinterpret_cast<const char*>(response.body.data()), response.body.size()};
}

class Http : public testing::Test {
 protected:
  // Requests `path` once the server has been made.
  io::HttpResponse get(const HttpServer& server, const std::string& path = "/") {
    io::HttpRequest request = request_;
    request.url = server.address() + path;
    io::HttpConnection connection(options_);
    return connection.get([&] { return request; }, most_, "the test's");
  }
  io::HttpResponse get_answer(const std::string& answer, const std::string& path = "/") {
    const HttpServer server([&](const std::string&) { return answer; });
    return get(server, path);
  }
  std::string said(const std::string& answer, const std::string& path = "/") {
    return error_text([&] { get_answer(answer, path); });
  }

  io::RemoteOptions options_{.retries = 2};
  io::HttpRequest request_;
  uint64_t most_ = 1000;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Http, AsksAsItIsTold) {
  std::string heard;
  const HttpServer server([&](const std::string& request) {
    heard = request;
    return answer("200 OK", "body");
  });
  request_.headers = {"Range: bytes=1-2", "X-One: 1"};
  EXPECT_EQ(text_of(get(server, "/a/../b")), "body");
  EXPECT_TRUE(heard.starts_with("GET /b HTTP/1.1\r\n")) << heard;
  for (const char* part : {"\r\nUser-Agent: echotrain\r\n", "\r\nRange: bytes=1-2\r\n", "X-One: 1"})
    EXPECT_TRUE(has(heard, part)) << heard;
  request_.keep_path = true;
  get(server, "/a/../b");
  EXPECT_TRUE(heard.starts_with("GET /a/../b HTTP/1.1\r\n")) << heard;
}

TEST_F(Http, TriesAgainWhatMayPass) {
  for (const char* status : {"408 Request Timeout", "429 Too Many Requests", "500 Broken",
                             "503 Service Unavailable", "cut", "silent"}) {
    int number = 0;
    const std::string first = status == std::string("cut") ? answer("200 OK", "abc").substr(0, 59)
                              : status == std::string("silent") ? ""
                                                                : busy(status);
    const HttpServer server(
        [&](const std::string&) { return ++number < 3 ? first : answer("200 OK", "abc"); });
    EXPECT_EQ(text_of(get(server)), "abc") << status;
    EXPECT_EQ(server.requests(), 3) << status;
  }
}

TEST_F(Http, GivesUpAfterItsTries) {
  const HttpServer server([&](const std::string&) { return busy("503 Busy"); });
  EXPECT_EQ(error_text([&] { get(server); }), cat("cannot read '", server.address(),
                                                  "/': the server answers 503 try later (tried 3 "
                                                  "times); it may be overloaded: lower "
                                                  "'remote_connections' or raise "
                                                  "'remote_retries'"));
  EXPECT_EQ(server.requests(), 3);
}

TEST_F(Http, WaitsAsLongAsTheServerAsks) {
  const auto seconds = [&](const char* wanted) {
    const HttpServer server([&](const std::string&) {
      return answer("503 Busy", "", cat("Retry-After: ", wanted, "\r\n"));
    });
    const auto began = std::chrono::steady_clock::now();
    error_text([&] { get(server); });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  options_.retries = 1;
  EXPECT_GE(seconds("0.5"), 0.5);
  options_.retries = 6;
  const double unasked = seconds("soon");  // 0.1, 0.2, 0.4 ... 3.2 at least
  EXPECT_GE(unasked, 6.3);
  EXPECT_LT(seconds("0.001"), 3);
}

TEST_F(Http, APauseCanBeCancelled) {
  std::atomic<bool> answered = false;
  options_.cancelled = [&] { return answered.load(); };
  const HttpServer server([&](const std::string&) {
    answered = true;
    return answer("503 Busy", "", "Retry-After: 30\r\n");
  });
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(has(error_text([&] { get(server); }), "cancelled"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

TEST_F(Http, SilenceHasALimit) {
  options_.retries = 0;
  options_.timeout_s = 0.1;
  const HttpServer server([](const std::string&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return answer("200 OK");
  });
  const std::string text = error_text([&] { get(server); });
  EXPECT_TRUE(has(text, "timed out") && has(text, "(tried 1 times)")) << text;
}

TEST_F(Http, OtherStatusesAreTheCallers) {
  for (const long status : {201L, 206L, 300L, 304L, 400L, 404L, 409L, 416L, 428L, 430L, 499L}) {
    const HttpServer server(
        [&](const std::string&) { return answer(cat(status, " X"), status == 304 ? "" : "body"); });
    EXPECT_EQ(get(server).status, status);
    EXPECT_EQ(server.requests(), 1) << status;
  }
}

TEST_F(Http, HeadersAreTrimmedAndThoseOfTheLastAnswer) {
  int number = 0;
  const HttpServer server([&](const std::string&) {
    return ++number == 1 ? answer("302 Found", "old", "Location: /b\r\nX-Old: 1\r\n")
                         : answer("200 OK", "new", "X-New: \t a: b \t\r\n");
  });
  const io::HttpResponse response = get(server);
  EXPECT_EQ(text_of(response), "new");
  EXPECT_EQ(response.header("x-new"), "a: b");
  EXPECT_EQ(response.header("x-old"), "");
}

TEST_F(Http, RedirectsHaveALimit) {
  int redirects = 0;
  std::atomic<int> left = 5;
  const HttpServer server([&](const std::string&) {
    ++redirects;
    return left-- > 0 ? answer("302 Found", "", "Location: /\r\n") : answer("200 OK", "here");
  });
  EXPECT_EQ(text_of(get(server)), "here");
  EXPECT_EQ(redirects, 6);
  left = 6;
  EXPECT_TRUE(has(error_text([&] { get(server); }), "redirects"));
  left = 1;
  request_.follow_redirects = false;
  EXPECT_EQ(get(server).status, 302);
}

TEST_F(Http, ABodyHasALimit) {
  most_ = 10;
  EXPECT_EQ(text_of(get_answer(answer("200 OK", "0123456789"))), "0123456789");
  EXPECT_TRUE(has(said(answer("200 OK", "0123456789a")),
                  "': an answer of more than 10 bytes; the limit is the test's"));
  // An error may say more, 64 KiB of which are read.
  const std::string chunk(32 << 10, 'x');
  EXPECT_EQ(get_answer(answer("404 No", chunk + chunk)).body.size(), 64u << 10);
  const io::HttpResponse longer = get_answer(answer("404 No", chunk + chunk + chunk));
  EXPECT_LE(longer.body.size(), 64u << 10);
  EXPECT_GT(longer.body.size(), 0u);
}

// libcurl discards the body of a redirect, which has the limit of what comes around a body.
TEST_F(Http, WhatLiesAroundABodyHasALimit) {
  most_ = 10;
  const auto redirect = [&](size_t bytes) {
    int number = 0;
    const HttpServer server([&](const std::string&) {
      return ++number == 1 ? cat("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: ", bytes,
                                 "\r\n\r\n", std::string(bytes, 'x'))
                           : answer("200 OK", "here");
    });
    return error_text([&] { EXPECT_EQ(text_of(get(server)), "here"); });
  };
  EXPECT_EQ(redirect(1 << 20), "");
  EXPECT_TRUE(has(redirect(2 << 20), "an answer of more than 10 bytes")) << redirect(2 << 20);
  std::string headers;
  while (headers.size() < (1 << 20))
    headers += cat("X-", headers.size(), ": ", std::string(900, 'x'), "\r\n");
  const std::string text = said(answer("200 OK", "", headers));
  EXPECT_TRUE(has(text, "headers without an end") || has(text, "header")) << text;
  EXPECT_EQ(said(answer("200 OK", "", headers.substr(0, headers.find("X-200")))), "");
}

TEST_F(Http, OnlyALengthIsReadWithoutItsFile) {
  request_.only_length = true;
  most_ = 1;
  const io::HttpResponse whole = get_answer(answer("200 OK", std::string(5000, 'x')));
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.header("content-length"), "5000");
  EXPECT_EQ(whole.body.size(), 0u);
  EXPECT_EQ(text_of(get_answer(answer("206 Partial Content", "x"))), "x");
  EXPECT_EQ(text_of(get_answer(answer("404 No", "none"))), "none");
}

TEST_F(Http, WhatAServerSaysIsShownAsAscii) {
  const io::HttpResponse response =
      get_answer(answer("404 No", "\x1f \x7f\xc3~" + std::string(400, '!'), "X-A: b\tc\r\n"));
  EXPECT_EQ(response.body_text(), "    ~" + std::string(295, '!'));
  EXPECT_EQ(response.header_text("x-a"), "b c");
}

TEST_F(Http, AnAnswerTellsItsLength) {
  const std::string open = "\r\nConnection: close\r\n";
  EXPECT_TRUE(has(said("HTTP/1.1 200 OK" + open + "\r\nbody"), "comes without Content-Length"));
  EXPECT_TRUE(has(said("HTTP/1.0 200 OK" + open + "\r\nbody"), "comes without Content-Length"));
  EXPECT_EQ(said("HTTP/1.1 404 No" + open + "\r\nbody"), "") << "an error need not be whole";
  EXPECT_EQ(
      said("HTTP/1.1 200 OK" + open + "Transfer-Encoding: Chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
      "");
}

TEST_F(Http, ACodingIsTheFilesOwn) {
  const auto said_of = [&](const std::string& path, const std::string& coding,
                           const std::string& status = "200 OK") {
    return said(answer(status, "x", "Content-Encoding: " + coding + "\r\n"), path);
  };
  for (const auto& [path, coding] : {std::pair("/a", "identity"),
                                     {"/a.gz", "gzip"},
                                     {"/a.TGZ?b=c", "GZip"},
                                     {"/a.gz#b", "x-gzip"},
                                     {"/a.zst", "zstd"},
                                     {"/a.tzst", "zstd"}})
    EXPECT_EQ(said_of(path, coding), "") << path << " " << coding;
  for (const auto& [path, coding] : {std::pair("/a", "gzip"),
                                     {"/a.gz", "br"},
                                     {"/a.zst", "gzip"},
                                     {"/a.gz", "zstd"},
                                     {"/a?x.gz", "gzip"},
                                     {"/a", "zstd"}})
    EXPECT_TRUE(has(said_of(path, coding),
                    cat("comes with Content-Encoding '", coding, "', which was not requested")))
        << path << " " << coding;
  EXPECT_EQ(said_of("/a", "gzip", "300 X"), "") << "of an error nobody reads it";
}

}  // namespace
}  // namespace etr::test
