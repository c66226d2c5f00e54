// What is asked of servers about remote files.
#include "io/remote_file.h"

#include <gtest/gtest.h>

#include "support/error_text.h"
#include "support/http_server.h"

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

}  // namespace
}  // namespace etr::test
