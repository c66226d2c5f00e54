// Small helpers for text formats.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace etr {

inline std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t end = text.find(at);
    out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}
// Would return dangling views.
std::vector<std::string_view> split(std::string&& text, char at) = delete;

// Returns what white space separates.
inline std::vector<std::string> words_of(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";
  std::vector<std::string> out;
  for (size_t at = text.find_first_not_of(kSpace); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kSpace, end);
  }
  return out;
}

inline std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// std::isalnum() in the locale "C".
inline bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Converts ASCII letters to lower case, for comparing file extensions and headers.
inline std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Returns whether `text` matches `pattern`, in which * stands for any number of characters.
inline bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {  // let the last star take one more
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// "1 sample", "12 samples". `plural` is for irregular plurals.
inline std::string counted(int64_t count, std::string_view one, std::string_view plural = {}) {
  if (count == 1) return cat("1 ", one);
  return plural.empty() ? cat(count, " ", one, "s") : cat(count, " ", plural);
}

// "an echo", "a cache". Decides by the first letter, which is right for the names of stages, layers
// and formats.
inline std::string with_article(std::string_view noun) {
  return cat(!noun.empty() && std::string_view("aeio").find(noun[0]) != std::string_view::npos
                 ? "an "
                 : "a ",
             noun);
}

// Parses the whole text as a number. Throws Error(corrupt_data) that names `what`.
template <typename T>
T parse_number(std::string_view text, std::string_view what, const char* expected) {
  T value{};
  std::string_view digits = text;
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, value);
  if (error == std::errc::result_out_of_range && end == last)
    fail(Code::corrupt_data, what, ": '", text, "' is beyond the range of ", expected);
  if (error != std::errc() || end != last)
    fail(Code::corrupt_data, what, ": '", text, "' is not ", expected);
  return value;
}
inline int64_t parse_integer(std::string_view text, std::string_view what) {
  return parse_number<int64_t>(text, what, "a whole number");
}

}  // namespace etr
