#include "core/error.h"

namespace etr {

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
