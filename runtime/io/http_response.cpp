#include "io/http_response.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "core/error.h"
#include "core/text.h"

namespace etr::io {
namespace {

std::string_view text_of(const std::vector<std::byte>& body) {
  return {reinterpret_cast<const char*>(body.data()), body.size()};
}

}  // namespace

std::string readable(std::string_view text) {
  constexpr size_t kShown = 300;
  std::string out(text.substr(0, kShown));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c > 0x7E; }, ' ');
  return out;
}

std::string HttpResponse::header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

std::string HttpResponse::header_text(const std::string& name) const {
  return readable(header(name));
}

std::string HttpResponse::body_text() const {
  const std::string_view code = element("Code"), message = element("Message");
  if (code.empty()) return readable(text_of(body));
  return readable(message.empty() ? std::string(code) : cat(code, ": ", message));
}

std::string_view HttpResponse::element(const std::string& name) const {
  std::string_view xml = text_of(body);
  const std::string open = "<" + name + ">";
  const size_t begin = xml.find(open);
  if (begin == xml.npos) return "";
  xml.remove_prefix(begin + open.size());
  const size_t end = xml.find("</" + name + ">");
  return end == xml.npos ? "" : xml.substr(0, end);
}

void HttpResponse::take_line(std::string_view line) {
  if (line.starts_with("HTTP/")) {
    *this = {};
    const std::string_view code = line.substr(std::min(line.find(' '), line.size() - 1) + 1);
    std::from_chars(code.data(), code.data() + code.size(), status);
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  headers[lower_case(line.substr(0, colon))] = trim(line.substr(colon + 1));
}

double HttpResponse::asked_pause() const {
  const double asked = std::atof(header("retry-after").c_str());
  return asked > 0 ? asked : 0;
}

void HttpResponse::check_coding(const std::string& url) const {
  const std::string coding = lower_case(header("content-encoding"));
  if (coding.empty() || coding == "identity" || status >= 300) return;
  const std::string path = lower_case(url.substr(0, url.find_first_of("?#")));
  const bool gzip = path.ends_with(".gz") || path.ends_with(".tgz");
  const bool zstd = path.ends_with(".zst") || path.ends_with(".tzst");
  if ((gzip && (coding == "gzip" || coding == "x-gzip")) || (zstd && coding == "zstd")) return;
  fail(Code::unsupported, "'", url, "' comes with Content-Encoding '", readable(coding),
       "', which was not requested; configure the server to send the file unchanged");
}

void HttpResponse::check_told_length(const std::string& url) const {
  if (status != 200) return;
  const bool chunked = lower_case(header("transfer-encoding")).find("chunked") != std::string::npos;
  if (!chunked && header("content-length").empty())
    fail(Code::io, "'", url,
         "' comes without Content-Length, so it cannot be checked that it is complete; "
         "configure the server to send its length");
}

}  // namespace etr::io
