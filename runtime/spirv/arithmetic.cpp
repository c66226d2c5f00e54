#include <bit>
#include <cmath>
#include <limits>

#include <spirv/unified1/GLSL.std.450.h>

#include "core/error.h"
#include "core/half.h"
#include "spirv/module.h"

namespace etr::spirv {
namespace {

using spv::Op;

float real(uint32_t word) { return std::bit_cast<float>(word); }
uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
int32_t whole(uint32_t word) { return static_cast<int32_t>(word); }

uint32_t divisor(uint32_t word) {
  if (word == 0) fail(Code::internal, "divides an integer by 0");
  return word;
}

uint32_t shift(uint32_t word) {
  if (word >= 32) fail(Code::internal, "shifts by ", word, " bits");
  return word;
}

// Fails for a value out of range, whose conversion is undefined.
template <typename To>
uint32_t truncated(float value) {
  const double whole_part = std::trunc(static_cast<double>(value));
  if (!(whole_part >= std::numeric_limits<To>::min() &&
        whole_part <= std::numeric_limits<To>::max()))
    fail(Code::internal, "makes an integer of ", value, ", which it cannot hold");
  return static_cast<uint32_t>(static_cast<To>(whole_part));
}

// Rounds to nearest, ties to even.
uint32_t float_to_half(float value) {
  const uint32_t sign = bits(value) >> 16 & 0x8000u;
  const float size = std::abs(value);
  if (std::isnan(value)) return sign | 0x7e00u;
  if (size >= 65520.0f) return sign | 0x7c00u;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int step = std::max(exponent - 11, -24);  // the last place's exponent
  const auto places = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -step)));
  if (step == -24) return sign | places;  // also if it rounds up to the smallest normal number
  return sign | ((static_cast<uint32_t>(step + 25) << 10) + places - 0x400u);
}

template <typename F>
bool each(const Instruction& i, uint32_t* r, const F& f) {
  for (uint32_t k = 0; k < i.n; ++k) r[i.to + k] = f(k);
  return true;
}

template <typename F>
bool of_floats(const Instruction& i, uint32_t* r, const F& f) {
  return each(i, r, [&](uint32_t k) { return bits(f(real(r[i.a + k]), real(r[i.b + k]))); });
}

template <typename F>
bool of_words(const Instruction& i, uint32_t* r, const F& f) {
  return each(i, r, [&](uint32_t k) -> uint32_t { return f(r[i.a + k], r[i.b + k]); });
}

template <typename F>
bool compare_floats(const Instruction& i, uint32_t* r, const F& f) {
  return each(i, r, [&](uint32_t k) -> uint32_t { return f(real(r[i.a + k]), real(r[i.b + k])); });
}

template <typename F>
bool of_one_float(const Instruction& i, uint32_t* r, const F& f) {
  return each(i, r, [&](uint32_t k) { return bits(f(real(r[i.a + k]))); });
}

// Extended instructions (GLSL.std.450) that are elementary functions.
bool evaluate_function(const Instruction& i, uint32_t* r) {
  switch (static_cast<GLSLstd450>(i.extra)) {
    case GLSLstd450Sin: return of_one_float(i, r, [](float a) { return std::sin(a); });
    case GLSLstd450Cos: return of_one_float(i, r, [](float a) { return std::cos(a); });
    case GLSLstd450Tan: return of_one_float(i, r, [](float a) { return std::tan(a); });
    case GLSLstd450Asin: return of_one_float(i, r, [](float a) { return std::asin(a); });
    case GLSLstd450Acos: return of_one_float(i, r, [](float a) { return std::acos(a); });
    case GLSLstd450Atan: return of_one_float(i, r, [](float a) { return std::atan(a); });
    case GLSLstd450Sinh: return of_one_float(i, r, [](float a) { return std::sinh(a); });
    case GLSLstd450Cosh: return of_one_float(i, r, [](float a) { return std::cosh(a); });
    case GLSLstd450Tanh: return of_one_float(i, r, [](float a) { return std::tanh(a); });
    case GLSLstd450Atan2: return of_floats(i, r, [](float a, float b) { return std::atan2(a, b); });
    case GLSLstd450Pow: return of_floats(i, r, [](float a, float b) { return std::pow(a, b); });
    case GLSLstd450Exp: return of_one_float(i, r, [](float a) { return std::exp(a); });
    case GLSLstd450Log: return of_one_float(i, r, [](float a) { return std::log(a); });
    case GLSLstd450Exp2: return of_one_float(i, r, [](float a) { return std::exp2(a); });
    case GLSLstd450Log2: return of_one_float(i, r, [](float a) { return std::log2(a); });
    case GLSLstd450Sqrt: return of_one_float(i, r, [](float a) { return std::sqrt(a); });
    case GLSLstd450InverseSqrt:
      return of_one_float(i, r, [](float a) { return 1.0f / std::sqrt(a); });
    default: return false;
  }
}

// Extended instructions that round, choose or combine floats.
bool evaluate_extended_float(const Instruction& i, uint32_t* r) {
  const auto three_floats = [&](auto f) {
    return each(i, r, [&](uint32_t k) {
      return bits(f(real(r[i.a + k]), real(r[i.b + k]), real(r[i.c + k])));
    });
  };
  switch (static_cast<GLSLstd450>(i.extra)) {
    case GLSLstd450Round:
    case GLSLstd450RoundEven: return of_one_float(i, r, [](float a) { return std::nearbyint(a); });
    case GLSLstd450Trunc: return of_one_float(i, r, [](float a) { return std::trunc(a); });
    case GLSLstd450FAbs: return of_one_float(i, r, [](float a) { return std::abs(a); });
    case GLSLstd450FSign:
      return of_one_float(i, r, [](float a) { return a > 0 ? 1.0f : a < 0 ? -1.0f : 0.0f; });
    case GLSLstd450Floor: return of_one_float(i, r, [](float a) { return std::floor(a); });
    case GLSLstd450Ceil: return of_one_float(i, r, [](float a) { return std::ceil(a); });
    case GLSLstd450Fract: return of_one_float(i, r, [](float a) { return a - std::floor(a); });
    case GLSLstd450FMin:
    case GLSLstd450NMin: return of_floats(i, r, [](float a, float b) { return std::fmin(a, b); });
    case GLSLstd450FMax:
    case GLSLstd450NMax: return of_floats(i, r, [](float a, float b) { return std::fmax(a, b); });
    case GLSLstd450FClamp:
    case GLSLstd450NClamp:
      return three_floats(
          [](float x, float low, float high) { return std::fmin(std::fmax(x, low), high); });
    case GLSLstd450FMix:
      return three_floats([](float x, float y, float a) { return x * (1.0f - a) + y * a; });
    case GLSLstd450Step:
      return of_floats(i, r, [](float edge, float x) { return x < edge ? 0.0f : 1.0f; });
    case GLSLstd450SmoothStep:
      return three_floats([](float low, float high, float x) {
        const float t = std::fmin(std::fmax((x - low) / (high - low), 0.0f), 1.0f);
        return t * t * (3.0f - 2.0f * t);
      });
    case GLSLstd450Fma:
      return three_floats([](float a, float b, float c) { return std::fma(a, b, c); });
    default: return false;
  }
}

bool evaluate_extended_integer(const Instruction& i, uint32_t* r) {
  const auto of_signed = [&](auto f) {
    return of_words(
        i, r, [&](uint32_t a, uint32_t b) { return static_cast<uint32_t>(f(whole(a), whole(b))); });
  };
  switch (static_cast<GLSLstd450>(i.extra)) {
    case GLSLstd450SAbs:
      return each(i, r,
                  [&](uint32_t k) { return whole(r[i.a + k]) < 0 ? 0 - r[i.a + k] : r[i.a + k]; });
    case GLSLstd450SSign:
      return each(i, r, [&](uint32_t k) {
        return static_cast<uint32_t>((whole(r[i.a + k]) > 0) - (whole(r[i.a + k]) < 0));
      });
    case GLSLstd450UMin:
      return of_words(i, r, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
    case GLSLstd450UMax:
      return of_words(i, r, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
    case GLSLstd450SMin: return of_signed([](int32_t a, int32_t b) { return a < b ? a : b; });
    case GLSLstd450SMax: return of_signed([](int32_t a, int32_t b) { return a > b ? a : b; });
    case GLSLstd450UClamp:
      return each(
          i, r, [&](uint32_t k) { return std::min(std::max(r[i.a + k], r[i.b + k]), r[i.c + k]); });
    case GLSLstd450SClamp:
      return each(i, r, [&](uint32_t k) {
        const int32_t low = std::max(whole(r[i.a + k]), whole(r[i.b + k]));
        return static_cast<uint32_t>(std::min(low, whole(r[i.c + k])));
      });
    default: return false;
  }
}

bool evaluate_packing(const Instruction& i, uint32_t* r) {
  switch (static_cast<GLSLstd450>(i.extra)) {
    case GLSLstd450PackHalf2x16:
      r[i.to] = float_to_half(real(r[i.a])) | float_to_half(real(r[i.a + 1])) << 16;
      return true;
    case GLSLstd450UnpackHalf2x16: {
      const uint32_t packed = r[i.a];
      r[i.to] = bits(half_to_float(static_cast<uint16_t>(packed)));
      r[i.to + 1] = bits(half_to_float(static_cast<uint16_t>(packed >> 16)));
      return true;
    }
    default: return false;
  }
}

bool evaluate_extended(const Instruction& i, uint32_t* r) {
  return evaluate_function(i, r) || evaluate_extended_float(i, r) ||
         evaluate_extended_integer(i, r) || evaluate_packing(i, r);
}

bool evaluate_integer(const Instruction& i, uint32_t* r) {
  using U = uint32_t;
  switch (i.op) {
    case Op::OpIAdd: return of_words(i, r, [](U a, U b) { return a + b; });
    case Op::OpISub: return of_words(i, r, [](U a, U b) { return a - b; });
    case Op::OpIMul: return of_words(i, r, [](U a, U b) { return a * b; });
    case Op::OpUDiv: return of_words(i, r, [](U a, U b) { return a / divisor(b); });
    case Op::OpUMod: return of_words(i, r, [](U a, U b) { return a % divisor(b); });
    case Op::OpSDiv:
      return of_words(
          i, r, [](U a, U b) { return static_cast<U>(int64_t{whole(a)} / whole(divisor(b))); });
    case Op::OpSRem:
      return of_words(
          i, r, [](U a, U b) { return static_cast<U>(int64_t{whole(a)} % whole(divisor(b))); });
    case Op::OpSMod:
      return of_words(i, r, [](U a, U b) {
        const int64_t by = whole(divisor(b)), rest = int64_t{whole(a)} % by;
        return static_cast<U>(rest != 0 && (rest < 0) != (by < 0) ? rest + by : rest);
      });
    case Op::OpSNegate: return each(i, r, [&](U k) { return 0 - r[i.a + k]; });
    case Op::OpNot: return each(i, r, [&](U k) { return ~r[i.a + k]; });
    case Op::OpUMulExtended: {
      for (U k = 0; k < i.extra_count; ++k) {
        const uint64_t product = uint64_t{r[i.a + k]} * r[i.b + k];
        r[i.to + k] = static_cast<U>(product);
        r[i.to + i.extra_count + k] = static_cast<U>(product >> 32);
      }
      return true;
    }
    case Op::OpShiftRightLogical: return of_words(i, r, [](U a, U b) { return a >> shift(b); });
    case Op::OpShiftLeftLogical: return of_words(i, r, [](U a, U b) { return a << shift(b); });
    case Op::OpShiftRightArithmetic:
      return of_words(i, r, [](U a, U b) { return static_cast<U>(whole(a) >> shift(b)); });
    case Op::OpBitwiseOr: return of_words(i, r, [](U a, U b) { return a | b; });
    case Op::OpBitwiseXor: return of_words(i, r, [](U a, U b) { return a ^ b; });
    case Op::OpBitwiseAnd: return of_words(i, r, [](U a, U b) { return a & b; });
    case Op::OpIEqual:
    case Op::OpLogicalEqual: return of_words(i, r, [](U a, U b) { return a == b; });
    case Op::OpINotEqual:
    case Op::OpLogicalNotEqual: return of_words(i, r, [](U a, U b) { return a != b; });
    case Op::OpLogicalOr: return of_words(i, r, [](U a, U b) { return a | b; });
    case Op::OpLogicalAnd: return of_words(i, r, [](U a, U b) { return a & b; });
    case Op::OpLogicalNot: return each(i, r, [&](U k) { return r[i.a + k] ^ 1; });
    case Op::OpUGreaterThan: return of_words(i, r, [](U a, U b) { return a > b; });
    case Op::OpUGreaterThanEqual: return of_words(i, r, [](U a, U b) { return a >= b; });
    case Op::OpULessThan: return of_words(i, r, [](U a, U b) { return a < b; });
    case Op::OpULessThanEqual: return of_words(i, r, [](U a, U b) { return a <= b; });
    case Op::OpSGreaterThan: return of_words(i, r, [](U a, U b) { return whole(a) > whole(b); });
    case Op::OpSGreaterThanEqual:
      return of_words(i, r, [](U a, U b) { return whole(a) >= whole(b); });
    case Op::OpSLessThan: return of_words(i, r, [](U a, U b) { return whole(a) < whole(b); });
    case Op::OpSLessThanEqual: return of_words(i, r, [](U a, U b) { return whole(a) <= whole(b); });
    default: return false;
  }
}

bool evaluate_float(const Instruction& i, uint32_t* r) {
  switch (i.op) {
    case Op::OpFAdd: return of_floats(i, r, [](float a, float b) { return a + b; });
    case Op::OpFSub: return of_floats(i, r, [](float a, float b) { return a - b; });
    case Op::OpFMul: return of_floats(i, r, [](float a, float b) { return a * b; });
    case Op::OpFDiv: return of_floats(i, r, [](float a, float b) { return a / b; });
    case Op::OpFRem: return of_floats(i, r, [](float a, float b) { return std::fmod(a, b); });
    case Op::OpFMod:
      return of_floats(i, r, [](float a, float b) { return a - b * std::floor(a / b); });
    case Op::OpFNegate: return of_one_float(i, r, [](float a) { return -a; });
    case Op::OpVectorTimesScalar: {
      const float by = real(r[i.b]);
      return of_one_float(i, r, [&](float a) { return a * by; });
    }
    case Op::OpDot: {
      float sum = real(r[i.a]) * real(r[i.b]);
      for (uint32_t k = 1; k < i.extra_count; ++k) sum += real(r[i.a + k]) * real(r[i.b + k]);
      r[i.to] = bits(sum);
      return true;
    }
    case Op::OpIsNan:
      return each(i, r, [&](uint32_t k) -> uint32_t { return std::isnan(real(r[i.a + k])); });
    case Op::OpIsInf:
      return each(i, r, [&](uint32_t k) -> uint32_t { return std::isinf(real(r[i.a + k])); });
    case Op::OpFOrdEqual: return compare_floats(i, r, [](float a, float b) { return a == b; });
    case Op::OpFUnordEqual:
      return compare_floats(i, r, [](float a, float b) { return !(a < b || a > b); });
    case Op::OpFOrdNotEqual:
      return compare_floats(i, r, [](float a, float b) { return a < b || a > b; });
    case Op::OpFUnordNotEqual: return compare_floats(i, r, [](float a, float b) { return a != b; });
    case Op::OpFOrdLessThan: return compare_floats(i, r, [](float a, float b) { return a < b; });
    case Op::OpFUnordLessThan:
      return compare_floats(i, r, [](float a, float b) { return !(a >= b); });
    case Op::OpFOrdGreaterThan: return compare_floats(i, r, [](float a, float b) { return a > b; });
    case Op::OpFUnordGreaterThan:
      return compare_floats(i, r, [](float a, float b) { return !(a <= b); });
    case Op::OpFOrdLessThanEqual:
      return compare_floats(i, r, [](float a, float b) { return a <= b; });
    case Op::OpFUnordLessThanEqual:
      return compare_floats(i, r, [](float a, float b) { return !(a > b); });
    case Op::OpFOrdGreaterThanEqual:
      return compare_floats(i, r, [](float a, float b) { return a >= b; });
    case Op::OpFUnordGreaterThanEqual:
      return compare_floats(i, r, [](float a, float b) { return !(a < b); });
    case Op::OpConvertFToU:
      return each(i, r, [&](uint32_t k) { return truncated<uint32_t>(real(r[i.a + k])); });
    case Op::OpConvertFToS:
      return each(i, r, [&](uint32_t k) { return truncated<int32_t>(real(r[i.a + k])); });
    case Op::OpConvertSToF:
      return each(i, r, [&](uint32_t k) { return bits(static_cast<float>(whole(r[i.a + k]))); });
    case Op::OpConvertUToF:
      return each(i, r, [&](uint32_t k) { return bits(static_cast<float>(r[i.a + k])); });
    default: return false;
  }
}

bool evaluate_composite(const Instruction& i, const Module& m, uint32_t* r) {
  switch (i.op) {
    case Op::OpCopyObject:
    case Op::OpBitcast: return each(i, r, [&](uint32_t k) { return r[i.a + k]; });
    case Op::OpSelect: {
      const bool by_element = i.extra_count == i.n;
      return each(i, r, [&](uint32_t k) {
        return r[i.a + (by_element ? k : 0)] ? r[i.b + k] : r[i.c + k];
      });
    }
    case Op::OpCompositeConstruct: {
      uint32_t to = i.to;
      for (uint32_t part = i.extra; part < i.extra + i.extra_count; part += 2)
        for (uint32_t k = 0; k < m.extra[part + 1]; ++k) r[to++] = r[m.extra[part] + k];
      return true;
    }
    case Op::OpCompositeInsert:
      for (uint32_t k = 0; k < i.n; ++k) r[i.to + k] = r[i.b + k];
      for (uint32_t k = 0; k < i.extra_count; ++k) r[i.to + i.c + k] = r[i.a + k];
      return true;
    case Op::OpVectorShuffle:
      return each(i, r, [&](uint32_t k) { return r[m.extra[i.extra + k]]; });
    case Op::OpVectorExtractDynamic:
      if (r[i.b] >= i.extra_count) fail(Code::internal, "takes element ", r[i.b], " of a vector");
      r[i.to] = r[i.a + r[i.b]];
      return true;
    case Op::OpVectorInsertDynamic: {
      const uint32_t at = r[i.c], value = r[i.b];
      if (at >= i.n) fail(Code::internal, "puts element ", at, " of a vector");
      for (uint32_t k = 0; k < i.n; ++k) r[i.to + k] = r[i.a + k];
      r[i.to + at] = value;
      return true;
    }
    case Op::OpAny:
    case Op::OpAll: {
      uint32_t found = 0;
      for (uint32_t k = 0; k < i.extra_count; ++k) found += r[i.a + k];
      r[i.to] = i.op == Op::OpAny ? found > 0 : found == i.extra_count;
      return true;
    }
    default: return false;
  }
}

}  // namespace

bool evaluate(const Instruction& i, const Module& module, uint32_t* registers) {
  return evaluate_float(i, registers) || evaluate_integer(i, registers) ||
         evaluate_composite(i, module, registers) ||
         (i.op == Op::OpExtInst && evaluate_extended(i, registers));
}

}  // namespace etr::spirv
