// Each call on a socket fails once while data is read over the network: the same bytes, because
// requests are repeated, or an error that names the address.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "failing/system_calls.h"
#include "failing/workloads.h"

namespace etr::failing {
namespace {

// Serves one text at every path, in the ranges that are asked for, and closes each connection.
class Server {
 public:
  explicit Server(std::string text) : text_(std::move(text)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener_, 64) != 0)
      ADD_FAILURE() << "no port to listen at";
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  std::string address() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  void serve() {
    for (int client; (client = ::accept(listener_, nullptr, nullptr)) >= 0; ::close(client)) {
      std::string request;
      char bytes[2048];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t n = ::recv(client, bytes, sizeof bytes, 0);
        if (n <= 0) break;
        request.append(bytes, static_cast<size_t>(n));
      }
      const std::string answer = answer_to(request);
      ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  std::string answer_to(const std::string& request) const {
    size_t begin = 0, end = text_.size() - 1;
    const size_t range = request.find("bytes=");
    const bool part = range != std::string::npos;
    if (part) std::sscanf(request.c_str() + range, "bytes=%zu-%zu", &begin, &end);
    end = std::min(end, text_.size() - 1);
    std::string head = part ? "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " +
                                  std::to_string(begin) + "-" + std::to_string(end) + "/" +
                                  std::to_string(text_.size()) + "\r\n"
                            : "HTTP/1.1 200 OK\r\n";
    head +=
        "ETag: \"1\"\r\nConnection: close\r\nContent-Length: " + std::to_string(end - begin + 1) +
        "\r\n\r\n";
    if (request.starts_with("HEAD")) return head;
    return head + text_.substr(begin, end - begin + 1);
  }

  const std::string text_;
  const int listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
  std::thread thread_;
};

TEST(FailingNetwork, IsAnErrorOrTriedAgain) {
  std::string text;
  for (int i = 10000; i < 30000; ++i) text += "line " + std::to_string(i) + "\n";
  const Server server(text);
  SystemCalls system(Calls::network);
  const std::string spec =
      R"({"remote_part_bytes": 65536, "stages": [{"stage": "text_lines", "pattern": ")" +
      server.address() + R"(/lines.txt"}, {"stage": "batch", "size": 1000}]})";
  const auto read = [&](std::string& results) -> int32_t {
    Pipeline pipeline;
    ETR_TRY(etr_pipeline_create_from_json(spec.c_str(), &pipeline.p));
    while (true) {
      Batch batch;
      const int32_t status = etr_pipeline_next(pipeline.p, &batch.p);
      ETR_TRY(status);
      if (status == ETR_END) return ETR_OK;
      ETR_TRY(append_fields(batch.p, results));
    }
  };
  const auto after = [&](const Outcome& outcome) {
    const bool named = outcome.message.find(server.address()) != std::string::npos;
    EXPECT_TRUE(outcome.status == ETR_OK || named) << "the error names no address";
  };
  fail_everywhere(system, through_c(read),
                  {.statuses = {ETR_IO, ETR_OUT_OF_MEMORY}, .after = after, .runs = 60});
}

}  // namespace
}  // namespace etr::failing
