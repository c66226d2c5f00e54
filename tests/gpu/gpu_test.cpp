#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/platform.h"
#include "gpu/recording.h"
#include "gpu/run_once.h"
#include "gpu/shader_table.h"
#include "gpu/wide_vectors.h"
#include "support/data.h"
#include "support/device.h"
#include "support/submissions.h"

namespace etr::test {
namespace {

using namespace gpu;

TEST(Device, IsFoundByIndexAndByName) {
  const auto all = list_devices();
  ASSERT_FALSE(all.empty());
  for (size_t i = 1; i < all.size(); ++i)
    EXPECT_LE(static_cast<int>(all[i - 1].kind), static_cast<int>(all[i].kind))
        << "GPUs first, CPUs last";
  EXPECT_EQ(Device({.selector = ""}).info().name, all[0].name);
  EXPECT_EQ(Device({.selector = "0"}).info().name, all[0].name);
  std::string part = all[0].name.substr(0, 4);
  for (char& c : part) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  EXPECT_EQ(Device({.selector = part}).info().index, all[0].index);
  DeviceInfo info;
  info.name = "NVIDIA GeForce RTX 4090";
  EXPECT_TRUE(matches(info, "4090"));
  EXPECT_FALSE(matches(info, "90")) << "of the list, and not a part of the name";
}

TEST(Device, AnUnknownOneIsAnErrorThatListsThoseThereAre) {
  for (const char* selector : {"99", "no such gpu"}) {
    try {
      Device device({.selector = selector});
      ADD_FAILURE() << selector;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::no_device);
      EXPECT_NE(std::string(error.what()).find(list_devices()[0].name), std::string::npos);
    }
  }
}

TEST(Device, WhoseSubgroupsDoNotAddRunsTheKernelsForGpus) {
  DeviceOptions options = device_options();
  options.lowered.subgroup_arithmetic = false;
  EXPECT_NE(Device(options).family(), KernelFamily::cpu);
}

TEST(Device, WithWorkgroupsThatAreTooSmallIsRefused) {
  DeviceOptions options = device_options(KernelFamily::tiled);
  options.lowered.max_workgroup = 128;
  try {
    Device device(options);
    ADD_FAILURE() << "kernels for GPUs on 128 invocations";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_NE(std::string(error.what()).find("at most 128 invocations in a workgroup"),
              std::string::npos);
  }
}

TEST(Device, ThatBindsTooFewBuffersIsRefused) {
  DeviceOptions options = device_options(KernelFamily::tiled);
  options.lowered.max_storage_buffers = 8;
  try {
    Device device(options);
    ADD_FAILURE() << "kernels for GPUs with 8 buffers";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    const std::string message = error.what();
    EXPECT_NE(message.find("at most 8 storage buffers"), std::string::npos) << message;
    EXPECT_NE(message.find("maxPerStageDescriptorStorageBuffers"), std::string::npos) << message;
  }
}

TEST(Device, RefusesBuffersBeyondItsLimit) {
  DeviceOptions options = device_options();
  options.lowered.max_buffer_bytes = 1 << 20;
  Arena arena(std::make_shared<Device>(options), MemoryUse::device);
  arena.allocate_whole(1 << 20);
  try {
    arena.allocate_whole((1 << 20) + 4);
    ADD_FAILURE() << "a larger buffer than the device makes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
    const std::string message = error.what();
    EXPECT_NE(message.find("only of 1048576 (maxBufferSize)"), std::string::npos) << message;
  }
}

TEST(Device, TensorsHaveNoMoreElementsThanKernelsCount) {
  for (const KernelFamily family : families())
    EXPECT_LE(device(family)->max_tensor_bytes() / 4, uint64_t{1} << 31) << family_name(family);
}

TEST(Device, KeepsAPipelineCacheOnDisk) {
  TempDir dir;
  {
    Kernels k(std::make_shared<Device>(
        DeviceOptions{.selector = "", .cache_directory = dir.path("cache")}));
    k.get("add", {}, 2, 4);
  }
  ASSERT_FALSE(std::filesystem::is_empty(dir.path("cache")));
  Kernels again(std::make_shared<Device>(
      DeviceOptions{.selector = "", .cache_directory = dir.path("cache")}));
  again.get("add", {}, 2, 4);  // from the file; a damaged one is only slower
}

// Some drivers do not say their version, and others say a lot.
TEST(Device, FilesInTheCacheAreOfOneBuildOfADriver) {
  DeviceInfo info;
  info.name = "A GPU (1.2)";
  std::array<uint8_t, VK_UUID_SIZE> build{0x01, 0xaf};
  const std::string name = cache_name_of(info, build);
  EXPECT_EQ(name, "A_GPU__1_2__-01af0000000000000000000000000000");
  build[15] = 1;
  EXPECT_NE(cache_name_of(info, build), name);
  info.driver = std::string(400, 'v');
  EXPECT_LE(cache_name_of(info, build).size(), 200u);
}

TEST(WideVectors, AreForDriversThatGainByThem) {
  const auto gains = [](const char* driver) {
    DeviceInfo device;
    device.driver = driver;
    return gains_by_wide_vectors(device);
  };
  EXPECT_TRUE(gains("llvmpipe Mesa 25.0.7-2~bpo12+1 (LLVM 15.0.6)"));
  EXPECT_FALSE(gains("llvmpipe Mesa 24.0.9-0ubuntu0.1 (LLVM 17.0.6)")) << "not measured";
  EXPECT_FALSE(gains("llvmpipe Mesa 22.3.6 (LLVM 15.0.6)"));
  EXPECT_FALSE(gains("llvmpipe"));
  EXPECT_FALSE(gains("SwiftShader driver"));
  EXPECT_FALSE(gains("radv Mesa 25.0.7"));
}

// In a process of its own: the environment must not change under devices that are open.
TEST(WideVectors, TheEnvironmentFollowsTheDriver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto asked = [] {
    const char* width = std::getenv("LP_NATIVE_VECTOR_WIDTH");
    return width && std::string(width) == "512";
  };
  EXPECT_EXIT(
      {
        ::unsetenv("LP_NATIVE_VECTOR_WIDTH");
        const auto devices = list_devices();
        const bool expected = platform::may_widen_cpu_vectors() &&
                              std::any_of(devices.begin(), devices.end(), gains_by_wide_vectors);
        prefer_wide_cpu_vectors();
        std::_Exit(asked() == expected ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        ::setenv("LP_NATIVE_VECTOR_WIDTH", "128", 1);
        prefer_wide_cpu_vectors();
        std::_Exit(asked() ? 1 : 0);  // what the user has chosen stays
      },
      testing::ExitedWithCode(0), "");
}

TEST(Arena, BuffersAreAlignedAndDoNotOverlap) {
  Arena arena(device(), MemoryUse::upload);
  std::vector<Buffer> buffers;
  for (const uint64_t bytes : {1u, 100u, 4096u, 20u << 20, 7u})
    buffers.push_back(arena.allocate(bytes));
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(buffers[i].offset % 64, 0u);
    std::memset(buffers[i].host, static_cast<int>(i + 1), buffers[i].size_bytes);
  }
  for (size_t i = 0; i < buffers.size(); ++i)
    EXPECT_EQ(buffers[i].host[buffers[i].size_bytes - 1],
              std::byte{static_cast<unsigned char>(i + 1)});
  EXPECT_THROW(arena.allocate(device()->max_tensor_bytes() + 1), Error);
}

// What a CPU's driver works on in large pieces lies in pages of the library's own, and is counted
// and given back.
TEST(Arena, LargeBlocksOfACpuLieInHugePages) {
  const DeviceInfo& info = device()->info();
  if (info.kind != DeviceKind::cpu || !info.imports_memory) return;  // memory of its own
  const uint64_t before = device()->allocated_bytes();
  {
    Arena arena(device(), MemoryUse::readback);
    const Buffer buffer = arena.allocate((5u << 20) + 100);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.host) % platform::kHugePage, 0u);
    EXPECT_GE(device()->allocated_bytes(), before + (6u << 20));
    run_once(device(), {Fill{buffer, 0x01020304}});
    EXPECT_EQ(buffer.host[buffer.size_bytes - 1], std::byte{1});
  }
  EXPECT_EQ(device()->allocated_bytes(), before);
}

TEST(Recording, BarriersComeFromReadsAndWrites) {
  Arena arena(device(), MemoryUse::upload);
  const Buffer a = arena.allocate(256), b = arena.allocate(256), c = arena.allocate(256),
               d = arena.allocate(256);
  const auto barriers = [&](const CommandList& commands) {
    return Recording(device(), commands).barriers();
  };
  EXPECT_EQ(barriers({Copy{a, b}, Copy{a, c}}), 0) << "two reads";
  EXPECT_EQ(barriers({Copy{a, b}, Copy{c, d}}), 0) << "nothing in common";
  EXPECT_EQ(barriers({Copy{a, b}, Copy{b, c}}), 1) << "read after write";
  EXPECT_EQ(barriers({Copy{a, b}, Copy{c, b}}), 1) << "write after write";
  EXPECT_EQ(barriers({Copy{a, b}, Copy{c, a}}), 1) << "write after read";
  EXPECT_EQ(barriers({Copy{a, b}, Copy{b, c}, Copy{a, d}}), 1) << "the barrier has dealt with b";
  EXPECT_EQ(barriers({Copy{a.slice(0, 64), b.slice(0, 64)}, Copy{b.slice(64, 64), c.slice(0, 64)}}),
            0)
      << "other ranges of one buffer";
}

TEST(Recording, IsReplayed) {
  Arena arena(device(), MemoryUse::upload);
  const Buffer x = arena.allocate(64 * 4), y = arena.allocate(64 * 4);
  const uint32_t count = 64;
  Kernels& k = kernels();
  Dispatch add{"add",
               &k.get("add", {}, 2, 4),
               {{x, Access::read}, {y, Access::read_write}},
               push_bytes(count),
               {1, 1, 1}};
  Recording recording(device(), {add, add});
  EXPECT_EQ(recording.barriers(), 1);
  auto* xs = reinterpret_cast<float*>(x.host);
  auto* ys = reinterpret_cast<float*>(y.host);
  for (int i = 0; i < 64; ++i) xs[i] = static_cast<float>(i), ys[i] = 1;
  for (int replay = 1; replay <= 3; ++replay) {
    recording.submit();
    recording.wait();
    for (int i = 0; i < 64; ++i) ASSERT_EQ(ys[i], static_cast<float>(1 + 2 * replay * i));
  }
  EXPECT_TRUE(recording.done());
  if (device()->info().timestamp_period_ns > 0) {
    EXPECT_GT(recording.busy_seconds(), 0);
  }
}

// Chains of dependent commands, in any number of submissions: barriers reach over their ends.
TEST(Recording, PartsGiveWhatTheWholeGives) {
  Arena arena(device(), MemoryUse::upload);
  const Buffer x = arena.allocate(64 * 4), y = arena.allocate(64 * 4);
  const uint32_t count = 64;
  const Kernel& kernel = kernels().get("add", {}, 2, 4);
  const auto add = [&](const Buffer& from, const Buffer& to) {
    return Dispatch{"add",
                    &kernel,
                    {{from, Access::read}, {to, Access::read_write}},
                    push_bytes(count),
                    {1, 1, 1}};
  };
  CommandList fibonacci;
  for (int i = 0; i < 10; ++i) {
    fibonacci.push_back(add(x, y));
    fibonacci.push_back(add(y, x));
  }
  for (const int parts : {1, 3, 20, 50}) {
    Recording recording(device(), fibonacci, /*timed=*/false, parts);
    EXPECT_EQ(recording.parts(), std::min(parts, 20));
    auto* xs = reinterpret_cast<float*>(x.host);
    auto* ys = reinterpret_cast<float*>(y.host);
    xs[7] = 0, ys[7] = 1;
    recording.submit();
    recording.wait();
    EXPECT_EQ(xs[7], 6765) << parts << " parts";
    EXPECT_EQ(ys[7], 4181) << parts << " parts";
  }
}

TEST(Recording, ClocksOfFewBitsBeginAgain) {
  EXPECT_EQ(ticks_between(5, 12, 64), 7u);
  EXPECT_EQ(ticks_between((uint64_t{1} << 36) - 3, 4, 36), 7u);
}

TEST(Recording, MoreWorkgroupsThanTheDeviceTakesAreRefused) {
  Arena arena(device(), MemoryUse::upload);
  const Buffer x = arena.allocate(64), y = arena.allocate(64);
  const uint32_t count = 16;
  Dispatch add{"layer 3",
               &kernels().get("add", {}, 2, 4),
               {{x, Access::read}, {y, Access::read_write}},
               push_bytes(count),
               {1, device()->info().max_groups[1], 1}};
  Recording most(device(), {add});
  if (++add.groups[1] == 0) GTEST_SKIP() << "the device takes as many as can be counted";
  try {
    Recording more(device(), {add});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_NE(std::string(error.what()).find("layer 3"), std::string::npos) << error.what();
  }
}

// CPU devices have no watchdog; on others a step's first time decides.
TEST(Recording, LongSubmissionsAreCut) {
  const CommandList commands(10, Fill{});
  const bool cpu = device()->info().kind == DeviceKind::cpu;
  EXPECT_EQ(parts_for(*device(), commands, 0.1), 1);
  EXPECT_EQ(parts_for(*device(), commands, 0.7), cpu ? 1 : 3);
  EXPECT_EQ(parts_for(*device(), commands, 1e6), cpu ? 1 : 10);
}

// What runs once is submitted in parts, too: so run the first step of a plan, and a step that is
// repeated to find a NaN.
TEST(Recording, LongSubmissionsThatAreMadeOnceAreCut) {
  for (const bool watchdog : {false, true}) {
    DeviceOptions options = device_options();
    options.lowered.watchdog = watchdog;
    options.longest_submit_seconds = 1e-9;
    const auto opened = std::make_shared<Device>(options);
    Arena arena(opened, MemoryUse::device);
    const CommandList commands(10, Fill{arena.allocate(4096), 0});
    const Submissions submissions(*opened);
    run_once(opened, commands);
    const bool cut = watchdog || opened->info().kind != DeviceKind::cpu;
    EXPECT_EQ(submissions.count(), cut ? 10 : 1);
  }
}

TEST(Kernels, MistakesAreNamed) {
  EXPECT_THROW(kernels().get("no_such_shader", {}, 1, 0), Error);
  kernels().get("add", {}, 2, 4);
  EXPECT_THROW(kernels().get("add", {}, 3, 4), Error) << "another interface";
}

TEST(ShaderTable, NamesAreUniqueAndModulesAreSpirv) {
  std::set<std::string_view> names;
  for (const ShaderCode& code : shader_table()) {
    EXPECT_TRUE(names.insert(code.name).second) << code.name;
    EXPECT_EQ(code.words[0], 0x07230203u) << code.name;
  }
  EXPECT_GT(names.size(), 40u);
}

}  // namespace
}  // namespace etr::test
