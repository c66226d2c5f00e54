// The names of the functions of one element.
#pragma once

namespace etr::ops {

#define ETR_UNARY(name) "|" #name
// "none|relu|leaky_relu|...": the choices of an option that may also be "none".
inline constexpr const char kUnaryOrNone[] = "none"
#include "ops/unary_list.inc"
    ;
#undef ETR_UNARY

// "relu|leaky_relu|...".
inline constexpr const char* kUnaryFunctions = kUnaryOrNone + sizeof("none");

}  // namespace etr::ops
