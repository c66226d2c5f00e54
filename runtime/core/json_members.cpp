#include "core/json_members.h"

#include <limits>
#include <utility>

#include "core/json.h"
#include "core/message.h"
#include "core/utf8.h"

namespace etr {
namespace {

constexpr uint64_t kMostCount = 1'000'000'000'000'000;

}  // namespace

std::string brief_json(const Json& value) {
  constexpr size_t kShown = 60;
  // Without secrets of addresses before it is cut, after which they could not be recognised.
  const std::string text = as_message(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  return text.size() <= kShown ? text : as_utf8(text.substr(0, kShown)) + "...";
}

void check_no_nul(const Json& value, const std::string& where) {
  if (value.is_array())
    for (const Json& element : value) check_no_nul(element, where);
  if (value.is_string() && value.get_ref<const std::string&>().find('\0') != std::string::npos)
    fail(Code::invalid_argument, where, " is ", brief_json(value),
         ": paths and names have no NUL character inside");
}

JsonMembers::JsonMembers(const Json& object, std::string problem, Code code)
    : object_(object), problem_(std::move(problem)), code_(code) {
  if (!object.is_object()) fail(code_, problem_, ": it is ", brief_json(object), ", not an object");
}

void JsonMembers::wrong(const char* key, const Json& found, const std::string& expected) const {
  fail(code_, problem_, ": '", key, "' is ", brief_json(found), ", not ", expected);
}

bool JsonMembers::has(const char* key) const { return object_.contains(key); }

const Json& JsonMembers::at(const char* key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) fail(code_, problem_, ": it has no '", key, "'");
  return *found;
}

const Json& JsonMembers::object(const char* key) const {
  const Json& value = at(key);
  if (!value.is_object()) wrong(key, value, "an object");
  return value;
}

JsonMembers JsonMembers::part(const char* key) const {
  return {object(key), cat(problem_, ": '", key, "'"), code_};
}

const Json& JsonMembers::list(const char* key) const {
  const Json& value = at(key);
  if (!value.is_array()) wrong(key, value, "a list");
  return value;
}

const std::string& JsonMembers::text(const char* key) const {
  const Json& value = at(key);
  if (!value.is_string()) wrong(key, value, "a string");
  return value.get_ref<const std::string&>();
}

bool JsonMembers::flag(const char* key) const {
  const Json& value = at(key);
  if (!value.is_boolean()) wrong(key, value, "true or false");
  return value.get<bool>();
}

double JsonMembers::number(const char* key) const {
  const Json& value = at(key);
  if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= kMostCount))
    wrong(key, value, cat("a number from 0 to ", kMostCount));
  return value.get<double>();
}

double JsonMembers::real_or_nan(const char* key) const {
  const Json& value = at(key);
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) wrong(key, value, "a number or null");
  return value.get<double>();
}

// In a Json that the program built itself, a whole number may have the signed type.
uint64_t JsonMembers::whole(const char* key, uint64_t most) const {
  const Json& value = at(key);
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0))
    wrong(key, value, "a whole number");
  if (value.get<uint64_t>() > most) wrong(key, value, cat("a whole number up to ", most));
  return value.get<uint64_t>();
}

uint64_t JsonMembers::count(const char* key) const { return whole(key, kMostCount); }

}  // namespace etr
