// Kernels are compared with the host before they are used, and replaced where they are wrong.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/platform.h"
#include "gpu/run_once.h"
#include "graph/parameters.h"
#include "ops/conv.h"
#include "ops/gemm_kernels.h"
#include "support/device.h"

namespace etr::test {
namespace {

using ops::GemmKernel;
using ops::GemmMode;

constexpr std::pair<GemmMode, const char*> kModes[] = {{GemmMode::nn, "nn"},
                                                       {GemmMode::tn, "tn"},
                                                       {GemmMode::conv, "conv"},
                                                       {GemmMode::conv_dx, "conv_dx"},
                                                       {GemmMode::conv_dw, "conv_dw"}};

GemmKernel tiled(const char* mode) { return {cat("gemm_tiled_", mode, "_64x64"), {}, 64, 64, 1}; }

// Of a device whose kernels only this check looks at.
gpu::DeviceOptions only_checked(gpu::KernelFamily family = gpu::KernelFamily::automatic) {
  gpu::DeviceOptions options = device_options(family);
  options.compare = gpu::Compare::nothing;
  return options;
}

TEST(GemmCheck, TellsRightFromWrong) {
  gpu::Kernels k(std::make_shared<gpu::Device>(only_checked(gpu::KernelFamily::tiled)));
  for (const auto& [mode, name] : kModes)
    for (const auto& [other, other_name] : kModes)
      EXPECT_EQ(ops::computes_rightly(k, tiled(other_name), mode), mode == other)
          << other_name << " for " << name;
}

// `inner` is the extent along k, as kernels walk it.
ops::GemmParams product_of(GemmMode mode, uint32_t m, uint32_t n, uint32_t inner) {
  ops::GemmParams p = ops::product(m, n, inner);
  if (mode == GemmMode::conv_dw) p.ow = inner, p.c = m;
  p.kc = inner;
  return p;
}

// Expects the kernel to be right. One that is not exact may be less accurate than float32, as the
// device's matrix units are; it must be refused then.
void expect_right(gpu::Kernels& k, const GemmKernel& kernel, GemmMode mode, uint32_t joins = 0) {
  const std::string what = cat(kernel.name(), " with ", joins);
  if (ops::computes_rightly(k, kernel, mode, joins)) return;
  EXPECT_FALSE(kernel.exact) << what;
  EXPECT_FALSE(ops::trusted(k, kernel, mode, joins)) << what;
  std::cout << "less accurate than float32 on this device, and never chosen: " << what << "\n";
}

// All tiles, also those that no model in the tests happens to use.
TEST(GemmCheck, EveryKernelIsRight) {
  std::set<std::string> seen;
  for (const gpu::KernelFamily family : families())
    for (const auto& [mode, name] : kModes)
      for (const auto precision :
           {ops::Precision::fp32, ops::Precision::bf16, ops::Precision::fp16})
        for (const uint32_t inner : {7, 12, 1024}) {  // the last one: of a page
          gpu::Kernels& k = kernels(family);
          const uint32_t side = inner == 7 ? 255 : 256;
          const auto all =
              ops::kernels_for(*k.device(), mode, product_of(mode, side, side, inner), precision);
          EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const GemmKernel& kernel) {
            return kernel.shader.starts_with("gemm_tiled");
          }));
          for (const GemmKernel& kernel : all)
            if (seen.insert(family_name(family) + kernel.name()).second)
              for (const uint32_t joins : {0u, GemmKernel::kResidual | GemmKernel::kKeep,
                                           uint32_t{GemmKernel::kMoments}}) {
                // What is done with C does not depend on how A is walked: once is enough.
                if ((joins & ~kernel.can_join) || (joins && inner != 12)) continue;
                expect_right(k, kernel, mode, joins);
              }
        }
  for (const gpu::KernelFamily family : families())  // and those that load one operand in pairs
    for (const auto& [mode, name] : kModes)
      for (const auto& [m, n, inner] : {std::array{256u, 255u, 12u}, {255u, 256u, 7u}}) {
        const GemmKernel first = ops::kernels_for(
            *device(family), mode, product_of(mode, m, n, inner), ops::Precision::fp32)[0];
        if (seen.insert(family_name(family) + first.name()).second)
          expect_right(kernels(family), first, mode);
      }
  for (const gpu::KernelFamily family : families())  // and those for a few rows
    for (const uint32_t m : {1, 2, 3, 4})
      for (const uint32_t n : {70, 71})
        for (const GemmKernel& kernel : ops::kernels_for(
                 *device(family), GemmMode::nn, ops::product(m, n, 9), ops::Precision::fp32))
          if (seen.insert(family_name(family) + kernel.name()).second)
            expect_right(kernels(family), kernel, GemmMode::nn);
  for (const gpu::KernelFamily family : families())  // and those of three taps a line
    for (const GemmMode mode : {GemmMode::line, GemmMode::line_dw})
      for (const uint32_t c : {7, 8})
        for (const uint32_t width : {16, 10, 11}) {
          ops::GemmParams p = ops::product(64, 70, 96);
          p.c = c, p.ow = width;
          for (const GemmKernel& kernel :
               ops::kernels_for(*device(family), mode, p, ops::Precision::fp32)) {
            if (!seen.insert(family_name(family) + kernel.name()).second) continue;
            for (const uint32_t joins :
                 {0u, GemmKernel::kResidual | GemmKernel::kKeep, uint32_t{GemmKernel::kMoments}})
              if (!(joins & ~kernel.can_join)) expect_right(kernels(family), kernel, mode, joins);
          }
        }
  const bool on_cpu = device()->family() == gpu::KernelFamily::cpu;
  EXPECT_GE(seen.size(), on_cpu ? 5u + 4 * 5 + 15 + 3 * 9 + 6 + 1 : 3u * 5);
}

// [70, 9] by [9, 5] of ones.
std::vector<float> product_on(gpu::Kernels& k) {
  gpu::Arena arena(k.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  ops::Emitter emit(k, arena, commands);
  const auto ones = [&](const Shape& shape) {
    const ops::DeviceTensor tensor = emit.scratch(shape);
    emit.add(gpu::Fill{tensor.buffer, 0x3F800000});
    return tensor;
  };
  const ops::DeviceTensor c = emit.scratch({70, 5});
  emit_gemm(emit, GemmMode::nn, ops::product(70, 5, 9), ones({70, 9}), ones({9, 5}), {}, c);
  gpu::run_once(k.device(), commands);
  const Tensor out = graph::download(k.device(), c);
  return {out.view<float>().begin(), out.view<float>().end()};
}

// The result of a product of small integers.
std::vector<float> integers_on(gpu::Kernels& k, GemmMode mode, const ops::GemmParams& p) {
  gpu::Arena arena(k.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  ops::Emitter emit(k, arena, commands);
  const auto numbers = [&](int64_t count, size_t period) {
    Tensor values(DType::f32, {count});
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
      values.mutable_view<float>()[i] = static_cast<float>(i % period) - 3;
    const ops::DeviceTensor out = emit.scratch({count});
    graph::upload(k.device(), values, out);
    return out;
  };
  const ops::DeviceTensor a = numbers(ops::elements_of_a(mode, p), 7);
  const ops::DeviceTensor b = numbers(int64_t{p.k} * p.n, 5), bias = numbers(p.n, 9);
  const ops::DeviceTensor c = emit.scratch({ops::elements_of_c(mode, p)});
  emit.set_label("layer 3");
  emit_gemm(emit, mode, p, a, b, bias, c);
  gpu::run_once(k.device(), commands);
  const Tensor out = graph::download(k.device(), c);
  return {out.view<float>().begin(), out.view<float>().end()};
}

ops::GemmParams convolution(uint32_t batch) {
  ops::GemmParams p = ops::product(batch * 36, 5, 27);
  p.batch = batch, p.h = p.w = p.oh = p.ow = 6, p.c = p.kc = 3, p.kh = p.kw = 3;
  p.pad_y = p.pad_x = 1;
  return p;
}

// With more rows than fit into the workgroups along an axis.
TEST(Gemm, IsSplitWhereTheDeviceTakesFewWorkgroups) {
  for (const gpu::KernelFamily family : families()) {
    gpu::DeviceOptions options = only_checked(family);
    options.lowered.max_groups = 16;
    gpu::Kernels few(std::make_shared<gpu::Device>(options));
    const auto expect_same = [&](GemmMode mode, const ops::GemmParams& p) {
      EXPECT_TRUE(ops::kernels_for(*few.device(), mode, p, ops::Precision::fp32).empty());
      EXPECT_EQ(integers_on(few, mode, p), integers_on(kernels(family), mode, p))
          << family_name(family);
    };
    expect_same(GemmMode::nn, ops::product(5000, 3, 5));
    expect_same(GemmMode::conv, convolution(160));
    expect_same(GemmMode::conv_dx, convolution(160));
    try {
      integers_on(few, GemmMode::tn, ops::product(5000, 3, 5));
      ADD_FAILURE() << "a transposed operand was split";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
      EXPECT_NE(std::string(error.what()).find("layer 3: a product of 5000 by 3 numbers"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(GemmCheck, AnotherKernelTakesThePlaceOfAWrongOne) {
  static std::vector<std::string> lines;
  lines.clear();
  set_log_hook([](LogLevel level, const char* message) {
    if (level >= LogLevel::warning) lines.emplace_back(message);
  });
  gpu::DeviceOptions options = only_checked();
  options.lowered.wrong_kernels = "gemm_cpu";
  gpu::Kernels some(std::make_shared<gpu::Device>(options));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(product_on(some), std::vector<float>(350, 9.0f));
  if (some.device()->family() == gpu::KernelFamily::cpu) {
    const auto all = ops::kernels_for(*some.device(), GemmMode::nn, ops::product(70, 5, 9),
                                      ops::Precision::fp32);
    const auto wrong = std::count_if(all.begin(), all.end(), [](const GemmKernel& kernel) {
      return kernel.shader.starts_with("gemm_cpu");
    });
    ASSERT_EQ(lines.size(), static_cast<size_t>(wrong));  // one after the other
    EXPECT_NE(lines[0].find("'gemm_cpu_nn_"), std::string::npos) << lines[0];
    EXPECT_NE(lines[0].find("wrongly; a slower one takes its place"), std::string::npos);
  } else {
    EXPECT_TRUE(lines.empty());
  }
  set_log_hook(nullptr);

  options.lowered.wrong_kernels = "gemm_";
  gpu::Kernels none(std::make_shared<gpu::Device>(options));
  try {
    product_on(none);
    FAIL() << "there was no right kernel";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device);
    const std::string last =
        ops::kernels_for(*none.device(), GemmMode::nn, ops::product(70, 5, 9), ops::Precision::fp32)
            .back()
            .shader;
    EXPECT_NE(std::string(error.what()).find(cat("'", last, "'")), std::string::npos)
        << error.what();
  }
}

ops::ConvGeometry small_convolution() {
  return {.batch = 2,
          .h = 5,
          .w = 8,
          .c = 16,
          .oh = 3,
          .ow = 6,
          .filters = 16,
          .kh = 3,
          .kw = 3,
          .stride = 1,
          .pad_y = 0,
          .pad_x = 0,
          .dilation = 1,
          .groups = 1};
}

// Kernels along lines have others after them, too.
TEST(GemmCheck, AConvolutionGoesAnotherWayWhereItsKernelsAreWrong) {
  gpu::DeviceOptions options = only_checked();
  for (const char* wrong : {"", "conv_line"}) {
    options.lowered.wrong_kernels = wrong;
    gpu::Kernels some(std::make_shared<gpu::Device>(options));
    gpu::Arena arena(some.device(), gpu::MemoryUse::device);
    gpu::CommandList commands;
    ops::Emitter emit(some, arena, commands);
    const auto ones = [&](const Shape& shape) {
      const ops::DeviceTensor tensor = emit.scratch(shape);
      emit.add(gpu::Fill{tensor.buffer, 0x3F800000});
      return tensor;
    };
    const ops::ConvGeometry g = small_convolution();
    const ops::DeviceTensor x = ones({2, 5, 8, 16}), w = ones({3, 3, 16, 16}),
                            y = emit.scratch({2, 3, 6, 16}), dw = emit.scratch({3, 3, 16, 16});
    emit_conv(emit, g, x, w, {}, false, y);
    emit_conv_dw(emit, g, x, y, dw);
    gpu::run_once(some.device(), commands);
    const Tensor result = graph::download(some.device(), y),
                 gradient = graph::download(some.device(), dw);
    for (const float value : result.view<float>()) ASSERT_EQ(value, 144.0f);
    for (const float value : gradient.view<float>()) ASSERT_EQ(value, 36 * 144.0f);
    int by_lines = 0;
    for (const gpu::Command& command : commands)
      if (const auto* dispatch = std::get_if<gpu::Dispatch>(&command))
        by_lines += gpu::kernel_name(*dispatch->kernel).starts_with("conv_line");
    const bool can = some.device()->family() == gpu::KernelFamily::cpu && !*wrong;
    EXPECT_EQ(by_lines, can ? 2 : 0);
  }
}

gpu::DeviceKind kind() { return device()->info().kind; }

// [70, 33] by [33, 9] in each precision, tuned and not.
TEST(GemmTuning, FindsAKernelAndKeepsIt) {
  const std::string path = testing::TempDir() + "tuning_test.json";
  std::filesystem::remove(path);
  const gpu::KernelFamily family = families().back();
  const std::string name = device(family)->info().name;
  gpu::Kernels fresh(std::make_shared<gpu::Device>(device_options(family)));
  const std::vector<float> before = product_on(fresh);
  std::vector<std::string> problems, choices;
  fresh.tuning().measure_wanted(fresh, [&](const gpu::Tuning::Progress& progress) {
    problems.push_back(progress.problem);
    choices.push_back(progress.choice);
    return true;
  });
  ASSERT_EQ(problems, std::vector<std::string>{"nn 70x5x9 fp32"});
  EXPECT_EQ(product_on(fresh), before);
  fresh.tuning().write(path, name);

  gpu::Tuning read(kind());
  read.read(path, "another device");
  EXPECT_EQ(read.size(), 0u);
  read.read(path, name);
  EXPECT_EQ(read.choice(problems[0], choices, nullptr), choices[0]);
  read.write(path, "another device");  // beside the first
  gpu::Tuning both(kind());
  both.read(path, name);
  EXPECT_EQ(both.size(), 1u);
}

TEST(GemmTuning, KeepsWhatAnotherProcessHasMeasured) {
  const std::string path = testing::TempDir() + "two_tunings.json";
  std::filesystem::remove(path);
  gpu::Tuning one(kind()), other(kind());
  const auto measure = [](gpu::Tuning& tuning, const std::string& problem) {
    tuning.choice(problem, {}, [](gpu::Kernels&) { return "fast"; });
    tuning.measure_wanted(kernels(), [](const gpu::Tuning::Progress&) { return true; });
  };
  measure(one, "a");
  measure(other, "b");
  one.write(path, "d");
  other.write(path, "d");
  EXPECT_EQ(parse_json(platform::read_file(path), path)["devices"]["d"],
            (Json{{"a", "fast"}, {"b", "fast"}}));
  EXPECT_FALSE(std::filesystem::exists(path + ".lock"));
}

TEST(GemmTuning, KeepsWhatWasMeasuredBeforeAFailure) {
  const std::string path = testing::TempDir() + "failed_tuning.json";
  std::filesystem::remove(path);
  gpu::Tuning tuning(kind());
  tuning.choice("a", {}, [](gpu::Kernels&) { return "fast"; });
  tuning.choice("b", {}, [](gpu::Kernels&) -> std::string {
    fail(Code::device_lost, "the device has gone");
  });
  EXPECT_THROW(
      tuning.measure_into(path, kernels(), [](const gpu::Tuning::Progress&) { return true; }),
      Error);
  const std::string name = device()->info().name;
  EXPECT_EQ(parse_json(platform::read_file(path), path)["devices"][name], (Json{{"a", "fast"}}));
}

// The shader that a product [70, 9] by [9, 5] takes where the tuning file names `choice`, measured
// with the kernels of that checksum.
std::string taken(const gpu::DeviceOptions& options, const std::string& choice,
                  std::string_view checksum = gpu::Tuning::checksum_of_kernels(kind())) {
  const std::string path = testing::TempDir() + "choice_test.json";
  const std::string text = Json{
      {"format", "echotrain kernels 1"},
      {"devices", {{"d", {{"nn 70x5x9 fp32", choice}}}}},
      {"kernels",
       {{"d", checksum}}}}.dump();
  platform::write_file_atomic(path, std::as_bytes(std::span(text)));
  gpu::Kernels fresh(std::make_shared<gpu::Device>(options));
  fresh.tuning().read(path, "d");
  gpu::Arena arena(fresh.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  ops::Emitter emit(fresh, arena, commands);
  const ops::DeviceTensor a = emit.scratch({70, 9}), b = emit.scratch({9, 5}),
                          c = emit.scratch({70, 5});
  emit_gemm(emit, GemmMode::nn, ops::product(70, 5, 9), a, b, {}, c);
  return gpu::kernel_name(*std::get<gpu::Dispatch>(commands.back()).kernel);
}

TEST(GemmTuning, TakesTheChoiceAndNoOther) {
  const gpu::KernelFamily family = families().back();
  gpu::Kernels& k = kernels(family);
  const auto all =
      ops::kernels_for(*k.device(), GemmMode::nn, ops::product(70, 5, 9), ops::Precision::fp32);
  const auto last = std::find_if(all.rbegin(), all.rend(), [&](const GemmKernel& kernel) {
    return ops::trusted(k, kernel, GemmMode::nn);
  });
  EXPECT_EQ(taken(device_options(family), last->name() + " / 1"), last->shader);
  EXPECT_EQ(taken(device_options(family), "gemm_of_the_future 1 2"), all.front().shader);
  EXPECT_EQ(taken(device_options(family), last->name() + " / 1", "00000000"), all.front().shader);
}

// A kernel of the same name may have changed. Files of earlier versions do not tell.
TEST(GemmTuning, MeasuresAgainWithOtherKernels) {
  const std::string path = testing::TempDir() + "dated_tuning.json";
  static std::vector<std::string> lines;
  lines.clear();
  set_log_hook([](LogLevel, const char* message) { lines.emplace_back(message); });
  const Json choices{{"d", {{"a", "fast"}}}, {"e", {{"a", "slow"}}}};
  for (const Json& kernels : {Json(), Json{{"d", "00000000"}}}) {
    Json file{{"format", "echotrain kernels 1"}, {"devices", choices}};
    if (!kernels.is_null()) file["kernels"] = kernels;
    const std::string text = file.dump();
    platform::write_file_atomic(path, std::as_bytes(std::span(text)));
    gpu::Tuning tuning(kind());
    tuning.read(path, "d");
    EXPECT_EQ(tuning.size(), 0u);
    ASSERT_EQ(lines.size(), 1u);
    for (const char* part : {"dated_tuning.json", "'d'", "tune-kernels"})
      EXPECT_NE(lines[0].find(part), std::string::npos) << lines[0];
    lines.clear();
    tuning.choice("b", {}, [](gpu::Kernels&) { return "fast"; });
    tuning.measure_wanted(test::kernels(), [](const gpu::Tuning::Progress&) { return true; });
    tuning.write(path, "d");
    const Json after = parse_json(platform::read_file(path), path);
    EXPECT_EQ(after["devices"], (Json{{"d", {{"b", "fast"}}}, {"e", {{"a", "slow"}}}}));
    gpu::Tuning again(kind());
    again.read(path, "d");
    EXPECT_EQ(again.size(), 1u);
    EXPECT_TRUE(lines.empty());
  }
  set_log_hook(nullptr);
}

// GPUs do not choose among the kernels for CPUs.
TEST(GemmTuning, NotesTheKernelsOfTheKindOfDevice) {
  const std::string path = testing::TempDir() + "tuning_of_a_gpu.json";
  std::filesystem::remove(path);
  gpu::Tuning written(gpu::DeviceKind::integrated);
  written.choice("a", {}, [](gpu::Kernels&) { return "fast"; });
  written.measure_wanted(test::kernels(), [](const gpu::Tuning::Progress&) { return true; });
  written.write(path, "d");
  for (const gpu::DeviceKind kind : {gpu::DeviceKind::discrete, gpu::DeviceKind::cpu}) {
    gpu::Tuning read(kind);
    read.read(path, "d");
    EXPECT_EQ(read.size(), kind == gpu::DeviceKind::cpu ? 0u : 1u);
  }
}

// As after an upgrade that has other kernels.
TEST(GemmTuning, MeasuresAgainWhatNoKernelIsCalledAnyMore) {
  const std::string path = testing::TempDir() + "stale_tuning.json";
  const std::string product = "nn 70x5x9 fp32", pass = "convolution 2x5x8x16 to 16 pad 0x0";
  const Json stale{{"format", "echotrain kernels 1"},
                   {"devices", {{"d", {{product, "gemm_of_the_past 1 2"}, {pass, "by_hand"}}}}},
                   {"kernels", {{"d", gpu::Tuning::checksum_of_kernels(kind())}}}};
  const std::string text = stale.dump();
  platform::write_file_atomic(path, std::as_bytes(std::span(text)));
  const auto choices = [&] { return parse_json(platform::read_file(path), path)["devices"]["d"]; };
  gpu::Kernels fresh(std::make_shared<gpu::Device>(device_options()));
  fresh.tuning().read(path, "d");
  product_on(fresh);
  gpu::Arena arena(fresh.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  ops::Emitter emit(fresh, arena, commands);
  const ops::ConvGeometry g = small_convolution();
  emit_conv(emit, g, emit.scratch({g.batch, g.h, g.w, g.c}),
            emit.scratch({g.kh, g.kw, g.c, g.filters}), {}, false,
            emit.scratch({g.batch, g.oh, g.ow, g.filters}));
  fresh.tuning().measure_wanted(fresh, [](const gpu::Tuning::Progress&) { return true; });
  fresh.tuning().write(path, "d");
  EXPECT_EQ(choices()[product].get<std::string>().find("gemm_of_the_past"), std::string::npos);
  if (fresh.device()->family() != gpu::KernelFamily::cpu) return;  // others go one way
  EXPECT_NE(choices()[pass], "by_hand");
}

// Also where it was measured fastest.
TEST(GemmTuning, TakesNoKernelThatIsWrong) {
  for (const gpu::KernelFamily family : families()) {
    gpu::DeviceOptions options = only_checked(family);
    const auto all = ops::kernels_for(*device(family), GemmMode::nn, ops::product(70, 5, 9),
                                      ops::Precision::fp32);
    for (const GemmKernel& kernel : all) {
      options.lowered.wrong_kernels = kernel.shader;
      const auto other = std::find_if(all.begin(), all.end(), [&](const GemmKernel& one) {
        return !one.shader.starts_with(kernel.shader);
      });
      if (other == all.end()) continue;
      EXPECT_EQ(taken(options, kernel.name() + " / 1"), other->shader);
    }
  }
}

// Its ways sum slices that lie in memory of their own.
TEST(GemmTuning, WaysTakeTheSameMemoryOneAfterAnother) {
  gpu::DeviceOptions options = device_options();
  const ops::GemmParams p = ops::product(512, 512, 256);
  const auto bytes = [](int64_t elements) { return 4 * static_cast<uint64_t>(elements); };
  const uint64_t c = bytes(ops::elements_of_c(GemmMode::tn, p));
  uint64_t largest = 0, all = 0;
  for (const GemmKernel& kernel :
       ops::kernels_for(*device(), GemmMode::tn, p, ops::Precision::fp32))
    for (const uint32_t slices : ops::slices_for(kernel, GemmMode::tn, p)) {
      const uint64_t of_way = slices > 1 ? slices * c : 0;
      largest = std::max(largest, of_way), all += of_way;
    }
  const uint64_t operands = bytes(ops::elements_of_a(GemmMode::tn, p)) + bytes(p.k * p.n) + c;
  options.memory_limit_bytes = operands + 3 * largest;
  if (operands + all <= options.memory_limit_bytes) GTEST_SKIP() << "this device has few ways";
  gpu::Kernels k(std::make_shared<gpu::Device>(options));
  EXPECT_FALSE(ops::time_kernels(k, GemmMode::tn, p, ops::Precision::fp32).empty());
}

TEST(GemmTuning, SaysWhatIsWrongWithAFile) {
  const std::string path = testing::TempDir() + "wrong_tuning.json";
  const auto message = [&](const std::string& text) {
    platform::write_file_atomic(path, std::as_bytes(std::span(text)));
    try {
      gpu::Tuning(kind()).read(path, "d");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message("{").find("wrong_tuning.json"), std::string::npos);
  EXPECT_NE(message(R"({"format": "x"})").find("is not a tuning file of this release"),
            std::string::npos);
  EXPECT_NE(message(R"({"format": "echotrain kernels 1", "devices": {"d": {"nn": 3}}})")
                .find("the choice of 'd' for 'nn' must be a string"),
            std::string::npos);
  EXPECT_NE(message(R"({"format": "echotrain kernels 1", "devices": {}, "kernels": 3})")
                .find("'kernels' must be an object"),
            std::string::npos);
}

}  // namespace
}  // namespace etr::test
