// The constants of running means, made in double: floats near 1 would lose 1 - beta and its logarithm.
#pragma once

#include <cmath>

namespace etr::optim {

struct Betas {
  Betas(double beta1, double beta2)
      : rest_a(static_cast<float>(1 - beta1)),
        rest_b(static_cast<float>(1 - beta2)),
        log_a(beta1 > 0 ? static_cast<float>(std::log(beta1)) : -1e30f),
        log_b(beta2 > 0 ? static_cast<float>(std::log(beta2)) : -1e30f) {}

  float rest_a, rest_b, log_a, log_b;
};

}  // namespace etr::optim
