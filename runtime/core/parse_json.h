// From text to Json, for every document that comes from outside.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json_fwd.h"

namespace etr {

// How deep arrays and objects may lie in each other. Copying, comparing and writing a Json are recursive, and so is
// nearly everything that reads one: text of 100 KB could otherwise overflow any thread's stack.
constexpr size_t kMaxJsonDepth = 256;

struct JsonRules {
  bool comments = true;                // are skipped; otherwise an error
  Code code = Code::invalid_argument;  // of the error
};

// Takes time and memory in proportion to the text. `origin` names it in errors ("job file x.json"). Throws Error where
// the text is no JSON, is nested deeper than kMaxJsonDepth, or has a key twice in one object, whose place the error names:
// readers differ in which of the two they take.
Json parse_json(std::string_view text, const std::string& origin, const JsonRules& rules = {});

// The same; nothing where the text is no JSON.
std::optional<Json> parse_if_json(std::string_view text, const std::string& origin);

// What an exception of the JSON library says, for people: "line 3, column 7: syntax error while parsing value - ...".
std::string json_problem(const std::exception& error);

}  // namespace etr
