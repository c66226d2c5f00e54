// Error messages of calls.
#pragma once

#include <string>

#include "core/error.h"

namespace etr::test {

// Returns the message of the Error that `call` throws; "" if it throws none.
template <typename Call>
std::string error_text(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace etr::test
