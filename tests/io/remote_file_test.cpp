// What is asked of servers about remote files, and what is made of their answers.
#include "io/remote_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "io/pieces.h"
#include "support/error_text.h"
#include "support/http_server.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

using Answers = HttpServer::Answers;

// A server that knows no ranges sends the file, which would not fit into the budget.
TEST(RemoteState, IsAskedForWithoutReadingTheFile) {
  const std::map<std::string, std::string> files{{"/a", std::string(300'000, 'x')}, {"/b", "b"}};
  io::RemoteOptions options;
  options.budget_bytes = 1000;
  for (const Answers answers : {Answers::in_ranges, Answers::whole, Answers::chunked}) {
    const HttpServer server(files, answers);
    const std::string paths[] = {server.address() + "/a", "/local", server.address() + "/b"};
    const auto states = io::ask_remote(paths, options);
    ASSERT_EQ(states.size(), 3u);
    EXPECT_FALSE(states[1]);
    EXPECT_EQ(server.requests(), 2);
    if (answers == Answers::chunked) {
      EXPECT_FALSE(states[0]) << "nobody knows its length";
      continue;
    }
    ASSERT_TRUE(states[0] && states[2]);
    EXPECT_EQ(states[0]->bytes, 300'000u);
    EXPECT_EQ(states[2]->bytes, 1u);
    EXPECT_NE(states[0]->version.find("\"1\""), std::string::npos);
  }
}

// One that is missing ends the asking for all.
TEST(RemoteState, SaysWhichFileIsMissing) {
  const HttpServer server({{"/a", "a"}}, Answers::in_ranges);
  std::vector<std::string> paths(20, server.address() + "/a");
  paths[7] = server.address() + "/b";
  EXPECT_EQ(error_text([&] { io::ask_remote(paths, {}); }),
            "'" + paths[7] + "' does not exist (404)");
}

// A part of a file that has one, in chunks.
TEST(RemoteState, APartNeedNotTellItsOwnLength) {
  const HttpServer server([](const std::string&) {
    return std::string(
        "HTTP/1.1 206 X\r\nConnection: close\r\nContent-Range: bytes 0-0/25\r\n"
        "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
  });
  const std::string paths[] = {server.address() + "/a"};
  const auto states = io::ask_remote(paths, {});
  ASSERT_TRUE(states[0]);
  EXPECT_EQ(states[0]->bytes, 25u);
}

TEST(RemoteState, AskingCanBeCancelled) {
  const HttpServer server({{"/a", std::string("a")}});
  const std::string paths[] = {server.address() + "/a"};
  EXPECT_EQ(error_text([&] { io::ask_remote(paths, {.cancelled = [] { return true; }}); }),
            "reading '" + paths[0] + "' was cancelled");
}

// An answer to a request for a part, right as it is made.
struct Part {
  size_t begin = 0;
  std::string status = "206 Partial Content", range, body, etag = "\"1\"", modified = "today";
};

// Reads a file of 25 bytes in parts of 10 from a server that `change`s its answers.
std::string read_in_parts(const std::function<void(Part&)>& change) {
  const std::string content = "abcdefghijklmnopqrstuvwxy";
  const HttpServer server([&](const std::string& request) {
    Part part;
    size_t last = 0;
    std::sscanf(request.c_str() + request.find("bytes="), "bytes=%zu-%zu", &part.begin, &last);
    part.body = content.substr(std::min(part.begin, content.size()), last + 1 - part.begin);
    part.range = cat("bytes ", part.begin, "-", part.begin + part.body.size() - 1, "/25");
    change(part);
    return cat("HTTP/1.1 ", part.status,
               "\r\nConnection: close\r\nContent-Length: ", part.body.size(),
               "\r\nETag: ", part.etag, "\r\nLast-Modified: ", part.modified,
               part.range.empty() ? "" : "\r\nContent-Range: ", part.range, "\r\n\r\n", part.body);
  });
  const std::string address = server.address() + "/a";
  try {
    const auto pieces =
        io::open_remote(address, {.connections = 2, .part_bytes = 10, .retries = 0});
    std::string out;
    while (true) {
      const io::Block block = pieces->next();
      if (block.size == 0) break;
      out.append(reinterpret_cast<const char*>(block.data.get()), block.size);
    }
    EXPECT_EQ(out, content.substr(0, out.size()));
    return cat(out.size(), " bytes");
  } catch (const Error& error) {
    const std::string text = error.what();
    const size_t at = text.find("'" + address + "'");
    EXPECT_NE(at, std::string::npos) << text;
    return text.substr(at + address.size() + 2);
  }
}

TEST(RemoteFile, IsReadInParts) {
  EXPECT_EQ(read_in_parts([](Part&) {}), "25 bytes");
  EXPECT_EQ(read_in_parts([](Part& part) {
              if (part.begin > 0) part.range.replace(part.range.size() - 2, 2, "*");
            }),
            "25 bytes")
      << "the length was told before";
  EXPECT_EQ(read_in_parts([](Part& part) { part.range.replace(0, 5, "BYTES"); }), "25 bytes");
  EXPECT_EQ(read_in_parts([](Part& part) {
              part.status = "200 OK", part.body = "abcdefghijklmnopqrstuvwxy", part.range = "";
            }),
            "25 bytes")
      << "of a server that knows no ranges";
  EXPECT_EQ(read_in_parts([](Part& part) {
              part.status = "416 X", part.range = "bytes */0", part.body = "none";
            }),
            "0 bytes");
}

// Of more parts than are read ahead; the second time, the server is only asked for the version.
TEST(RemoteFile, IsKeptInTheCache) {
  const TempDir dir;
  std::string content;
  for (int i = 0; i < 300; ++i) content += static_cast<char>(i * i);
  const HttpServer server({{"/291", content.substr(0, 291)}, {"/300", content}});
  const io::RemoteOptions options{
      .connections = 1, .part_bytes = 10, .cache_dir = dir.path("cache"), .cache_bytes = 1000};
  int asked = 0;
  for (const size_t bytes : {291, 300})
    for (const int requests : {31, 1}) {
      const auto pieces = io::open_remote(cat(server.address(), "/", bytes), options);
      std::string out;
      for (io::Block block = pieces->next(); block.size > 0; block = pieces->next())
        out.append(reinterpret_cast<const char*>(block.data.get()), block.size);
      EXPECT_TRUE(out == content.substr(0, bytes)) << bytes;
      EXPECT_EQ(server.requests(), asked += requests) << bytes;
    }
}

TEST(RemoteFile, IsReadByPositionFromTheCacheOnly) {
  EXPECT_NE(error_text([] { io::fetch_remote("http://a/b", {}); })
                .find("set the pipeline's "
                      "remote_cache_dir"),
            std::string::npos);
}

TEST(RemoteFile, HasTheLengthThatWasTold) {
  const TempDir dir;
  const HttpServer server({{"/a", std::string(25, 'x')}}, Answers::whole);
  const std::string path = server.address() + "/a";
  const io::RemoteOptions options{.cache_dir = dir.path("cache"), .cache_bytes = 1000};
  EXPECT_EQ(error_text([&] {
              io::fetch_remote(path, options, io::RemoteState{5, "\"1\" "});
            }),
            "'" + path + "': the server sent 25 bytes, and said before that it has 5");
  EXPECT_EQ(error_text([&] {
              io::fetch_remote(path, options, io::RemoteState{25, "\"2\" "});
            }),
            "'" + path + "' was changed while it was read");
}

TEST(RemoteFile, PartsBelongTogether) {
  const auto later = [](const std::function<void(Part&)>& change) {
    return read_in_parts([&](Part& part) {
      if (part.begin == 10) change(part);
    });
  };
  const std::string changed = " was changed while it was read";
  EXPECT_EQ(later([](Part& part) { part.etag = "\"2\""; }), changed);
  EXPECT_EQ(later([](Part& part) { part.modified = "now"; }), changed);
  EXPECT_EQ(later([](Part& part) { part.status = "200 OK"; }),
            ": the server stopped answering by ranges");
  EXPECT_EQ(later([](Part& part) { part.status = "416 X"; }),
            ": the server says that it ends before byte 10 and that it has 25 bytes");
  for (const char* range :
       {"bytes 11-20/25", "bytes 10-18/25", "bytes 10-19/26", "bytes 10-19/", "bytes 10-19", ""})
    EXPECT_EQ(later([&](Part& part) { part.range = range; }),
              cat(": asked for bytes 10 to 19 of 25, the server sent 10 bytes as '", range, "'"));
  EXPECT_EQ(later([](Part& part) { part.body.pop_back(); }),
            ": asked for bytes 10 to 19 of 25, the server sent 9 bytes as 'bytes 10-19/25'");
}

TEST(RemoteFile, ItsLengthIsANumber) {
  for (const char* range : {"", "25", "bytes 0-9", "bytes 0-9/", "bytes 0-9/x", "bytes 0-9/25x",
                            "bytes 0-9/*", "bytes 0-9/4611686018427387905"})
    EXPECT_EQ(read_in_parts([&](Part& part) { part.range = range; }),
              cat(": the server does not say how long it is ('", range, "')"));
  EXPECT_EQ(read_in_parts([](Part& part) {
              part.range = "bytes 0-9/4611686018427387904";
            }).find(": asked for bytes 10 to 19 of 4611686018427387904"),
            0u);
  EXPECT_EQ(read_in_parts([](Part& part) { part.status = "416 X", part.range = "bytes */1"; }),
            ": the server says that it ends before byte 0 and that it has 1 bytes");
}

TEST(RemoteFile, SaysWhatTheServerAnswers) {
  const auto said = [](const char* status) {
    return read_in_parts([&](Part& part) { part.status = status; });
  };
  EXPECT_EQ(said("404 X"), " does not exist (404)");
  for (const char* status : {"401", "403"})
    EXPECT_EQ(said(status), cat(": access denied: ", status, " abcdefghij"));
  for (const char* status : {"201", "204", "301", "307", "400", "402"})
    EXPECT_EQ(said(status).find(cat(": the server answers ", status)), 0u) << said(status);
}

}  // namespace
}  // namespace etr::test
