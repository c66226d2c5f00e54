#include "core/message.h"

#include <algorithm>
#include <optional>

#include "core/text.h"
#include "core/utf8.h"

namespace etr {
namespace {

constexpr std::string_view kHidden = "***", kBehind = " \t\r\n'\"<>";

// The parameters of signed addresses (AWS, Google, Azure, CloudFront, Akamai) and of simple keys.
bool is_secret(std::string_view parameter) {
  constexpr std::string_view kParts[] = {"auth", "credential", "hdn",    "hmac",      "jwt",  "key",
                                         "pass", "pwd",        "secret", "signature", "token"};
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
    out += hides ? parameter.substr(0, value) : parameter;
    if (hides) out += kHidden;
    if (end == query.size()) return;
    out += query[end];
    query.remove_prefix(end + 1);
  }
}

// `text` has no "://", but perhaps the end of an address: "'train.tar?token=abc' is missing".
void append_text(std::string& out, std::string_view text) {
  while (true) {
    const size_t query = text.find('?') + 1;  // 0: there is none
    if (query == 0) {
      out += text;
      return;
    }
    out += text.substr(0, query);
    text.remove_prefix(query);
    const size_t end = std::min(text.find_first_of(kBehind), text.size());
    append_query(out, text.substr(0, end));
    text.remove_prefix(end);
  }
}

// Where the password ends, at an '@'; npos if there is none. `address` is what follows "://".
size_t password_end(std::string_view address) {
  const std::string_view host = address.substr(0, address.find_first_of("/?#"));
  const size_t at = host.rfind('@'), colon = host.find(':');
  if (at != std::string_view::npos || colon == std::string_view::npos || host.starts_with('['))
    return at;
  // A password may have a slash or the like in it: then no port follows the colon.
  const bool is_port = host.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return is_port ? at : address.rfind('@');
}

void append_address(std::string& out, std::string_view address) {
  if (const size_t at = password_end(address); at != std::string_view::npos) {
    out += kHidden;
    address.remove_prefix(at);
  }
  const size_t fragment = std::min(address.find('#'), address.size());
  const size_t query = std::min(address.find('?'), fragment);
  out += address.substr(0, query);
  if (query < fragment) {
    out += '?';
    append_query(out, address.substr(query + 1, fragment - query - 1));
  }
  out += address.substr(fragment);
}

struct Range {
  size_t begin, end;
};

// Finds the next address behind `from`: what follows its "://".
std::optional<Range> find_address(std::string_view text, size_t from) {
  constexpr std::string_view kMark = "://", kPunctuation = ").,:;]}";
  const auto in_scheme = [](char c) {
    return is_letter_or_digit(c) || c == '+' || c == '-' || c == '.';
  };
  for (size_t mark = from; (mark = text.find(kMark, mark)) != std::string_view::npos;
       mark += kMark.size()) {
    size_t scheme = mark;
    while (scheme > 0 && in_scheme(text[scheme - 1])) --scheme;
    if (mark - scheme < 2) continue;  // a drive of Windows
    const char before = scheme > 0 ? text[scheme - 1] : ' ';
    const bool quoted = before == '\'' || before == '"';
    const size_t begin = mark + kMark.size();
    size_t end = quoted ? text.find(before, begin) : text.find_first_of(kBehind, begin);
    end = std::min({end, text.find(kMark, begin), text.size()});
    while (!quoted && end > begin && kPunctuation.find(text[end - 1]) != std::string_view::npos)
      --end;
    return Range{begin, end};
  }
  return std::nullopt;
}

}  // namespace

std::string as_message(std::string_view text) {
  const std::string whole = as_utf8(text);
  const std::string_view shown = whole;
  std::string out;
  size_t from = 0;
  while (const auto address = find_address(shown, from)) {
    append_text(out, shown.substr(from, address->begin - from));
    append_address(out, shown.substr(address->begin, address->end - address->begin));
    from = address->end;
  }
  append_text(out, shown.substr(from));
  return out;
}

}  // namespace etr
