// Each call on a socket fails once while ranks find each other through a store.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "core/error.h"
#include "core/platform_socket.h"
#include "exchange/store.h"
#include "failing/system_calls.h"

namespace etr::failing {
namespace {

// A place at which nobody listens.
std::string free_place() {
  const platform::Descriptor socket = platform::listen_at("127.0.0.1", "0");
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(socket.number(), reinterpret_cast<sockaddr*>(&address), &size);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

TEST(FailingNetwork, IsAnErrorOfTheStore) {
  const std::string place = free_place();
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
