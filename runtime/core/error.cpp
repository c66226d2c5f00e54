#include "core/error.h"

#include "core/message.h"

namespace etr {

Error::Error(Code code, const std::string& message)
    : std::runtime_error(as_message(message)), code_(code) {}

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
