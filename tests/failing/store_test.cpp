// Each call on a socket fails once while ranks find each other through a store.
#include <gtest/gtest.h>

#include "core/error.h"
#include "exchange/store.h"
#include "failing/system_calls.h"
#include "support/free_port.h"

namespace etr::failing {
namespace {

TEST(FailingNetwork, IsAnErrorOfTheStore) {
  const std::string place = cat("127.0.0.1:", test::free_port());
  const auto meet = [&](std::string& results) -> Outcome {
    try {
      const auto first = exchange::tcp_store(place, true, 6);
      const auto second = exchange::tcp_store(place, false, 6);
      first->set("a", std::string(5000, 'x'));
      results += second->get("a").value_or("none");
      results += second->create("b", "1") ? "made" : "there";
      results += first->create("b", "2") ? "made" : "there";
      return {};
    } catch (const Error& error) {
      return {static_cast<int>(error.code()), error.what()};
    }
  };
  SystemCalls system(Calls::network);
  fail_everywhere(
      system, meet,
      {.statuses = {static_cast<int>(Code::io), static_cast<int>(Code::rank_lost)}, .runs = 0});
}

}  // namespace
}  // namespace etr::failing
