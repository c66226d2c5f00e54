#include "io/http.h"

// curl's type-checking macros would hide the functions' names.
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <new>
#include <random>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "core/platform.h"
#include "core/platform_socket.h"

namespace etr::io {
namespace {

constexpr double kConnectSeconds = 15, kFirstPause = 0.3, kLongestPause = 30;
constexpr long kRedirects = 5, kLowSpeed = 1024;
// Since libcurl 7.87; an older one ignores it.
constexpr auto kQuickExit = static_cast<CURLoption>(CURLOPTTYPE_LONG + 322);
constexpr size_t kMostOfError = 64 << 10;  // bytes read of an answer that is an error
// Bytes of headers, trailers included, and of a redirect's body. libcurl limits neither.
constexpr uint64_t kMostAround = 1 << 20;

// The libcurl library, loaded when the first address is read: programs that read only files do not
// need it.
struct Curl {
#ifdef _WIN32
  static constexpr const char* kNames[] = {"libcurl-4.dll", "libcurl-x64.dll", "libcurl.dll"};
#elif defined(__APPLE__)
  static constexpr const char* kNames[] = {"libcurl.4.dylib"};
#else
  static constexpr const char* kNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
#endif
  platform::Library library{kNames};
  decltype(&curl_global_init) global_init = get<decltype(&curl_global_init)>("curl_global_init");
  decltype(&curl_easy_init) easy_init = get<decltype(&curl_easy_init)>("curl_easy_init");
  decltype(&curl_easy_reset) easy_reset = get<decltype(&curl_easy_reset)>("curl_easy_reset");
  decltype(&curl_easy_setopt) easy_setopt = get<decltype(&curl_easy_setopt)>("curl_easy_setopt");
  decltype(&curl_easy_perform) easy_perform =
      get<decltype(&curl_easy_perform)>("curl_easy_perform");
  decltype(&curl_easy_getinfo) easy_getinfo =
      get<decltype(&curl_easy_getinfo)>("curl_easy_getinfo");
  decltype(&curl_easy_cleanup) easy_cleanup =
      get<decltype(&curl_easy_cleanup)>("curl_easy_cleanup");
  decltype(&curl_easy_strerror) easy_strerror =
      get<decltype(&curl_easy_strerror)>("curl_easy_strerror");
  decltype(&curl_slist_append) slist_append =
      get<decltype(&curl_slist_append)>("curl_slist_append");
  decltype(&curl_slist_free_all) slist_free_all =
      get<decltype(&curl_slist_free_all)>("curl_slist_free_all");

  template <typename Function>
  Function get(const char* name) const {
    auto* found = reinterpret_cast<Function>(library.symbol(name));
    if (!found) fail(Code::unsupported, "libcurl has no ", name, "; install version 7.85 or later");
    return found;
  }
};

const Curl& curl_library() {
  // Never unloaded: its threads and handlers may outlive us.
  static const Curl& loaded = *[] {
    try {
      return new Curl();
    } catch (const Error& error) {
      fail(Code::unsupported,
           "reading over the network needs libcurl (package libcurl4): ", error.what());
    }
  }();
  static const CURLcode begun = loaded.global_init(CURL_GLOBAL_DEFAULT);
  if (begun == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (begun != CURLE_OK)
    fail(Code::unsupported, "libcurl cannot be used: ", loaded.easy_strerror(begun));
  return loaded;
}

// A failed request that may succeed when retried.
struct Temporary {
  std::string why{};
  double asked_pause = 0;  // seconds
  std::string remedy{};    // what to do if no retry helps
};

struct Exchange {
  const std::string& url;
  bool only_length = false;
  HttpResponse response{};
  uint64_t max_body = 0, header_bytes = 0;
  bool too_long = false;
  bool has_said_enough = false;  // more of its text, or of an error's, is not needed
  std::exception_ptr failed;     // no exception may pass through curl
  const std::function<bool()>* cancelled = nullptr;
};

size_t keep_error(void* user) {
  static_cast<Exchange*>(user)->failed = std::current_exception();
  return 0;  // ends the transfer
}

size_t take_body(char* data, size_t, size_t size, void* user) try {
  auto& exchange = *static_cast<Exchange*>(user);
  auto& body = exchange.response.body;
  const bool is_error = exchange.response.status >= 300;
  if (exchange.only_length && exchange.response.status == 200) {
    exchange.has_said_enough = true;
    return 0;
  }
  const uint64_t most = is_error ? kMostOfError : exchange.max_body;
  if (body.size() + size > most) {
    (is_error ? exchange.has_said_enough : exchange.too_long) = true;
    return 0;
  }
  // Otherwise the vector could grow to twice the limit.
  if (body.size() + size > body.capacity())
    body.reserve(static_cast<size_t>(
        std::min<uint64_t>(most, std::max(2 * body.capacity(), body.size() + size))));
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  body.insert(body.end(), bytes, bytes + size);
  return size;
} catch (...) {
  return keep_error(user);
}

size_t take_header(char* data, size_t, size_t size, void* user) try {
  auto& exchange = *static_cast<Exchange*>(user);
  exchange.header_bytes += size;
  if (exchange.header_bytes > kMostAround)
    fail(Code::io, "cannot read '", exchange.url, "': the server sends headers without an end");
  exchange.response.take_line({data, size});
  return size;
} catch (...) {
  return keep_error(user);
}

int check_progress(void* user, curl_off_t, curl_off_t received, curl_off_t, curl_off_t) {
  auto& exchange = *static_cast<Exchange*>(user);
  // libcurl discards the body of a redirect itself.
  exchange.too_long |= static_cast<uint64_t>(received) > exchange.max_body + kMostAround;
  const auto& cancelled = *exchange.cancelled;
  return exchange.too_long || (cancelled && cancelled()) ? 1 : 0;
}

#ifndef _WIN32
// libcurl's own sockets would be inherited by child processes, and would block if libcurl failed to
// change that, for longer than the time-outs.
curl_socket_t open_socket(void*, curlsocktype, curl_sockaddr* address) {
  return platform::open_socket(address->family, address->socktype, address->protocol);
}
#endif

bool is_temporary(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
  }
}

}  // namespace

struct HttpConnection::State {
  std::unique_ptr<CURL, void (*)(CURL*)> curl{curl_library().easy_init(),
                                              curl_library().easy_cleanup};
};

HttpConnection::HttpConnection(const RemoteOptions& options)
    : options_(options), state_(std::make_unique<State>()) {
  if (!state_->curl) throw std::bad_alloc();
}

HttpConnection::~HttpConnection() = default;

HttpResponse HttpConnection::try_once(const HttpRequest& request, uint64_t max_body,
                                      const char* limit) {
  const Curl& lib = curl_library();
  CURL* curl = state_->curl.get();
  lib.easy_reset(curl);  // keeps connections open
  Exchange exchange{.url = request.url, .only_length = request.only_length};
  exchange.max_body = max_body;
  exchange.cancelled = &options_.cancelled;
  char reason[CURL_ERROR_SIZE] = {};
  std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(nullptr, lib.slist_free_all);
  for (const std::string& header : request.headers) {
    curl_slist* const longer = lib.slist_append(headers.get(), header.c_str());
    if (!longer) throw std::bad_alloc();
    if (!headers) headers.reset(longer);  // later ones are added behind it
  }
  const auto set = [&](CURLoption option, auto value) {
    const CURLcode code = lib.easy_setopt(curl, option, value);
    if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
    return code;
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PATH_AS_IS, request.keep_path ? 1L : 0L);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_NOSIGNAL, 1L);
#ifndef _WIN32
  set(CURLOPT_OPENSOCKETFUNCTION, open_socket);
#endif
  set(kQuickExit, 1L);  // time-outs and cancelling do not wait until a name is resolved
  set(CURLOPT_USERAGENT, "echotrain");
  // An older libcurl ignores these, and would follow a redirect from https to http.
  const auto restrict_to = [&](CURLoption option, const char* protocols) {
    if (set(option, protocols) != CURLE_OK)
      fail(Code::unsupported, "the installed libcurl cannot be restricted to '", protocols,
           "': install version 7.85 or later");
  };
  restrict_to(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, request.follow_redirects ? 1L : 0L);
  set(CURLOPT_MAXREDIRS, kRedirects);
  // No redirect from https to http.
  restrict_to(CURLOPT_REDIR_PROTOCOLS_STR,
              request.url.starts_with("https:") ? "https" : "http,https");
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(kConnectSeconds * 1000));
  set(CURLOPT_LOW_SPEED_LIMIT, kLowSpeed);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(std::ceil(options_.low_speed_s)));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout_s * 1000));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_ERRORBUFFER, reason);
  set(CURLOPT_WRITEFUNCTION, take_body);
  set(CURLOPT_WRITEDATA, &exchange);
  set(CURLOPT_HEADERFUNCTION, take_header);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, check_progress);
  set(CURLOPT_XFERINFODATA, &exchange);
  if (const std::string bundle = platform::variable("SSL_CERT_FILE"); !bundle.empty())
    set(CURLOPT_CAINFO, bundle.c_str());

  CURLcode code = lib.easy_perform(curl);
  if (exchange.has_said_enough) code = CURLE_OK;
  if (exchange.failed) std::rethrow_exception(exchange.failed);
  if (code == CURLE_OUT_OF_MEMORY && !*reason) throw std::bad_alloc();
  if (exchange.too_long)
    fail(Code::unsupported, "'", request.url, "': an answer of more than ", max_body,
         " bytes; the limit is ", limit);
  if (code == CURLE_ABORTED_BY_CALLBACK)
    fail(Code::cancelled, "reading '", request.url, "' was cancelled");
  const std::string why = readable(*reason ? reason : lib.easy_strerror(code));
  if (code != CURLE_OK && is_temporary(code)) throw Temporary{.why = why};
  if (code != CURLE_OK)  // libcurl calls it a lack of memory also if OpenSSL cannot be set up
    fail(code == CURLE_OUT_OF_MEMORY ? Code::out_of_memory : Code::io, "cannot read '", request.url,
         "': ", why);
  long version = 0;
  lib.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &exchange.response.status);
  lib.easy_getinfo(curl, CURLINFO_HTTP_VERSION, &version);
  const long status = exchange.response.status;
  if (status == 408 || status == 429 || status >= 500)
    throw Temporary{
        .why = cat("the server answers ", status, " ", exchange.response.body_text()),
        .asked_pause = exchange.response.asked_pause(),
        .remedy =
            status == 429 || status == 503
                ? "; it may be overloaded: lower 'remote_connections' or raise 'remote_retries'"
                : ""};
  if (version < CURL_HTTP_VERSION_2_0) exchange.response.check_told_length(request.url);
  exchange.response.check_coding(request.url);
  return std::move(exchange.response);
}

// Exponential backoff with jitter, so that many connections do not retry at once. If the server
// asks for a pause, that is its business.
void HttpConnection::pause(int tries, double asked) const {
  thread_local std::minstd_rand random(std::random_device{}());
  const double spread = std::uniform_real_distribution(0.5, 1.0)(random);
  double seconds = std::min(kLongestPause, kFirstPause * std::exp2(tries)) * spread;
  if (asked > 0) seconds = std::min(asked, kLongestPause);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (options_.cancelled && options_.cancelled()) fail(Code::cancelled, "reading was cancelled");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

HttpResponse HttpConnection::get(const std::function<HttpRequest()>& make, uint64_t max_body,
                                 const char* limit) {
  for (int tries = 0;; ++tries) {
    const HttpRequest request = make();
    try {
      return try_once(request, max_body, limit);
    } catch (const Temporary& problem) {
      if (tries >= options_.retries)
        fail(Code::io, "cannot read '", request.url, "': ", problem.why, " (tried ", tries + 1,
             " times)", problem.remedy);
      log_line(LogLevel::info, cat("'", request.url, "': ", problem.why, "; trying again"));
      pause(tries, problem.asked_pause);
    }
  }
}

}  // namespace etr::io
