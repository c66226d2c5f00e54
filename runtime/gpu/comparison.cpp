#include "gpu/comparison.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "gpu/judge.h"
#include "gpu/recording.h"
#include "gpu/vulkan_kernel.h"
#include "spirv/machine.h"

namespace etr::gpu {
namespace {

using spirv::Storage;

constexpr uint64_t kInstructions = 8'000'000;
constexpr uint64_t kOnAGpu = 16;  // times as many: its workgroups do far more each

// Copies device memory to the host, a piece at a time.
class Courier {
 public:
  explicit Courier(DevicePtr device)
      : device_(std::move(device)), memory_(device_, MemoryUse::readback) {}

  void fetch(const Buffer& from, uint64_t offset, std::span<uint32_t> words) {
    if (from.host) {
      std::memcpy(words.data(), from.host + offset, words.size_bytes());
      return;
    }
    if (!staging_) staging_ = memory_.allocate(Storage::kPageWords * 4);
    const Buffer to = staging_.slice(0, words.size_bytes());
    run_uncompared(device_, {Copy{from.slice(offset, words.size_bytes()), to}});
    std::memcpy(words.data(), to.host, words.size_bytes());
  }

 private:
  DevicePtr device_;
  Arena memory_;
  Buffer staging_;
};

// The union of overlapping bindings of a dispatch. Regions share no bytes.
struct Region {
  Buffer buffer;
  bool written = false;
  Buffer copy;  // copy of `buffer` if it is written
  std::unique_ptr<Storage> storage;
};

std::vector<Region> regions_of(const Dispatch& dispatch) {
  std::vector<Region> out;
  for (const auto& [buffer, access] : dispatch.bindings) {
    Region all{buffer, access != Access::read};
    for (auto other = out.begin(); other != out.end();) {
      if (!overlap(other->buffer, all.buffer)) {
        ++other;
        continue;
      }
      const bool first = other->buffer.offset < all.buffer.offset;
      const uint64_t end = std::max(other->buffer.offset + other->buffer.size_bytes,
                                    all.buffer.offset + all.buffer.size_bytes);
      if (first) all.buffer = other->buffer;
      all.buffer.size_bytes = end - all.buffer.offset;
      all.written = all.written || other->written;
      other = out.erase(other);
    }
    out.push_back(std::move(all));
  }
  return out;
}

const Region& region_of(const std::vector<Region>& regions, const Buffer& buffer) {
  return *std::find_if(regions.begin(), regions.end(),
                       [&](const Region& region) { return overlap(region.buffer, buffer); });
}

// Returns the workgroups that the host runs, in order.
std::vector<std::array<uint32_t, 3>> groups_of(const Dispatch& dispatch, Scope scope) {
  const auto& [x, y, z] = dispatch.groups;
  const uint64_t count = uint64_t{x} * y * z;
  if (count == 0) return {};
  std::vector<uint64_t> numbers{0, count - 1, count / 2};
  if (scope == Scope::all)
    for (uint64_t i = 1; i < std::min<uint64_t>(count - 1, 1 << 16); ++i) numbers.push_back(i);
  std::vector<std::array<uint32_t, 3>> out;
  std::set<uint64_t> seen;
  for (const uint64_t number : numbers)
    if (seen.insert(number).second)
      out.push_back({static_cast<uint32_t>(number % x), static_cast<uint32_t>(number / x % y),
                     static_cast<uint32_t>(number / x / y)});
  return out;
}

// Returns false if even the first workgroup takes too long.
bool run_on_host(const Dispatch& dispatch, const std::vector<Region>& regions,
                 const DeviceInfo& device, Scope scope) {
  std::vector<spirv::Argument> arguments;
  std::vector<std::byte> push;
  for (const auto& [buffer, access] : dispatch.bindings) {
    const Region& region = region_of(regions, buffer);
    arguments.push_back({.storage = region.storage.get(),
                         .offset = buffer.offset - region.buffer.offset,
                         .size_bytes = buffer.size_bytes,
                         .address = buffer.address,
                         .reads = access != Access::write,
                         .writes = access != Access::read});
    if (!dispatch.kernel->by_address) continue;
    const auto address = push_bytes(buffer.address);
    push.insert(push.end(), address.begin(), address.end());
  }
  push.insert(push.end(), dispatch.push.begin(), dispatch.push.end());
  spirv::Machine machine(dispatch.kernel->module(), std::move(arguments), push,
                         {dispatch.groups, device.subgroup_size});
  const uint64_t most = kInstructions * (device.kind == DeviceKind::cpu ? 1 : kOnAGpu);
  bool any = false;
  for (const auto& group : groups_of(dispatch, scope)) {
    if (machine.instructions() >= most) break;
    if (!machine.run(group, any ? most - machine.instructions() : most)) break;
    any = true;
  }
  return any;
}

void run_on_device(const DevicePtr& device, const Dispatch& dispatch,
                   const std::vector<Region>& regions) {
  CommandList commands;
  for (const Region& region : regions)
    if (region.written) commands.push_back(Copy{region.buffer, region.copy});
  Dispatch moved = dispatch;
  for (Binding& binding : moved.bindings) {
    const Region& region = region_of(regions, binding.buffer);
    if (region.written)
      binding.buffer = region.copy.slice(binding.buffer.offset - region.buffer.offset,
                                         binding.buffer.size_bytes);
  }
  commands.emplace_back(std::move(moved));
  run_uncompared(device, commands);
}

Comparison judge(Courier& courier, const std::vector<Region>& regions) {
  Comparison all{Comparison::Result::empty, ""};
  for (const Region& region : regions) {
    if (!region.written) continue;
    Judge judge;
    for (const auto& [number, page] : region.storage->pages()) {
      const uint64_t first = number * Storage::kPageWords;
      std::vector<uint32_t> words(page->words.size());
      courier.fetch(region.copy, first * 4, words);
      judge.look_at(*page, words, first);
    }
    const Comparison one = judge.verdict();
    if (one.result == Comparison::Result::different) return one;
    if (one.result == Comparison::Result::equal) all = one;
  }
  return all;
}

std::string told(const Device& device, const std::string& kernel) {
  return cat("the driver of '", device.info().name, "' (", device.info().driver,
             ") computes the kernel '", kernel, "' wrongly");
}

// Returns whether no such dispatch has been compared on this device.
bool is_new(const Device& device, const Dispatch& dispatch) {
  std::string seen = dispatch.kernel->key;
  for (const uint32_t groups : dispatch.groups) seen += cat(" ", groups);
  for (const Binding& binding : dispatch.bindings) seen += cat(" ", binding.buffer.size_bytes);
  seen.append(reinterpret_cast<const char*>(dispatch.push.data()), dispatch.push.size());
  std::scoped_lock lock(device.vk().comparison_mutex);
  return device.vk().compared_dispatches.insert(seen).second;
}

bool is_settled(const Device& device, const Kernel& kernel) {
  return kernel.beyond_host || device.vk().verdicts->of(kernel.key) != Verdict::unknown;
}

// Compares a dispatch and replaces its kernel if it is wrong. Returns whether the host could run
// it.
bool settle(const DevicePtr& device, const Dispatch& dispatch, Scope scope) {
  const Kernel& kernel = *dispatch.kernel;
  std::scoped_lock lock(device->vk().comparison_mutex);
  if (scope == Scope::samples && is_settled(*device, kernel)) return true;  // by another thread
  const LoweredLimits& lowered = device->options().lowered;
  const auto is_one_of = [&](const std::string& names) {
    return !names.empty() && kernel.name.starts_with(names);
  };
  Comparison seen = compare(device, dispatch, scope);
  if (is_one_of(lowered.wrong_kernels))
    seen = {Comparison::Result::different, "(so a test has it)"};
  if (seen.result == Comparison::Result::equal)
    device->vk().verdicts->set(kernel.key, Verdict::right);
  if (seen.result == Comparison::Result::faulty || seen.result == Comparison::Result::unknown) {
    if (!kernel.beyond_host.exchange(true))  // said once
      log_line(seen.result == Comparison::Result::faulty ? LogLevel::warning : LogLevel::info,
               cat(dispatch.label, ": kernel '", kernel.name,
                   "' was not compared with the host: ", seen.why));
    return false;
  }
  if (seen.result != Comparison::Result::different) return true;
  const std::string first = seen.why;
  kernel.compile_plainly();
  ++device->vk().kernels_replaced;
  seen = compare(device, dispatch, scope);
  if (seen.result == Comparison::Result::different || is_one_of(lowered.hopeless_kernels))
    fail(Code::device, dispatch.label, ": ", told(*device, kernel.name),
         ", with and without its optimizer: ", first,
         "; install another version of the driver, or choose another device");
  log_line(LogLevel::warning, cat(told(*device, kernel.name), ": ", first,
                                  "; from now on without the driver's optimizer, more slowly"));
  device->vk().verdicts->set(kernel.key, Verdict::right_plainly);
  return true;
}

}  // namespace

Comparison compare(const DevicePtr& device, const Dispatch& dispatch, Scope scope) {
  try {
    std::vector<Region> regions = regions_of(dispatch);
    Courier courier(device);
    Arena memory(device, MemoryUse::device);
    for (Region& region : regions) {
      const Buffer& from = region.buffer;
      if (region.written) region.copy = memory.allocate(from.size_bytes);
      region.storage = std::make_unique<Storage>(
          from.size_bytes, [&courier, &from](uint64_t offset, std::span<uint32_t> words) {
            courier.fetch(from, offset, words);
          });
    }
    // Uses the device's subgroup size: some kernels need a workgroup to be one subgroup.
    if (!run_on_host(dispatch, regions, device->info(), scope))
      return {Comparison::Result::unknown, "a workgroup takes the host too long"};
    run_on_device(device, dispatch, regions);
    return judge(courier, regions);
  } catch (const Error& error) {
    // Neither a fault of the kernel itself nor a lack of memory for the copies should end a run.
    // What the host cannot run says nothing of the device, and ends no test either.
    const bool is_fault = error.code() == Code::internal;
    const bool beyond_host = error.code() == Code::unsupported;
    const bool bearable = is_fault || error.code() == Code::out_of_memory;
    if (!beyond_host && (scope == Scope::all || !bearable))
      throw Error(error.code(),
                  cat(dispatch.label, ": kernel '", dispatch.kernel->name, "': ", error.what()));
    return {is_fault ? Comparison::Result::faulty : Comparison::Result::unknown, error.what()};
  }
}

bool wants_comparison(const Device& device, const CommandList& commands) {
  const Compare compare = device.options().compare;
  if (compare != Compare::kernels) return compare == Compare::dispatches;
  return std::any_of(commands.begin(), commands.end(), [&](const Command& command) {
    const auto* dispatch = std::get_if<Dispatch>(&command);
    return dispatch && !is_settled(device, *dispatch->kernel);
  });
}

uint32_t kernels_replaced(const Device& device) { return device.vk().kernels_replaced; }

void run_compared(const DevicePtr& device, const CommandList& commands) {
  const bool all = device->options().compare == Compare::dispatches;
  const auto begin = std::chrono::steady_clock::now();
  int compared = 0, beyond_host = 0;
  CommandList waiting;
  for (const Command& command : commands) {
    const auto* dispatch = std::get_if<Dispatch>(&command);
    if (dispatch && (all ? is_new(*device, *dispatch) : !is_settled(*device, *dispatch->kernel))) {
      run_uncompared(device, std::exchange(waiting, {}));
      ++(settle(device, *dispatch, all ? Scope::all : Scope::samples) ? compared : beyond_host);
    }
    waiting.push_back(command);
  }
  run_uncompared(device, waiting);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  log_line(LogLevel::info, cat("compared ", compared, " dispatches of '", device->info().name,
                               "' with the host's results in ", seconds.count(), " s",
                               beyond_host ? cat("; the host could not run ", beyond_host) : ""));
}

}  // namespace etr::gpu
