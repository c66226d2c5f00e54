#include "exchange/numbers.h"

#include "core/platform.h"

namespace etr::exchange {

ETR_VECTOR_CLONES
void add_short(Float16* out, const Float16* a, const Float16* b, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = Float16::of(a[i].value() + b[i].value());
}

ETR_VECTOR_CLONES
void add_short(BFloat16* out, const BFloat16* a, const BFloat16* b, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = BFloat16::of(a[i].value() + b[i].value());
}

}  // namespace etr::exchange
