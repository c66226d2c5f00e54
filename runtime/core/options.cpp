#include "core/options.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "core/error.h"
#include "core/exact_number.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/log.h"
#include "core/nearest.h"

namespace etr {
namespace {

std::vector<std::string> split_choices(const char* choices) {
  std::vector<std::string> out;
  std::stringstream in(choices);
  in.exceptions(std::ios::badbit);  // otherwise a lack of memory would look like the end
  for (std::string word; std::getline(in, word, '|');) out.push_back(word);
  return out;
}

bool has_type(const Json& value, OptionType type) {
  const auto all = [&](auto predicate) {
    return value.is_array() && std::all_of(value.begin(), value.end(), predicate);
  };
  switch (type) {
    case OptionType::boolean: return value.is_boolean();
    case OptionType::integer: return value.is_number_integer();
    case OptionType::number: return value.is_number();
    case OptionType::string: return value.is_string();
    case OptionType::integers:  // accepts 3.0 too: the C API passes all lists as doubles
      return all([](const Json& v) {
        constexpr double kBeyond = 9223372036854775808.0;  // just beyond int64's range
        return v.is_number() && v.get<double>() == std::floor(v.get<double>()) &&
               std::abs(v.get<double>()) < kBeyond;
      });
    case OptionType::numbers: return all([](const Json& v) { return v.is_number(); });
    case OptionType::strings: return all([](const Json& v) { return v.is_string(); });
    case OptionType::stages:
      return all([](const Json& v) { return v.is_object() || v.is_array(); });
    case OptionType::layers: return all([](const Json& v) { return v.is_object(); });
  }
  return false;
}

void check_range(const OptionSpec& spec, const Json& value, const std::string& where) {
  const double v = value.get<double>();
  if (std::isfinite(v) && v >= spec.min && v <= spec.max) return;
  const char* unit_space = *spec.unit ? " " : "";
  fail(Code::invalid_argument, where, " is ", std::isfinite(v) ? value.dump() : cat(v), unit_space,
       spec.unit, "; it must lie in [", exact_number(spec.min), ", ", exact_number(spec.max), "]");
}

void check_value(const OptionSpec& spec, const Json& value, const std::string& owner) {
  const std::string where = cat(owner, ": option '", spec.name, "'");
  if (!has_type(value, spec.type))
    fail(Code::invalid_argument, where, " must be of type ", option_type_name(spec.type), ", not ",
         brief_json(value));
  if (spec.unit == std::string_view("path") && !spec.default_json && value.is_string() &&
      value.get_ref<const std::string&>().empty())
    fail(Code::invalid_argument, where, " is an empty path");
  check_no_nul(value, where);
  if (value.is_number()) check_range(spec, value, where);
  if (spec.type == OptionType::integers || spec.type == OptionType::numbers)
    for (const Json& element : value) check_range(spec, element, where);
  if (spec.type != OptionType::string || !*spec.choices) return;
  const auto choices = split_choices(spec.choices);
  const auto word = value.get<std::string>();
  if (std::find(choices.begin(), choices.end(), word) == choices.end())
    fail(Code::invalid_argument, where, " cannot be '", word, "'", suggestion(word, choices));
}

// A single string is accepted as a list of one.
Json as_list(const OptionSpec& spec, const Json& value) {
  const bool one = spec.type == OptionType::strings && value.is_string();
  return one ? Json::array({value}) : value;
}

// Logs the warning once for each owner: a job's options are read several times in a run.
void warn_of_former_name(const OptionSpec& spec, const std::string& owner) {
  static std::mutex mutex;
  static std::set<std::string> told;
  {
    std::lock_guard lock(mutex);
    if (!told.insert(cat(owner, ": ", spec.former)).second) return;
  }
  log_line(LogLevel::warning, cat(owner, ": option '", spec.former, "' is now called '", spec.name,
                                  "'; the old name will stop working"));
}

// Returns the option's value in `given`, under its present or former name; null if it has none.
const Json* find_value(const OptionSpec& spec, const std::string& owner, const Json& given) {
  const auto present = given.find(spec.name);
  const auto former = *spec.former ? given.find(spec.former) : given.end();
  if (former == given.end()) return present == given.end() ? nullptr : &*present;
  if (present != given.end())
    fail(Code::invalid_argument, owner, ": '", spec.former, "' is the former name of option '",
         spec.name, "'; give one of them");
  warn_of_former_name(spec, owner);
  return &*former;
}

// Throws unless `object` is null, or an object whose keys are all allowed; suggests one of `names`.
template <typename IsAllowed>
void check_each_key(const Json& object, std::span<const std::string> names,
                    const std::string& owner, const IsAllowed& is_allowed) {
  if (object.is_null()) return;
  if (!object.is_object())
    fail(Code::invalid_argument, owner, ": expected an object of options, not ", object.dump());
  for (const auto& [key, value] : object.items())
    if (!is_allowed(key))
      fail(Code::invalid_argument, owner, ": unknown option '", key, "'", suggestion(key, names));
}

}  // namespace

const char* option_type_name(OptionType type) {
  switch (type) {
    case OptionType::boolean: return "boolean";
    case OptionType::integer: return "integer";
    case OptionType::number: return "number";
    case OptionType::string: return "string";
    case OptionType::integers: return "list of integers";
    case OptionType::numbers: return "list of numbers";
    case OptionType::strings: return "list of strings";
    case OptionType::stages: return "list of stages";
    case OptionType::layers: return "list of layers";
  }
  return "?";
}

Options::Options(Schema schema, const std::string& owner, const Json& given) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : schema) names.emplace_back(spec.name);
  check_each_key(given, names, owner, [&](const std::string& key) {
    return std::any_of(schema.begin(), schema.end(),
                       [&](const OptionSpec& spec) { return spec.is_called(key); });
  });
  auto values = std::make_shared<Json>(Json::object());
  for (const OptionSpec& spec : schema) {
    if (const Json* found = find_value(spec, owner, given)) {
      Json value = as_list(spec, *found);
      check_value(spec, value, owner);
      (*values)[spec.name] = std::move(value);
    } else if (spec.default_json) {
      (*values)[spec.name] = Json::parse(spec.default_json);
    } else {
      fail(Code::invalid_argument, owner, ": option '", spec.name, "' (",
           option_type_name(spec.type), ") is required: ", spec.sentence);
    }
  }
  values_ = std::move(values);
}

const Json& Options::at(std::string_view name) const {
  const auto it = values_->find(std::string(name));
  if (it == values_->end()) fail(Code::internal, "option '", name, "' is not in its schema");
  return *it;
}

bool Options::boolean(std::string_view name) const { return at(name).get<bool>(); }
int64_t Options::integer(std::string_view name) const { return at(name).get<int64_t>(); }
double Options::number(std::string_view name) const { return at(name).get<double>(); }
std::string Options::string(std::string_view name) const { return at(name).get<std::string>(); }
std::vector<int64_t> Options::integers(std::string_view name) const {
  return at(name).get<std::vector<int64_t>>();
}
std::vector<std::string> Options::strings(std::string_view name) const {
  return at(name).get<std::vector<std::string>>();
}

std::vector<double> Options::numbers(std::string_view name) const {
  return at(name).get<std::vector<double>>();
}

std::string changed_options(Schema schema, const Options& options,
                            std::span<const std::string_view> names, const std::string& section) {
  std::string out;
  for (const OptionSpec& spec : schema) {
    if (std::find(names.begin(), names.end(), spec.name) == names.end()) continue;
    const Json& value = options.json()[spec.name];
    if (value != Json::parse(spec.default_json))
      out += cat(out.empty() ? "" : " and ", section, ".", spec.name, " is ", value.dump());
  }
  return out;
}

void set_option(Json& options, Schema schema, std::string_view name, Json value) {
  for (const OptionSpec& spec : schema)
    if (spec.name == name) remove_member(options, spec.former);
  options[std::string(name)] = std::move(value);
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates) {
  const std::string near = nearest(word, candidates);
  if (!near.empty()) return cat(" (did you mean '", near, "'?)");
  std::string all;
  for (const std::string& candidate : candidates) all += (all.empty() ? "" : ", ") + candidate;
  return all.empty() ? " (it takes none)" : cat(" (valid: ", all, ")");
}

Json schema_json(Schema schema) {
  Json out = Json::array();
  for (const OptionSpec& spec : schema) {
    Json row = Json::object();
    row["name"] = spec.name;
    row["type"] = option_type_name(spec.type);
    row["required"] = spec.default_json == nullptr;
    if (spec.default_json) row["default"] = Json::parse(spec.default_json);
    if (std::isfinite(spec.min)) row["min"] = spec.min;
    if (std::isfinite(spec.max)) row["max"] = spec.max;
    if (*spec.unit) row["unit"] = spec.unit;
    if (*spec.choices) row["choices"] = split_choices(spec.choices);
    if (*spec.former) row["former"] = spec.former;
    row["doc"] = spec.sentence;
    out.push_back(std::move(row));
  }
  return out;
}

void check_keys(const Json& object, std::span<const std::string> allowed,
                const std::string& owner) {
  check_each_key(object, allowed, owner, [&](const std::string& key) {
    return std::find(allowed.begin(), allowed.end(), key) != allowed.end();
  });
}

}  // namespace etr
