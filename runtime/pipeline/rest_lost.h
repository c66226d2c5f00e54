// The error after which a source does not know how many records it has left out.
#pragma once

#include "core/error.h"

namespace etr::pipeline {

// Reading a file has failed, and its remaining records are lost along with the bad one. Sources
// that pair records cannot go on after it, nor can a run whose ranks count the same records.
class RestLost : public Error {
 public:
  explicit RestLost(const Error& error) : Error(error) {}
};

}  // namespace etr::pipeline
