// The optimizer's update of one number, in a slice of the parameters or in a row.
#pragma once

#include <cmath>

namespace etr::server {

inline void descend(float& weight, float direction, float rate) { weight -= rate * direction; }

inline void sgd(float& weight, float& state, float gradient, float rate, float momentum) {
  state = momentum * state + gradient;
  descend(weight, state, rate);
}

inline void adagrad(float& weight, float& state, float gradient, float rate, float epsilon) {
  state += gradient * gradient;
  weight -= rate * gradient / (std::sqrt(state) + epsilon);
}

}  // namespace etr::server
