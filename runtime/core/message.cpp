#include "core/message.h"

#include <algorithm>

#include "core/text.h"
#include "core/utf8.h"

namespace etr {
namespace {

constexpr std::string_view kHidden = "***";

// The parameters of signed addresses (AWS, Google, Azure, CloudFront) and of simple keys.
bool is_secret(std::string_view parameter) {
  constexpr std::string_view kParts[] = {"auth",   "credential", "key",  "password",
                                         "secret", "signature",  "token"};
  const std::string name = lower_case(parameter);
  return name == "sig" || std::ranges::any_of(kParts, [&](std::string_view part) {
           return name.find(part) != std::string::npos;
         });
}

// `query` is what follows the question mark.
void append_query(std::string& out, std::string_view query) {
  while (true) {
    const size_t end = std::min(query.find_first_of("&;"), query.size());
    const std::string_view parameter = query.substr(0, end);
    const size_t value = parameter.find('=') + 1;  // 0: there is none
    const bool hides = value > 0 && is_secret(parameter.substr(0, value - 1));
    (out += hides ? parameter.substr(0, value) : parameter) += hides ? kHidden : "";
    if (end == query.size()) return;
    out += query[end];
    query.remove_prefix(end + 1);
  }
}

// `address` is what follows "://".
void append_address(std::string& out, std::string_view address) {
  const std::string_view host = address.substr(0, address.find_first_of("/?#"));
  if (const size_t at = host.rfind('@'); at != std::string_view::npos) {
    out += kHidden;
    address.remove_prefix(at);
  }
  const size_t question = std::min(address.find('?'), address.size());
  const size_t fragment = std::min(address.find('#'), address.size());
  if (question < fragment) {
    out += address.substr(0, question + 1);
    append_query(out, address.substr(question + 1, fragment - question - 1));
  } else {
    out += address.substr(0, fragment);
  }
  out += address.substr(fragment);
}

}  // namespace

std::string as_message(std::string_view text) {
  constexpr std::string_view kBegin = "://", kBehind = " \t\r\n'\"<>";
  const std::string shown = as_utf8(text);
  std::string out;
  for (std::string_view rest = shown;;) {
    const size_t begin = rest.find(kBegin);
    if (begin == std::string_view::npos) return out += rest;
    out += rest.substr(0, begin + kBegin.size());
    rest.remove_prefix(begin + kBegin.size());
    const size_t end = std::min(rest.find_first_of(kBehind), rest.size());
    append_address(out, rest.substr(0, end));
    rest.remove_prefix(end);
  }
}

}  // namespace etr
