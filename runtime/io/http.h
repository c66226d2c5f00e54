// Reading over HTTP(S): requests with limits, retries, and certificates verified. By libcurl.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace etr::io {

struct RemoteOptions {
  int connections = 4;            // requests in flight for one file
  uint64_t part_bytes = 4 << 20;  // of one request
  int retries = 5;                // of one request, with growing pauses
  double low_speed_s = 30;        // a request below 1 KiB/s for so long has failed
  double timeout_s = 0;           // of one request; 0: none
  std::string cache_dir;          // keeps what was read; "": none
  uint64_t cache_bytes = 0;       // of all in it
  uint64_t budget_bytes =
      0;  // for a file that comes in one piece, as some servers send it; 0: none
  std::function<bool()> cancelled;  // asked often: ends what is going on
};

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  // A signed request must not follow one: the signature names the host.
  bool follow_redirects = true;
};

struct HttpResponse {
  long status = 0;
  std::map<std::string, std::string> headers;  // names are lower-case
  std::vector<std::byte> body;

  std::string header(const std::string& name) const;
  std::string body_text() const;  // the begin, for errors
};

// A connection that is kept open between requests. One thread at a time.
class HttpConnection {
 public:
  explicit HttpConnection(const RemoteOptions& options);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // A GET. `make` is called for each try: signatures carry the time. Tries again after broken connections,
  // time-outs, 408, 429 and 5xx; other statuses are returned. Throws Error(io) that names the URL, what happened
  // and how often it was tried, Error(cancelled), and Error(unsupported) for a body beyond `max_body`, whose
  // limit `limit` names.
  HttpResponse get(const std::function<HttpRequest()>& make, uint64_t max_body, const char* limit);

 private:
  struct State;
  HttpResponse try_once(const HttpRequest& request, uint64_t max_body, const char* limit);
  void pause(int tries, const std::string& retry_after) const;

  const RemoteOptions& options_;
  std::unique_ptr<State> state_;
};

}  // namespace etr::io
