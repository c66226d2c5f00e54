// Shaders on the host: what they compute, and which of their faults it tells.
#include "spirv/machine.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "gpu/glsl.h"

namespace etr::test {
namespace {

using spirv::Argument;
using spirv::Machine;
using spirv::Module;
using spirv::Storage;

// Buffers a (floats) and b (integers), 8 invocations a workgroup, 8 floats of shared memory.
std::string shader(const std::string& body, const std::string& functions = "") {
  return R"(#version 450
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
layout(local_size_x = 8) in;
layout(constant_id = 0) const uint chosen = 5;
layout(binding = 0, std430) buffer A { float a[]; };
layout(binding = 1, std430) buffer B { uint b[]; };
layout(push_constant) uniform Push { uint count; float scale; };
shared float s[8];
)" + functions +
         R"(
void main() {
  const uint i = gl_LocalInvocationID.x, g = gl_GlobalInvocationID.x;
)" + body +
         "\n}\n";
}

struct Trial {
  std::vector<float> a = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<uint32_t> b = std::vector<uint32_t>(64);
  uint32_t groups = 1;
  bool a_reads = true, a_writes = true;
  uint64_t address = 0;  // of a
  std::vector<uint32_t> constants;
  uint64_t most = ~uint64_t{0};
  bool done = true;
  std::vector<Storage::State> states;  // afterwards, of a

  void operator()(const std::string& source) {
    const std::vector<uint32_t> words = gpu::compile_glsl(source, "a test's shader");
    const Module module(words, constants);
    const auto storage_of = [](auto& values) {
      return Storage(values.size() * 4, [&values](uint64_t offset, std::span<uint32_t> to) {
        std::memcpy(to.data(), reinterpret_cast<const char*>(values.data()) + offset,
                    to.size_bytes());
      });
    };
    Storage on_a = storage_of(a), on_b = storage_of(b);
    struct {
      uint32_t count = 3;
      float scale = 0.5f;
    } push;
    Machine machine(
        module, {{&on_a, 0, a.size() * 4, address, a_reads, a_writes}, {&on_b, 0, b.size() * 4, 0}},
        std::as_bytes(std::span(&push, 1)), {{groups, 1, 1}, 8});
    for (uint32_t group = 0; group < groups; ++group)
      done = done && machine.run({group, 0, 0}, most);
    for (size_t k = 0; k < a.size(); ++k) {
      a[k] = std::bit_cast<float>(on_a.word(4 * k).value);
      states.push_back(on_a.word(4 * k).state);
    }
    for (size_t k = 0; k < b.size(); ++k) b[k] = on_b.word(4 * k).value;
  }
};

std::string fault_of(const std::string& body, Trial run = {}) {
  try {
    run(shader(body));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::internal) << error.what();
    return error.what();
  }
  return "";
}

TEST(Machine, ComputesWhatGlslSays) {
  const std::pair<const char*, double> cases[] = {
      {"1.5 + a[1] * -2.0", -2.5},
      {"a[6] / a[1] - a[0]", 2.5},
      {"mod(-7.0, 4.0)", 1},
      {"float(-7 / 2) + float(7u % 4u)", 0},
      {"float(int(a[2]) << 3 | 1)", 25},
      {"float(int(-64 + count) >> 2)", -16},
      {"float((0xF0u ^ 0xFFu) & ~1u)", 14},
      {"float(uint(a[7] + 0.75)) + float(int(-1.75))", 7},
      {"uintBitsToFloat(floatBitsToUint(a[4]))", 5},
      {"dot(vec3(a[0], a[1], a[2]), vec3(2.0, 0.5, -1.0))", 0},
      {"vec4(a[0], a[1], a[2], a[3]).wzyx[int(count)]", 1},
      {"length(vec2(a[2], a[3]).yx * scale * vec2(2.0))", -1},  // not known: see below
      {"mix(2.0, 4.0, 0.25) + clamp(9.0, 0.0, 1.0) + fract(2.25)", 3.75},
      {"step(1.0, 0.5) + smoothstep(0.0, 1.0, 0.5) + sign(-3.0)", -0.5},
      {"exp(1.0)", std::exp(1.0)},
      {"log2(8.0) + exp2(3.0) + pow(2.0, 5.0) + sqrt(16.0) + inversesqrt(4.0)", 47.5},
      {"tanh(0.5)", std::tanh(0.5)},
      {"sin(1.0) * cos(1.0)", std::sin(1.0) * std::cos(1.0)},
      {"atan(1.0, 2.0)", std::atan2(1.0, 2.0)},
      {"roundEven(2.5) + floor(-0.5) + ceil(0.5) + trunc(-1.5)", 1},
      {"fma(2.0, 3.0, 4.0)", 10},
      {"float(max(-3, 2) + min(-3, 2) + abs(-3) + sign(-3))", 1},
      {"float(clamp(9u, 1u, 5u) + uint(clamp(-9, -2, 5) + 2))", 5},
      {"unpackHalf2x16(packHalf2x16(vec2(1.0 / 3.0, -65536.0))).x", 0.333251953125},
      {"unpackHalf2x16(packHalf2x16(vec2(5.9604645e-8, 0.0))).x", 5.9604645e-8},
      {"all(lessThan(vec2(1.0, 2.0), vec2(2.0, 3.0))) ? 1.0 : 0.0", 1},
      {"any(equal(ivec2(1, 2), ivec2(2, 3))) ? 1.0 : 0.0", 0},
      {"isnan(0.0 / (a[0] - 1.0)) && isinf(1.0 / (a[0] - 1.0)) ? 1.0 : 0.0", 1},
      {"float(chosen * gl_WorkGroupSize.x)", 72},
      {"float(a.length() + b.length())", 72},
  };
  for (const auto& [expression, value] : cases) {
    Trial run;
    run.constants = {9};
    if (value == -1) {
      EXPECT_THROW(run(shader(cat("a[0] = ", expression, ";"))), Error) << expression;
      continue;
    }
    run(shader(cat("if (g == 0) a[0] = ", expression, ";")));
    EXPECT_NEAR(run.a[0], value, 1e-6 * std::abs(value)) << expression;
  }
}

TEST(Machine, LoadsNumbersOf64BitsAndCastsThem) {
  const std::string wide =
      "#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n"
      "layout(set = 0, binding = 0) buffer Wide { uint64_t w[]; };\n";
  Trial run;
  run(shader("if (g == 0) b[0] = unpack32(w[1]).y;", wide));
  EXPECT_EQ(run.b[0], std::bit_cast<uint32_t>(4.0f));
  for (const char* other :
       {"w[0] = w[1] + w[2];", "w[0] = 7ul;", "w[0] = uint64_t(g);", "w[0] = min(w[1], w[2]);",
        "w[0] = (u64vec2(w[1], w[2]) + u64vec2(w[2], w[3])).y;"})
    EXPECT_THROW(run(shader(other, wide)), Error) << other;
}

TEST(Machine, KnowsFloatsThatAreWrittenAs64Bits) {
  const std::string wide =
      "#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n"
      "layout(set = 0, binding = 0) buffer Wide { uint64_t w[]; };\n";
  Trial run;
  run(
      shader("if (g == 0) { w[0] = pack64(floatBitsToUint(vec2(a[2], a[3])));"
             " w[1] = pack64(uvec2(5u, 6u)); a[4] = 1.0; }",
             wide));
  EXPECT_EQ(run.a[0], 3);
  EXPECT_EQ(run.a[1], 4);
  using State = Storage::State;
  const std::vector<State> states{State::written_float,   State::written_float,
                                  State::written_integer, State::written_integer,
                                  State::written_float,   State::fetched};
  EXPECT_EQ(std::vector<State>(run.states.begin(), run.states.begin() + 6), states);
}

TEST(Machine, RefusesUnalignedNumbersOf64Bits) {
  const std::string wide =
      "#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n"
      "#extension GL_EXT_buffer_reference : require\n"
      "layout(buffer_reference, std430, buffer_reference_align = 8) buffer Wide { uint64_t w[]; "
      "};\n"
      "layout(set = 0, binding = 0) buffer Holder { Wide there; };\n";
  const auto to = [&](uint32_t byte, const char* body) {
    Trial run;
    run.address = 4096;
    run.a[0] = std::bit_cast<float>(4096 + byte), run.a[1] = 0;  // a pointer of 64 bits
    run(shader(cat("if (g == 0) ", body), wide));
    return run;
  };
  const char* store = "there.w[0] = pack64(floatBitsToUint(vec2(9, 10)));";
  const Trial aligned = to(8, store);
  EXPECT_EQ(aligned.a[2], 9);
  EXPECT_EQ(aligned.a[3], 10);
  EXPECT_THROW(to(12, store), Error);
  EXPECT_THROW(to(12, "b[0] = unpack32(there.w[0]).y;"), Error);
}

TEST(Machine, FollowsControlAndCalls) {
  Trial run;
  run(shader(
      R"(
  Pair pair = Pair(0, vec2(0.0));
  for (uint k = 0; k < 10; ++k) {
    if (k == 1) continue;
    if (k == 6) break;
    switch (k) {
      case 0: pair.count += 100; break;
      case 2:
      case 3: pair.count += 10; break;
      default: ++pair.count;
    }
  }
  float table[4] = float[](1.0, 2.0, 3.0, 4.0);
  table[i & 3] += float(i);
  twice(table[i & 3], pair);
  uint rest = i;
  do { rest = rest > 2 ? rest - 2 : 0; } while (rest > 2);
  a[i] = table[i & 3] + pair.both.y;
  b[i] = pair.count * 10 + rest;)",
      R"(
struct Pair { uint count; vec2 both; };
float half_of(float x) { if (x > 100.0) return 50.0; return x * scale; }
void twice(inout float x, inout Pair pair) { x *= 2.0; pair.both = vec2(x, half_of(x)).yx; }
)"));
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(run.a[i], 2.0f * static_cast<float>(2 * i + 1 - 4 * (i / 4)) +
                            2.0f * static_cast<float>(2 * i + 1 - 4 * (i / 4)));
    const uint32_t rest = i == 0 ? 0 : i <= 2 ? (i > 2 ? i - 2 : 0) : 2 - i % 2;
    EXPECT_EQ(run.b[i], 1220 + rest) << i;
  }
}

// Partial sums over shared memory, and of a subgroup that has lanes off.
TEST(Machine, JoinsInvocations) {
  Trial run;
  run.groups = 2;
  run.a.resize(16, 10);
  run(shader(R"(
  s[i] = a[g];
  for (uint half_ = 4; half_ > 0; half_ /= 2) {
    barrier();
    if (i < half_) s[i] += s[i + half_];
  }
  barrier();
  const float all = s[0];
  float odd = 0.0;
  if (i % 2 == 1) odd = subgroupAdd(float(i)) + subgroupMax(-float(i));
  b[g] = uint(all) * 100 + uint(odd) + uint(subgroupBroadcast(float(i), 3)) * 10000;)"));
  for (uint32_t g = 0; g < 16; ++g)
    EXPECT_EQ(run.b[g], (g < 8 ? 3600u : 8000u) + (g % 2 ? 15 : 0) + 30000) << g;
}

TEST(Machine, TellsFaults) {
  const auto expect = [](const char* body, const char* told, const Trial& run = {}) {
    EXPECT_NE(fault_of(body, run).find(told), std::string::npos) << body << "\n"
                                                                 << fault_of(body, run);
  };
  expect("a[i + 1] = 0.0;",
         "invocation 7 of workgroup 0, 0, 0: writes byte 32 of buffer 0, which has 32");
  expect("b[i] = b[i - 1];",
         "invocation 0 of workgroup 0, 0, 0: reads byte 17179869180 of buffer 1");
  expect("float t[3]; t[i] = 1.0; b[i] = uint(t[i]);", "takes element 3 of an array of 3");
  expect("s[i] = 1.0; b[i] = uint(s[7 - i]);",
         "reads byte 28 of shared memory, which nobody has written");
  expect("s[i] = float(i); barrier(); b[i] = uint(s[7 - i]); s[i] = 9.0;",
         "invocation 4 of workgroup 0, 0, 0: reads byte 12 of shared memory, which another");
  expect("s[i] = float(i); barrier(); b[i] = uint(s[i & 3]); if (i == 7) s[1] = 9.0;",
         "of shared memory, which another invocation reads, with no barrier");
  expect("s[i / 2] = float(i);", "of shared memory, which another invocation writes otherwise");
  expect("s[i] = 2.0; barrier(); if (i == 0) s[1] = 3.0; if (i == 1) b[0] = uint(s[1]);",
         "reads byte 4 of shared memory, which another invocation writes");
  expect("b[i] = i + 1; b[8] = b[0];", "which another invocation writes");
  // A barrier orders shared memory; buffers need memoryBarrierBuffer() as well.
  expect("b[i] = i + 1; barrier(); b[8 + i] = b[7 - i];", "which another");
  expect("if (i < 4) { s[i] = 1.0; barrier(); }", "has ended where others of its workgroup wait");
  expect("if (i < 4) barrier(); else { s[i] = 0.0; barrier(); }", "waits at another barrier");
  expect("b[i] = 4 / i;", "divides an integer by 0");
  expect("b[i] = 1 << (i + 30);", "shifts by 32 bits");
  expect("b[i] = uint(a[i] - 2.0);", "makes an integer of -1");
  Trial two;
  two.groups = 2;
  expect("b[i] = g;",
         "workgroup 1, 0, 0: writes byte 0 of buffer 1, which another invocation writes otherwise",
         two);
  expect("if (g == 0) b[0] = 7; b[16 + g] = b[0];", "which another invocation", two);
  expect("if (g == 8) b[0] = 7; else b[16 + g] = b[0];", "which another invocation reads", two);
  Trial read_only, write_only;
  read_only.a_writes = false;
  expect("a[i] = 0.0;", "writes buffer 0, which it is given to read", read_only);
  write_only.a_reads = false;
  expect("a[i] += 1.0;", "reads byte 0 of buffer 0 before it has written it", write_only);
}

TEST(Machine, SeesNoFaultWhereThereIsNone) {
  Trial two, write_only;
  two.groups = 2;
  write_only.a_reads = false;
  for (const char* body :
       {"b[0] = 7;", "b[g] = b[g] + b[31];",
        "s[i] = float(i); barrier(); const float x = s[7 - i]; barrier(); s[i] = x; b[g] = "
        "uint(x);",
        "b[g] = g; memoryBarrierBuffer(); barrier(); b[g + 16] = g < 8 ? b[7 - i] : 0;"})
    EXPECT_EQ(fault_of(body, two), "") << body;
  EXPECT_EQ(fault_of("a[i] = 1.0; a[i] += 1.0;", write_only), "");
  EXPECT_EQ(fault_of("a[i] = a[i] + 1.0;"), "");
}

TEST(Machine, GivesUpWhereItTakesTooLong) {
  Trial run;
  run.most = 10000;
  run(shader("while (b[0] == 0) a[i] += 1.0;"));
  EXPECT_FALSE(run.done);
}

TEST(Machine, SaysWhatItDoesNotRun) {
  const auto told = [](const std::string& source) {
    try {
      Trial()(source);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(told(shader("atomicAdd(b[0], 1);")), "");
  EXPECT_NE(told(shader("a[i] = float(double(a[i]) * 2.0lf);")), "");
  EXPECT_NE(told(shader("b[i] = uint((mat2(1.0) * vec2(a[i])).x);")), "");
  EXPECT_THROW(Module(std::vector<uint32_t>{1, 2, 3, 4, 5}, {}), Error);
}

}  // namespace
}  // namespace etr::test
