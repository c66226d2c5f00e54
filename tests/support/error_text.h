// What went wrong in a call.
#pragma once

#include <string>

#include "core/error.h"

namespace etr::test {

// The message of the Error that `call` throws; "" where it throws none.
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
