// The members of a JSON object that comes from outside: each is there and of its type, or an error says in plain words what is.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/json_fwd.h"

namespace etr {

class JsonMembers {
 public:
  // Errors begin with `problem`: "the saved state is damaged" gives "the saved state is damaged: 'epoch' is -1, not a whole
  // number". Throws Error(code), as all of these do, where `object` is none. It must outlive this.
  JsonMembers(const Json& object, std::string problem, Code code);

  bool has(const char* key) const;
  const Json& at(const char* key) const;
  const Json& object(const char* key) const;
  const Json& list(const char* key) const;
  const std::string& text(const char* key) const;
  bool flag(const char* key) const;
  double number(const char* key) const;  // neither negative nor beyond 1e15
  // Conversions of the JSON library would take -1 and 1.5 too.
  uint64_t whole(const char* key, uint64_t most = UINT64_MAX) const;

 private:
  [[noreturn]] void wrong(const char* key, const Json& found, const std::string& expected) const;

  const Json& object_;
  const std::string problem_;
  const Code code_;
};

// The value as JSON text for an error, cut where it is long.
std::string brief_json(const Json& value);

// Paths and names go to the system, which would cut them off there: a NUL character in a text, or in a list's, is an error.
void check_no_nul(const Json& value, const std::string& where);

}  // namespace etr
