// Checked access to the members of an external JSON object: if a member is missing or has the wrong
// type, the error says what was found.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/json_fwd.h"

namespace etr {

class JsonMembers {
 public:
  // Errors begin with `problem`: "the saved state is damaged" gives "the saved state is damaged:
  // 'epoch' is -1, not a whole number". The accessors throw Error(code), as does the constructor if
  // `object` is not a JSON object. `object` must outlive this.
  JsonMembers(const Json& object, std::string problem, Code code);

  bool has(const char* key) const;
  const Json& at(const char* key) const;
  const Json& object(const char* key) const;
  JsonMembers part(const char* key) const;  // the members of an object; errors also name `key`
  const Json& list(const char* key) const;
  const std::string& text(const char* key) const;
  bool flag(const char* key) const;
  double number(const char* key) const;       // from 0 to 1e15
  double real_or_nan(const char* key) const;  // any number; null: NaN, which JSON cannot express
  // Stricter than the JSON library's conversions, which also accept -1 and 1.5.
  uint64_t whole(const char* key, uint64_t most = UINT64_MAX) const;
  uint64_t count(const char* key) const;  // up to 1e15, so that sums do not overflow

 private:
  [[noreturn]] void wrong(const char* key, const Json& found, const std::string& expected) const;

  const Json& object_;
  const std::string problem_;
  const Code code_;
};

// The value as JSON text for an error message, truncated if long.
std::string brief_json(const Json& value);

// Throws Error(invalid_argument) for a NUL character in a string, or in a string of a list. The
// operating system would cut a path or name off there.
void check_no_nul(const Json& value, const std::string& where);

}  // namespace etr
