#include "sources/npy_header.h"

#include <charconv>
#include <cstdio>
#include <utility>

#include "core/error.h"

namespace etr::sources {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

}  // namespace

std::string escaped(std::string_view text) {
  constexpr size_t kShown = 60;
  std::string out;
  for (const char c : text) {
    char shown[5] = {c};
    if (c < 0x20 || c > 0x7E)
      std::snprintf(shown, sizeof shown, "\\x%02x", static_cast<unsigned>(c) & 0xFF);
    if (out.size() + std::string_view(shown).size() > kShown) return out + "...";
    out += shown;
  }
  return out;
}

namespace {

class Parser {
 public:
  Parser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  NpyHeader parse() {
    NpyHeader out;
    bool has_type = false, has_order = false, has_shape = false;
    const auto once = [&](bool& has) {
      if (std::exchange(has, true)) damaged("an entry that comes once");
    };
    expect("{");
    while (!take("}")) {
      const std::string_view key = string();
      expect(":");
      if (key == "'descr'" || key == "\"descr\"") {
        once(has_type);
        read_type(out);
      } else if (key == "'fortran_order'" || key == "\"fortran_order\"") {
        once(has_order);
        out.fortran_order = boolean();
      } else if (key == "'shape'" || key == "\"shape\"") {
        once(has_shape);
        out.shape = shape();
      } else {
        damaged("'descr', 'fortran_order' or 'shape' before it");
      }
      if (!take(",") && !next_is('}')) damaged("',' or '}'");
    }
    skip_blanks();
    if (at_ != text_.size()) damaged("nothing");
    for (const auto& [has, key] :
         {std::pair(has_type, "descr"), {has_order, "fortran_order"}, {has_shape, "shape"}})
      if (!has) fail(Code::corrupt_data, "'", path_, "': the .npy header has no '", key, "'");
    return out;
  }

 private:
  [[noreturn]] void damaged(const char* expected) const {
    fail(Code::corrupt_data, "'", path_, "': the .npy header is damaged: it has '",
         escaped(text_.substr(at_)), "' at character ", at_ + 1, ", where ", expected, " belongs");
  }

  void skip_blanks() {
    while (at_ < text_.size() && kBlank.find(text_[at_]) != kBlank.npos) ++at_;
  }
  bool next_is(char c) {
    skip_blanks();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(const char* word) {
    if (!take(word)) damaged(word);
  }

  // A string with its quotation marks. No type or key written by NumPy contains an escape.
  std::string_view string() {
    skip_blanks();
    const size_t begin = at_;
    const char mark = begin < text_.size() ? text_[begin] : '\0';
    const size_t end = mark == '\'' || mark == '"' ? text_.find(mark, begin + 1) : text_.npos;
    if (end == text_.npos) damaged("a string");
    at_ = end + 1;
    return text_.substr(begin, at_ - begin);
  }

  bool boolean() {
    if (take("True")) return true;
    if (take("False")) return false;
    damaged("True or False");
  }

  uint64_t number() {
    skip_blanks();
    uint64_t out = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), out);
    if (error != std::errc()) damaged("a whole number");
    at_ = static_cast<size_t>(end - text_.data());
    return out;
  }

  std::vector<uint64_t> shape() {
    std::vector<uint64_t> out;
    expect("(");
    while (!take(")")) {
      out.push_back(number());
      if (!take(",") && (out.size() == 1 || !next_is(')'))) damaged("','");
    }
    return out;
  }

  void read_type(NpyHeader& out) {
    skip_blanks();
    const size_t begin = at_;
    out.structured = next_is('[') || next_is('(');
    if (out.structured)
      members();
    else
      string();
    out.type = text_.substr(begin, at_ - begin);
  }

  // The members of a structured type: strings, numbers and nested brackets.
  void members() {
    std::string open;
    do {
      skip_blanks();
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      if (c == '[' || c == '(') {
        open += c == '[' ? ']' : ')';
        ++at_;
      } else if (!open.empty() && c == open.back()) {
        open.pop_back();
        ++at_;
      } else if (c == '\'' || c == '"') {
        string();
      } else if (c == ',') {
        ++at_;
      } else {
        number();
      }
    } while (!open.empty());
  }

  const std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const std::string& path) {
  return Parser(text, path).parse();
}

}  // namespace etr::sources
