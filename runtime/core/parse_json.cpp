#include "core/parse_json.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "core/json.h"

namespace etr {
namespace {

// Receives a document's parts from nlohmann's parser. Containers are put together when they end: nlohmann's own
// builder copies an object's members, with all that lies in them, each time that the object grows.
class DocumentBuilder {
 public:
  explicit DocumentBuilder(const JsonRules& rules) : rules_(rules) {}

  Json& document() { return root_; }
  const std::string& problem() const { return problem_; }
  bool too_deep() const { return too_deep_; }

  // What Json::sax_parse calls; false ends it.
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not in text
  bool start_object(size_t) { return open(); }
  bool start_array(size_t) { return open(); }
  bool key(std::string& name) {
    open_.back().keys.push_back(std::move(name));
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
    if (!take_last_of_same(members)) return false;
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
  struct Open {  // an array, or an object: it has as many keys as values
    std::vector<std::string> keys;
    Json::array_t values;
  };

  bool open() {
    too_deep_ = open_.size() == kMaxJsonDepth;
    if (!too_deep_) open_.emplace_back();
    return !too_deep_;
  }

  template <typename Value>
  bool put(Value&& value) {
    if (open_.empty())
      root_ = std::forward<Value>(value);
    else
      open_.back().values.emplace_back(std::forward<Value>(value));
    return true;
  }

  // The place of each key's first and only copy, with its last value.
  bool take_last_of_same(Open& members) {
    constexpr size_t kFew = 16;
    auto& [keys, values] = members;
    std::unordered_map<std::string_view, size_t> places;
    size_t kept = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      size_t place = kept;
      if (keys.size() <= kFew)
        place = static_cast<size_t>(
            std::find(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(kept), keys[i]) -
            keys.begin());
      else if (const auto found = places.find(keys[i]); found != places.end())
        place = found->second;
      if (place == kept) {
        if (kept != i) keys[kept] = std::move(keys[i]);
        if (keys.size() > kFew) places.emplace(keys[kept], kept);
        ++kept;
      } else if (rules_.unique_keys) {
        problem_ = cat("the key '", keys[i], "' comes twice");
        return false;
      }
      if (place != i) values[place] = std::move(values[i]);
    }
    keys.resize(kept);
    values.resize(kept);
    return true;
  }

  const JsonRules rules_;
  std::vector<Open> open_;
  Json root_;
  std::string problem_;
  bool too_deep_ = false;
};

// Nothing where the text is no JSON; `problem` then says why.
std::optional<Json> parsed(std::string_view text, const std::string& origin, const JsonRules& rules,
                           std::string& problem) {
  DocumentBuilder builder(rules);
  if (Json::sax_parse(text, &builder, Json::input_format_t::json, /*strict=*/true, rules.comments))
    return std::move(builder.document());
  if (builder.too_deep())
    fail(rules.code, origin, " is nested more than ", kMaxJsonDepth, " levels deep");
  problem = builder.problem();
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
