// Each call on a socket fails once while data is read over the network: the same bytes, because
// requests are repeated, or an error that names the address.
#include <gtest/gtest.h>

#include "failing/system_calls.h"
#include "failing/workloads.h"
#include "support/http_server.h"

namespace etr::failing {
namespace {

TEST(FailingNetwork, IsAnErrorOrTriedAgain) {
  std::string text;
  for (int i = 10000; i < 30000; ++i) text += "line " + std::to_string(i) + "\n";
  const test::HttpServer server({{"/lines.txt", text}});
  SystemCalls system(Calls::network);
  const std::string spec =
      R"({"remote_part_bytes": 65536, "stages": [{"stage": "text_lines", "pattern": ")" +
      server.address() + R"(/lines.txt"}, {"stage": "batch", "size": 1000}]})";
  const auto read = [&](std::string& results) { return read_epochs(spec, results, 1); };
  const auto after = [&](const Outcome& outcome) {
    const bool named = outcome.message.find(server.address()) != std::string::npos;
    EXPECT_TRUE(outcome.status == ETR_OK || named) << "the error names no address";
  };
  fail_everywhere(system, read,
                  {.statuses = {ETR_IO, ETR_OUT_OF_MEMORY}, .after = after, .runs = 60});
}

}  // namespace
}  // namespace etr::failing
