// Checks MPI calls: an error code becomes an exception.
#pragma once

#include <mpi.h>

#include <string>

#include "core/error.h"

namespace etr::exchange {

inline std::string mpi_reason(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}

inline void check(int code, const char* call) {
  if (code != MPI_SUCCESS) fail(Code::io, call, ": ", mpi_reason(code));
}

}  // namespace etr::exchange
