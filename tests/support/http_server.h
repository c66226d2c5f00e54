// A small HTTP server.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace etr::test {

// Serves files from memory, or whatever a function answers, on the loopback and closes each
// connection.
class HttpServer {
 public:
  // In the ranges that are asked for; as a whole; as a whole without telling its length.
  enum class Answers { in_ranges, whole, chunked };

  // `files`: contents by path, "/x.txt".
  explicit HttpServer(std::map<std::string, std::string> files,
                      Answers answers = Answers::in_ranges)
      : HttpServer([files = std::move(files), answers](const std::string& request) {
          return answer_to(request, files, answers);
        }) {}
  // Sends what `answer` returns for a request's head, byte for byte. One call at a time.
  explicit HttpServer(std::function<std::string(const std::string&)> answer)
      : answer_(std::move(answer)) {
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
  ~HttpServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  std::string address() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // From now on it waits half a second for so many clients before it answers one.
  void wait_for(size_t clients) { wait_for_ = clients; }
  int requests() const { return requests_; }
  size_t most_together() const { return most_together_; }  // clients that waited at the same time

 private:
  void serve() {
    std::vector<int> clients;
    while (accept_some(clients)) {
      most_together_ = std::max(most_together_.load(), clients.size());
      for (const int client : clients) {
        serve(client);
        ::close(client);
      }
      clients.clear();
    }
  }

  bool accept_some(std::vector<int>& clients) {
    pollfd waiting{listener_, POLLIN, 0};
    do {
      const int client = ::accept(listener_, nullptr, nullptr);
      if (client < 0) break;
      clients.push_back(client);
    } while (clients.size() < wait_for_ && ::poll(&waiting, 1, 500) > 0);
    return !clients.empty();
  }

  void serve(int client) {
    std::string request;
    char bytes[2048];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = ::recv(client, bytes, sizeof bytes, 0);
      if (n <= 0) break;
      request.append(bytes, static_cast<size_t>(n));
    }
    if (!request.ends_with("\r\n\r\n")) return;
    ++requests_;
    const std::string answer = answer_(request);
    ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
  }

  static std::string answer_to(const std::string& request,
                               const std::map<std::string, std::string>& files, Answers answers) {
    const size_t path = request.find(' ') + 1;
    const auto file = files.find(request.substr(path, request.find(' ', path) - path));
    if (file == files.end())
      return "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    const std::string& text = file->second;
    if (answers == Answers::chunked) {
      char size[20];
      std::snprintf(size, sizeof size, "%zx\r\n", text.size());
      return "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nConnection: close\r\n"
             "Transfer-Encoding: chunked\r\n\r\n" +
             (size + text) + "\r\n0\r\n\r\n";
    }
    size_t begin = 0, end = text.size() - 1;
    const size_t range = answers == Answers::in_ranges ? request.find("bytes=") : std::string::npos;
    const bool part = range != std::string::npos;
    if (part) std::sscanf(request.c_str() + range, "bytes=%zu-%zu", &begin, &end);
    end = std::min(end, text.size() - 1);
    std::string head = part ? "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " +
                                  std::to_string(begin) + "-" + std::to_string(end) + "/" +
                                  std::to_string(text.size()) + "\r\n"
                            : "HTTP/1.1 200 OK\r\n";
    head +=
        "ETag: \"1\"\r\nConnection: close\r\nContent-Length: " + std::to_string(end - begin + 1) +
        "\r\n\r\n";
    if (request.starts_with("HEAD")) return head;
    return head + text.substr(begin, end - begin + 1);
  }

  const std::function<std::string(const std::string&)> answer_;
  std::atomic<size_t> wait_for_{1};
  std::atomic<int> requests_{0};
  std::atomic<size_t> most_together_{0};
  const int listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
  std::thread thread_;
};

}  // namespace etr::test
