// Compute kernels and the commands that run them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "gpu/memory.h"
#include "gpu/tuning.h"

namespace etr::gpu {

// What a command does with a buffer. The recorder alone places barriers, and derives them from
// these declarations.
enum class Access { read, write, read_write };

struct Binding {
  Buffer buffer;
  Access access;
};

// A compute pipeline: a shader variant with its specialization constants. Owned by Kernels.
class Kernel;

const std::string& kernel_name(const Kernel& kernel);  // the name of its shader

// The pipelines of one device, created on first use and kept. Thread safe.
class Kernels {
 public:
  explicit Kernels(DevicePtr device);
  ~Kernels();

  // Returns the kernel of `shader`. `constants` are the values of constant_id 0, 1, 2, ...;
  // `bindings` and `push_bytes` describe the shader's interface. The CPU family gets the variant
  // NAME_address if there is one. Throws Error(internal) for an unknown shader name.
  const Kernel& get(const std::string& shader, const std::vector<uint32_t>& constants,
                    size_t bindings, size_t push_bytes);

  // Returns a kernel compiled from GLSL; the same source is compiled only once. It takes its
  // buffers as descriptors or, if `by_address`, as addresses at the head of its push constants.
  // `name` stands for the source in the compiler's messages. Throws Error(invalid_argument) with
  // these messages, or Error(unsupported) in a build without a compiler.
  const Kernel& from_source(const std::string& source, const std::string& name, size_t bindings,
                            size_t push_bytes = 0, bool by_address = false);

  // Returns whether the device computes this kernel correctly. The first call decides by `check`
  // and logs a warning if it fails, or if the driver does not compile the kernel; later calls
  // return the same result. Of a kernel whose accuracy is the device's choice (`at_choice`), a
  // failure is no fault of the driver's and is only logged. Other errors of `check` are thrown, and
  // decide nothing.
  bool trusts(const std::string& shader, const std::vector<uint32_t>& constants, bool at_choice,
              const std::function<bool()>& check);

  size_t count() const;  // pipelines created so far

  const DevicePtr& device() const { return device_; }
  Tuning& tuning() { return tuning_; }  // measured choices for this device

 private:
  DevicePtr device_;
  Tuning tuning_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Kernel>> from_source_;
  using Key = std::pair<std::string, std::vector<uint32_t>>;  // shader and constants
  std::map<Key, std::unique_ptr<Kernel>> kernels_;
  std::mutex checks_mutex_;  // held while a check runs, so that other threads wait for the result
  std::map<Key, bool> trusted_;
};

// What a dispatch computes, attached by the code that emitted it, so that the dispatch can be fused
// with others (graph/fusion.h).
struct Fusible {
  virtual ~Fusible() = default;
};

struct Dispatch {
  std::string label;  // the op that it belongs to, for errors and profiles
  const Kernel* kernel = nullptr;
  std::vector<Binding> bindings;
  std::vector<std::byte> push;  // the shader's push constants, without addresses
  std::array<uint32_t, 3> groups{1, 1, 1};
  double flops = 0;  // multiplications and additions, for profiles; 0: not counted
  std::shared_ptr<const Fusible> fusible;  // empty: never fused
};

struct Copy {
  Buffer from, to;  // must be of equal size
};

struct Fill {
  Buffer to;
  uint32_t word = 0;  // repeated
};

// A point where the command list is split so that the host can do some work. `work` starts when all
// commands before `begin` have ended; meanwhile the device continues. The commands after `end`
// start when the same `work` has returned. Works run on a thread of the device in the order of
// their `begin`s. If a work throws, the commands after its `end` are not run and Recording::wait()
// rethrows the exception.
struct HostTurn {
  enum class Mark { begin, end };
  Mark mark = Mark::begin;
  std::shared_ptr<const std::function<void()>> work;
};

using Command = std::variant<Dispatch, Copy, Fill, HostTurn>;
using CommandList = std::vector<Command>;

template <typename T>
std::vector<std::byte> push_bytes(const T& block) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0);
  std::vector<std::byte> out(sizeof(T));
  std::memcpy(out.data(), &block, sizeof(T));
  return out;
}

constexpr uint32_t div_up(uint64_t n, uint64_t d) { return static_cast<uint32_t>((n + d - 1) / d); }

}  // namespace etr::gpu
