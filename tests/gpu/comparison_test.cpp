// What a driver computes against what the host does.
#include "gpu/comparison.h"

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "core/platform.h"
#include "gpu/run_once.h"
#include "support/data.h"
#include "support/device.h"

namespace etr::test {
namespace {

using namespace gpu;
using Result = Comparison::Result;
using State = spirv::Storage::State;

// The verdict on words that host and device have written.
Comparison judged(const std::vector<uint32_t>& host, const std::vector<uint32_t>& device,
                  State state) {
  spirv::Storage::Page page{host, std::vector<State>(host.size(), state), {}};
  Judge judge;
  judge.look_at(page, device, 100);
  return judge.verdict();
}

Comparison judged(const std::vector<float>& host, const std::vector<float>& device) {
  const auto words = [](const std::vector<float>& values) {
    std::vector<uint32_t> out;
    for (const float value : values) out.push_back(std::bit_cast<uint32_t>(value));
    return out;
  };
  return judged(words(host), words(device), State::written_float);
}

TEST(Judge, TellsRoundingFromWrongValues) {
  const float nan = std::nanf(""), infinity = HUGE_VALF;
  EXPECT_EQ(judged({1, -2, 1e-7f}, {1.0005f, -2, -1e-7f}).result, Result::equal);
  const Comparison wrong = judged({1, -2, 3}, {1, -2, 3.1f});
  EXPECT_EQ(wrong.result, Result::different);
  EXPECT_EQ(wrong.why, "word 102 of a buffer is 3.1 instead of 3");
  EXPECT_EQ(judged({1, 2}, {1, nan}).result, Result::different);
  EXPECT_EQ(judged({1, nan}, {1, 2}).result, Result::different);
  EXPECT_EQ(judged({1, nan}, {1, nan}).result, Result::equal);
  EXPECT_EQ(judged({1, infinity}, {1, 2}).result, Result::different);
  EXPECT_EQ(judged({1, 2}, {1, infinity}).result, Result::different);
  EXPECT_EQ(judged({infinity, 2}, {infinity, 2}).result, Result::equal);
  EXPECT_EQ(judged({0, 0}, {0, -0.0f}).result, Result::empty);
  EXPECT_EQ(judged({0, 0}, {0, 1}).result, Result::different);
}

TEST(Judge, TakesIntegersExactly) {
  std::vector<uint32_t> host(200, 7), device = host;
  EXPECT_EQ(judged(host, device, State::written_integer).result, Result::equal);
  device[0] = device[1] = 8;
  EXPECT_EQ(judged(host, device, State::written_integer).result, Result::equal);
  device[2] = 9;
  const Comparison wrong = judged(host, device, State::written_integer);
  EXPECT_EQ(wrong.result, Result::different);
  EXPECT_EQ(wrong.why, "word 100 of a buffer is 8 instead of 7");
  EXPECT_EQ(judged(host, device, State::fetched).result, Result::empty);  // nobody wrote anything
  EXPECT_EQ(judged({5, 6, 7}, {5, 9, 7}, State::written_integer).result, Result::empty);
  EXPECT_EQ(judged({5, 6, 7}, {5, 9, 8}, State::written_integer).result, Result::different);
}

class Log {
 public:
  Log() {
    lines().clear();
    set_log_hook([](LogLevel level, const char* message) {
      if (level >= LogLevel::warning) lines().emplace_back(message);
    });
  }
  ~Log() { set_log_hook(nullptr); }
  static std::vector<std::string>& lines() {
    static std::vector<std::string> the_lines;
    return the_lines;
  }
};

// y += x twice, 100 floats of `value` each.
float sum_on(const DeviceOptions& options, uint32_t value = 0x3F800000) {
  Kernels k(std::make_shared<Device>(options));
  Arena arena(k.device(), MemoryUse::device), back(k.device(), MemoryUse::readback);
  const Buffer x = arena.allocate(400), y = arena.allocate(400), out = back.allocate(400);
  const uint32_t count = 100;
  const Dispatch add{"sum",
                     &k.get("add", {}, 2, 4),
                     {{x, Access::read}, {y, Access::read_write}},
                     push_bytes(count),
                     {2, 1, 1}};
  const CommandList commands{Fill{x, value}, Fill{y, value}, add, add, Copy{y, out}};
  run_once(k.device(), commands);
  EXPECT_EQ(wants_comparison(*k.device(), commands),
            options.compare == Compare::kernels && value == 0);
  return reinterpret_cast<const float*>(out.host)[99];
}

// Compares kernels, and keeps the verdicts in the folder.
DeviceOptions comparing(const TempDir& dir, DeviceOptions options = device_options()) {
  options.compare = Compare::kernels;
  options.cache_directory = dir.path("cache");
  return options;
}

void expect_one_comparison(KernelFamily family) {
  TempDir dir;
  DeviceOptions options = comparing(dir, device_options(family));
  EXPECT_EQ(sum_on(options, 0), 0) << "which says nothing of the kernel";
  const auto verdicts = [&] {
    for (const auto& file : std::filesystem::directory_iterator(dir.path("cache")))
      if (file.path().extension() == ".json") return platform::read_file(file.path().string());
    return std::string();
  };
  EXPECT_EQ(verdicts(), "");
  EXPECT_EQ(sum_on(options), 3);
  EXPECT_NE(verdicts().find("\"right\""), std::string::npos) << verdicts();
  options.lowered.wrong_kernels = "add";  // would be told of, were it compared again
  const Log log;
  EXPECT_EQ(sum_on(options), 3);
  EXPECT_TRUE(Log::lines().empty());
}

TEST(Comparison, IsMadeOnceForADriver) {
  for (const KernelFamily family : families()) {
    SCOPED_TRACE(family_name(family));
    expect_one_comparison(family);
  }
}

TEST(Comparison, IsMadeAnewWhereTheFileIsOfNoUse) {
  TempDir dir;
  const DeviceOptions options = comparing(dir);
  sum_on(options);
  std::string path;
  for (const auto& file : std::filesystem::directory_iterator(dir.path("cache")))
    if (file.path().extension() == ".json") path = file.path().string();
  const std::string right = platform::read_file(path);
  for (const char* text :
       {R"({"format": 1})", R"({"format": "echotrain verdicts 1", "kernels": 3})",
        R"({"kernels": {}})", "[]", "{"}) {
    std::ofstream(path) << text;
    const Log log;
    EXPECT_EQ(sum_on(options), 3) << text;
    ASSERT_EQ(Log::lines().size(), 1u) << text;
    EXPECT_NE(Log::lines()[0].find("kernels are compared anew"), std::string::npos) << text;
    EXPECT_EQ(platform::read_file(path), right) << text;
  }
}

TEST(Comparison, AWrongKernelIsCompiledPlainly) {
  TempDir dir;
  DeviceOptions options = comparing(dir);
  options.lowered.wrong_kernels = "add";
  for (int run = 0; run < 2; ++run) {  // the second knows
    const Log log;
    EXPECT_EQ(sum_on(options), 3);
    ASSERT_EQ(Log::lines().size(), run == 0 ? 1u : 0u);
    if (run > 0) break;
    EXPECT_NE(Log::lines()[0].find("computes the kernel 'add' wrongly"), std::string::npos);
    EXPECT_NE(Log::lines()[0].find("without the driver's optimizer"), std::string::npos);
  }
  options.cache_directory = "";
  options.lowered.hopeless_kernels = "add";
  try {
    sum_on(options);
    FAIL() << "there was no right kernel";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device);
    const std::string what = error.what();
    EXPECT_NE(what.find("sum: the driver of '"), std::string::npos) << what;
    EXPECT_NE(what.find("choose another device"), std::string::npos) << what;
  }
}

// A kernel that reads what it was only given to write is not the driver's fault: tests end with it,
// programs do not.
TEST(Comparison, AFaultOfTheKernelsOwnIsNotTheDrivers) {
  Kernels& k = kernels();
  Arena arena(k.device(), MemoryUse::device);
  const Buffer x = arena.allocate(400), y = arena.allocate(400);
  const uint32_t count = 100;
  Dispatch add{"sum",
               &k.get("add", {}, 2, 4),
               {{x, Access::read}, {y, Access::write}},
               push_bytes(count),
               {2, 1, 1}};
  const Comparison told = compare(k.device(), add, Scope::samples);
  EXPECT_EQ(told.result, Result::faulty);
  EXPECT_NE(told.why.find("reads byte 0 of buffer 1 before it has written it"), std::string::npos);
  try {
    compare(k.device(), add, Scope::all);
    FAIL() << "the fault was not seen";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sum: kernel 'add': invocation 0 of workgroup 0"),
              std::string::npos)
        << error.what();
  }
}

// A kernel that the host cannot run runs, and nobody is to blame.
TEST(Comparison, WhatTheHostCannotRunIsNoMistake) {
  DeviceOptions options = device_options();
  options.compare = Compare::dispatches;
  Kernels k(std::make_shared<Device>(options));
  Arena arena(k.device(), MemoryUse::device), back(k.device(), MemoryUse::readback);
  const Buffer x = arena.allocate(4), out = back.allocate(4);
  const Dispatch count{"count",
                       &k.from_source(R"(#version 450
layout(local_size_x = 32) in;
layout(binding = 0, std430) buffer X { uint x; };
void main() { atomicAdd(x, 1); }
)",
                                      "counter", 1),
                       {{x, Access::read_write}},
                       {},
                       {2, 1, 1}};
  EXPECT_EQ(compare(k.device(), count, Scope::all).result, Result::unknown);
  static std::vector<std::string> lines;
  lines.clear();
  set_log_hook([](LogLevel level, const char* message) {
    EXPECT_LT(level, LogLevel::warning) << message;
    lines.emplace_back(message);
  });
  for (int run = 0; run < 2; ++run) {
    run_once(k.device(), {Fill{x, 0}, count, Copy{x, out}});
    EXPECT_EQ(*reinterpret_cast<const uint32_t*>(out.host), 64u);
  }
  set_log_hook(nullptr);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[0].find("count: kernel 'counter' was not compared with the host: SPIR-V's"),
            std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("the host could not run 1"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[2].find("the host could not run"), std::string::npos) << lines[2];
}

// In place, and into a part of what is read elsewhere.
TEST(Comparison, BuffersMayOverlap) {
  Kernels& k = kernels();
  Arena arena(k.device(), MemoryUse::device);
  const Buffer all = arena.allocate(1024);
  run_once(k.device(), {Fill{all, 0x40000000}});
  const uint32_t count = 64;
  for (const Buffer& x : {all.slice(0, 256), all.slice(512, 256)}) {
    const Dispatch add{"sum",
                       &k.get("add", {}, 2, 4),
                       {{x, Access::read}, {all.slice(0, 256), Access::read_write}},
                       push_bytes(count),
                       {1, 1, 1}};
    EXPECT_EQ(compare(k.device(), add, Scope::all).result, Result::equal);
  }
  Arena back(k.device(), MemoryUse::readback);
  const Buffer out = back.allocate(4);
  run_once(k.device(), {Copy{all.slice(0, 4), out}});
  EXPECT_EQ(*reinterpret_cast<const float*>(out.host), 2) << "compare() works on copies";
}

// What a check meets besides wrong results says nothing of the kernel, and the next call checks it.
TEST(Trust, IsNotDecidedByOtherErrors) {
  const Log log;
  Kernels own(device());
  for (const Code code : {Code::out_of_memory, Code::device_lost, Code::device}) {
    try {
      own.trusts("add", {}, false, [&]() -> bool { throw Error(code, "something else"); });
      ADD_FAILURE() << "decided";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_STREQ(error.what(), "something else");
    }
  }
  EXPECT_TRUE(Log::lines().empty());
  EXPECT_TRUE(own.trusts("add", {}, false, [] { return true; }));
}

TEST(Trust, ARefusedKernelIsNotCalledWrong) {
  const Log log;
  Kernels own(device());
  const auto refused = []() -> bool {
    throw Error(Code::unsupported, "it does not compile 'add'");
  };
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(own.trusts("add", {}, false, refused));
  EXPECT_EQ(Log::lines(),
            std::vector<std::string>{
                "it does not compile 'add'; a slower one takes its place where there is one"});
}

}  // namespace
}  // namespace etr::test
