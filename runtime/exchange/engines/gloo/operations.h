// Performs a call of the library with Gloo.
#pragma once

#include <gloo/context.h>

#include <cstddef>
#include <memory>
#include <span>

#include "exchange/helper_protocol.h"

namespace etr::exchange {

// Works on the shared memory. `ordinal` counts the collective calls and keeps their messages apart.
void perform(const std::shared_ptr<gloo::Context>& context, const Call& call,
             std::span<const uint64_t> sizes, std::byte* memory, uint64_t ordinal);

}  // namespace etr::exchange
