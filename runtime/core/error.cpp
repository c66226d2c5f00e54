#include "core/error.h"

#include "core/message.h"
#include "core/utf8.h"

namespace etr {

// The bindings find the program's own exception by its words, so these are not changed.
Error::Error(Code code, const std::string& message)
    : std::runtime_error(code == Code::callback ? as_utf8(message) : as_message(message)),
      code_(code) {}

const char* code_name(Code code) {
  switch (code) {
#define X(name, value, text) \
  case Code::name: return text;
    ETR_STATUS_LIST(X)
#undef X
  }
  return "unknown status";
}

}  // namespace etr
