#include "train/algorithm.h"

#include <string>

#include "core/error.h"

namespace etr::train {

Algorithm algorithm_of(const Options& parallel) {
  const std::string name = parallel.string("algorithm");
  if (name == "synchronous") return Algorithm::synchronous;
  if (name == "diloco") return Algorithm::diloco;
  if (name == "downpour") return Algorithm::downpour;
  if (name == "easgd") return Algorithm::elastic_averaging;
  fail(Code::internal, "the schema knows the algorithm '", name, "', and nobody else does");
}

}  // namespace etr::train
