// The number types and reductions of engines, with their codes from echotrain/engine.h.
#pragma once

#include <echotrain/engine.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "core/error.h"
#include "exchange/short_numbers.h"

namespace etr::exchange {

enum class Number : int32_t { f32 = ETR_NUMBER_F32, f64, i32, i64, f16, bf16 };
static_assert(static_cast<int>(Number::bf16) == ETR_NUMBER_BF16);
enum class Reduction : int32_t { sum = ETR_REDUCE_SUM, min, max };

template <typename T>
struct NumberOf;
template <>
struct NumberOf<float> : std::integral_constant<Number, Number::f32> {};
template <>
struct NumberOf<double> : std::integral_constant<Number, Number::f64> {};
template <>
struct NumberOf<int32_t> : std::integral_constant<Number, Number::i32> {};
template <>
struct NumberOf<int64_t> : std::integral_constant<Number, Number::i64> {};
template <>
struct NumberOf<Float16> : std::integral_constant<Number, Number::f16> {};
template <>
struct NumberOf<BFloat16> : std::integral_constant<Number, Number::bf16> {};

// Calls `use` with a value of the type that `number` denotes.
template <typename Use>
decltype(auto) with_number(Number number, Use&& use) {
  switch (number) {
    case Number::f32: return use(float{});
    case Number::f64: return use(double{});
    case Number::i32: return use(int32_t{});
    case Number::i64: return use(int64_t{});
    case Number::f16: return use(Float16{});
    case Number::bf16: return use(BFloat16{});
  }
  fail(Code::invalid_argument, "a reduction of numbers of the unknown type ",
       static_cast<int32_t>(number));
}

inline size_t number_size(Number number) {
  return with_number(number, [](auto zero) { return sizeof zero; });
}

template <typename T>
constexpr bool is_short = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// Signed integers wrap around.
template <typename T>
T added(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <typename T>
bool less(T a, T b) {
  if constexpr (is_short<T>)
    return a.value() < b.value();
  else
    return a < b;
}

// out[i] = a[i] + b[i], rounded; `out` may be `a` or `b`. Uses the processor's widest vectors.
void add_short(Float16* out, const Float16* a, const Float16* b, size_t count);
void add_short(BFloat16* out, const BFloat16* a, const BFloat16* b, size_t count);

// out[i] = a[i] (+) b[i]; `out` may be `a` or `b`.
template <typename T>
void reduce(Reduction reduction, T* out, const T* a, const T* b, size_t count) {
  switch (reduction) {
    case Reduction::sum:
      if constexpr (is_short<T>)
        add_short(out, a, b, count);
      else
        std::transform(a, a + count, b, out, added<T>);
      return;
    case Reduction::min:
      std::transform(a, a + count, b, out, [](T x, T y) { return less(y, x) ? y : x; });
      return;
    case Reduction::max:
      std::transform(a, a + count, b, out, [](T x, T y) { return less(x, y) ? y : x; });
      return;
  }
  fail(Code::invalid_argument, "the unknown reduction ", static_cast<int32_t>(reduction));
}

inline void reduce(Number number, Reduction reduction, void* out, const void* a, const void* b,
                   size_t count) {
  with_number(number, [&]<typename T>(T) {
    reduce(reduction, static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b),
           count);
  });
}

}  // namespace etr::exchange
