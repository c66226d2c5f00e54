#include "core/parse_json.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "core/json.h"

namespace etr {
namespace {

std::string place_in(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  const size_t newline = before.rfind('\n');
  return cat("line ", std::count(before.begin(), before.end(), '\n') + 1, ", column ",
             at - (newline == std::string_view::npos ? 0 : newline + 1) + 1);
}

// Builds the document from the events of nlohmann's parser. Containers are assembled when they end:
// nlohmann's own builder copies an object's members, with all their contents, each time the object
// grows.
class DocumentBuilder {
 public:
  // `at`: the parser's position in `text`.
  DocumentBuilder(std::string_view text, const char* const& at, size_t most_containers)
      : text_(text), at_(at), most_containers_(most_containers) {}

  Json& document() { return root_; }
  const std::string& problem() const { return problem_; }
  bool too_deep() const { return too_deep_; }
  bool too_many() const { return containers_ > most_containers_; }
  const std::string& twice() const { return twice_; }

  // Called by Json::sax_parse; returning false ends parsing.
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // does not occur in text
  bool start_object(size_t) { return open(); }
  bool start_array(size_t) { return open(); }
  bool key(std::string& name) {
    open_.back().keys.push_back(std::move(name));
    open_.back().places.push_back(static_cast<size_t>(at_ - text_.data()));
    return true;
  }
  bool end_array() {
    Json::array_t values = std::move(open_.back().values);
    open_.pop_back();
    return put(std::move(values));
  }
  bool end_object() {
    Open members = std::move(open_.back());
    open_.pop_back();
    if (!are_unique(members)) return false;
    Json::object_t object;
    object.reserve(members.keys.size());
    for (size_t i = 0; i < members.keys.size(); ++i)
      object.emplace_back(std::move(members.keys[i]), std::move(members.values[i]));
    return put(std::move(object));
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) {
    problem_ = json_problem(error);
    return false;
  }

 private:
  struct Open {  // an array, or an object, which has a key per value
    std::vector<std::string> keys;
    std::vector<size_t> places;  // where each key ends in the text
    Json::array_t values;
  };

  bool open() {
    too_deep_ = open_.size() == kMaxJsonDepth;
    if (too_deep_ || ++containers_ > most_containers_) return false;
    open_.emplace_back();
    return true;
  }

  template <typename Value>
  bool put(Value&& value) {
    if (open_.empty())
      root_ = std::forward<Value>(value);
    else
      open_.back().values.emplace_back(std::forward<Value>(value));
    return true;
  }

  bool are_unique(const Open& members) {
    constexpr size_t kFew = 16;
    const auto& keys = members.keys;
    std::unordered_map<std::string_view, size_t> firsts;
    for (size_t i = 0; i < keys.size(); ++i) {
      size_t first = i;
      if (keys.size() <= kFew)
        first = static_cast<size_t>(
            std::find(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(i), keys[i]) -
            keys.begin());
      else
        first = firsts.emplace(keys[i], i).first->second;
      if (first == i) continue;
      twice_ = cat("duplicate key '", keys[i], "' in one object, at ",
                   place_of(members.places[first]), " and at ", place_of(members.places[i]));
      return false;
    }
    return true;
  }

  // The place of the opening quotation mark of the key that ends before `end`.
  std::string place_of(size_t end) const {
    const auto is_escaped = [&](size_t at) {
      size_t first = at;
      while (first > 0 && text_[first - 1] == '\\') --first;
      return (at - first) % 2 == 1;
    };
    size_t begin = end - 2;
    while (text_[begin] != '"' || is_escaped(begin)) --begin;
    return place_in(text_, begin);
  }

  const std::string_view text_;
  const char* const& at_;
  const size_t most_containers_;
  size_t containers_ = 0;
  std::vector<Open> open_;
  Json root_;
  std::string problem_, twice_;
  bool too_deep_ = false;
};

// An iterator that records the parser's position, which nlohmann's parser does not report to its
// handler.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char*& furthest) : at_(at), furthest_(&furthest) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

// Returns nothing if the text is not JSON, with the reason in `problem`.
std::optional<Json> parsed(std::string_view text, const std::string& origin, const JsonRules& rules,
                           std::string& problem) {
  const char* at = text.data();
  DocumentBuilder builder(text, at, rules.most_containers);
  const size_t zero = text.find('\0');  // nlohmann's parser would end the text there
  if (zero != std::string_view::npos)
    problem = cat(place_in(text, zero), ": a zero byte, which JSON does not have");
  else if (Json::sax_parse(Cursor(at, at), Cursor(text.data() + text.size(), at), &builder,
                           Json::input_format_t::json, /*strict=*/true, rules.comments))
    return std::move(builder.document());
  if (builder.too_deep())
    fail(rules.code, origin, " is nested more than ", kMaxJsonDepth, " levels deep");
  if (builder.too_many())
    fail(rules.code, origin, " has more than ", rules.most_containers, " lists and objects");
  if (!builder.twice().empty()) fail(rules.code, origin, ": ", builder.twice());
  if (problem.empty()) problem = builder.problem();
  const std::string_view first = "line 1, ";
  if (text.find('\n') == text.npos && problem.starts_with(first)) problem.erase(0, first.size());
  return std::nullopt;
}

}  // namespace

std::string json_problem(const std::exception& error) {
  std::string text = error.what();
  if (text.starts_with("[json.exception."))
    text.erase(0, std::min(text.find("] ") + 2, text.size()));
  if (const std::string_view begin = "parse error at "; text.starts_with(begin))
    text.erase(0, begin.size());
  return text;
}

Json parse_json(std::string_view text, const std::string& origin, const JsonRules& rules) {
  std::string problem;
  std::optional<Json> out = parsed(text, origin, rules, problem);
  if (!out) fail(rules.code, origin, " is not valid JSON: ", problem);
  return std::move(*out);
}

std::optional<Json> parse_if_json(std::string_view text, const std::string& origin) {
  std::string problem;
  return parsed(text, origin, {.comments = false}, problem);
}

}  // namespace etr
