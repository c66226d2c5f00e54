// What an HTTP server answers: its head, line by line, and its body.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace etr::io {

// For errors: the beginning of what a server says, in ASCII.
std::string readable(std::string_view text);

struct HttpResponse {
  long status = 0;
  std::map<std::string, std::string> headers;  // by lower-case name
  std::vector<std::byte> body;

  std::string header(const std::string& name) const;
  // For errors: the beginning of a header or of the body, in ASCII. Of a store's error in XML its
  // code and message alone, because the rest may contain the session token.
  std::string header_text(const std::string& name) const;
  std::string body_text() const;
  // The content of the first <name> element of a body in XML, as it stands there; "" if there is
  // none.
  std::string_view element(const std::string& name) const;

  // Takes a line of the head or of the trailers. A status line begins a new response, as after a
  // redirect.
  void take_line(std::string_view line);

  // The seconds that Retry-After asks to wait; 0 if there is none, or a date.
  double asked_pause() const;

  // Rejects an encoding, since none was requested. Exception: some servers report the compression
  // of the file itself, such as x.tar.gz, as an encoding. Throws Error(unsupported).
  void check_coding(const std::string& url) const;
  // For answers of HTTP/1: rejects one that ends when the connection does, because it could be cut
  // short anywhere. Throws Error(io).
  void check_told_length(const std::string& url) const;
};

}  // namespace etr::io
