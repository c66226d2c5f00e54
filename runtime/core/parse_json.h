// Parses external JSON documents.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json_fwd.h"

namespace etr {

// The nesting limit of arrays and objects. Copying, comparing and writing a Json are recursive, and
// so is nearly all code that reads one: without a limit, 100 KB of text could overflow any thread's
// stack.
constexpr size_t kMaxJsonDepth = 256;

struct JsonRules {
  bool comments = true;                // skip comments; false: they are errors
  Code code = Code::invalid_argument;  // of errors
  size_t most_containers = SIZE_MAX;   // arrays and objects, which take up to 40 times their text
};

// Takes time and memory proportional to the text. `origin` names the text in errors ("job file
// x.json"). Throws Error if the text is not JSON, is nested deeper than kMaxJsonDepth, has more
// arrays and objects than the rules allow, or has a duplicate key in one object. Duplicate keys are
// rejected because readers differ in which of the two they use; the error says where they are.
Json parse_json(std::string_view text, const std::string& origin, const JsonRules& rules = {});

// Like parse_json() without comments, but returns nothing if the text is not JSON.
std::optional<Json> parse_if_json(std::string_view text, const std::string& origin);

// The message of a JSON library exception in readable form: "line 3, column 7: syntax error while
// parsing value - ...".
std::string json_problem(const std::exception& error);

}  // namespace etr
