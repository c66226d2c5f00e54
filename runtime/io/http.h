// HTTP(S) downloads with limits, retries and certificate verification, by libcurl.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/http_response.h"

namespace etr::io {

struct RemoteOptions {
  int connections = 4;              // concurrent requests per file
  uint64_t part_bytes = 4 << 20;    // bytes per request
  int retries = 5;                  // per request, with growing pauses
  double low_speed_s = 30;          // a request slower than 1 KiB/s for this long fails
  double timeout_s = 0;             // per request; 0: none
  std::string cache_dir;            // directory of the disk cache; "": none
  uint64_t cache_bytes = 0;         // size limit of the disk cache
  uint64_t budget_bytes = 0;        // limit for a file that a server sends in one piece; 0: none
  std::function<bool()> cancelled;  // polled often; true cancels

  // Parts of a file that are requested or wait, besides the one that was handed out last.
  uint64_t parts_ahead() const { return 2 * static_cast<uint64_t>(connections); }
};

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  // Must be false for signed requests: the signature covers the host name.
  bool follow_redirects = true;
  bool keep_path = false;    // sends "/../" and "/./" as they are
  bool only_length = false;  // leaves out the body of an answer 200, which is a whole file
};

// A keep-alive connection. For one thread at a time.
class HttpConnection {
 public:
  explicit HttpConnection(const RemoteOptions& options);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Sends a GET request. `make` is called for each attempt, because signatures contain the time.
  // Retries after broken connections, time-outs, 408, 429 and 5xx; returns other statuses. The
  // pauses before the retries grow, or are as long as the server asks for, but at most 30 s. Throws
  // - Error(io), which names the URL, the failure and the number of attempts, or says that the
  //   answer may be incomplete, because its length is unknown;
  // - Error(cancelled);
  // - Error(unsupported) for a body of more than `max_body` bytes. `limit` names this limit.
  HttpResponse get(const std::function<HttpRequest()>& make, uint64_t max_body, const char* limit);

 private:
  struct State;
  HttpResponse try_once(const HttpRequest& request, uint64_t max_body, const char* limit);
  void pause(int tries, double asked) const;

  const RemoteOptions& options_;
  std::unique_ptr<State> state_;
};

}  // namespace etr::io
