// Options with a declared schema.
//
// Every stage, layer, optimizer, schedule and job section lists its options once, as data. From
// that list come validation, defaults, the C API's enumeration, the command line's help and the
// documentation pages.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/parse_json.h"

namespace etr {

enum class OptionType {
  boolean,
  integer,
  number,
  string,
  integers,
  numbers,
  strings,
  stages,
  layers
};

const char* option_type_name(OptionType type);

struct OptionSpec {
  const char* name;
  OptionType type;
  const char* default_json;  // the default as JSON text; nullptr: the option is required
  const char* sentence;      // description in one sentence
  double min = -std::numeric_limits<double>::infinity();  // of a number, or of each list element
  double max = std::numeric_limits<double>::infinity();
  const char* unit = "";     // "path": a location, which saved positions do not depend on
  const char* choices = "";  // allowed values of a string, separated by '|'; "" allows any
  // An earlier name, which is still accepted, with a warning; "" for none.
  const char* former = "";

  bool is_called(std::string_view key) const { return key == name || (*former && key == former); }
};

using Schema = std::span<const OptionSpec>;

// Validated options: every key of the schema has a value of the right type and range. Immutable,
// cheap to copy and safe to share between threads.
class Options {
 public:
  // `owner` says in errors whose options these are: "stage 'echo' (3rd of the pipeline)". Throws
  // Error(invalid_argument) that names the key, the nearest valid one, and the allowed values.
  Options(Schema schema, const std::string& owner, const Json& given);

  bool boolean(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  std::string string(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;
  std::vector<double> numbers(std::string_view name) const;
  std::vector<std::string> strings(std::string_view name) const;

  const Json& json() const { return *values_; }

 private:
  const Json& at(std::string_view name) const;

  std::shared_ptr<const Json> values_;
};

// Lists those of the named options that are not at their defaults, in the schema's order:
// "parallel.n_push is 4 and parallel.delay is 2"; "" if all are.
std::string changed_options(Schema schema, const Options& options,
                            std::span<const std::string_view> names, const std::string& section);

// Sets an option in JSON that may have it under its former name.
void set_option(Json& options, Schema schema, std::string_view name, Json value);

// " (did you mean 'x'?)", or the list of candidates if none is close.
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

// The schema as JSON: [{"name", "type", "default", "min", "max", "unit", "choices", "former",
// "doc"}, ...].
Json schema_json(Schema schema);

// Throws Error(invalid_argument) unless every key of `object` is in `allowed`.
void check_keys(const Json& object, std::span<const std::string> allowed, const std::string& owner);

}  // namespace etr
