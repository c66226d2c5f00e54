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

// What a command does with a buffer. Only the recorder places barriers, from these declarations.
enum class Access { read, write, read_write };

struct Binding {
  Buffer buffer;
  Access access;
};

// A compute pipeline: a shader variant with its specialization constants. Owned by Kernels.
class Kernel;

const std::string& kernel_name(const Kernel& kernel);  // its shader's

// The pipelines of one device, made on first use and kept. Thread safe.
class Kernels {
 public:
  explicit Kernels(DevicePtr device);
  ~Kernels();

  // `constants` are the values of constant_id 0, 1, 2, ...; `bindings` and `push_bytes` describe
  // the shader's interface. CPU devices get the variant NAME_address where there is one. Throws
  // Error(internal) for an unknown shader name.
  const Kernel& get(const std::string& shader, const std::vector<uint32_t>& constants,
                    size_t bindings, size_t push_bytes);

  // A kernel from GLSL: the same source is compiled once. It takes its buffers as descriptors or, `by_address`, at
  // the head of its push constants. Throws Error(invalid_argument) with the compiler's messages, in which the source
  // is called `name`, or Error(unsupported) in a build without a compiler.
  const Kernel& from_source(const std::string& source, const std::string& name, size_t bindings,
                            size_t push_bytes = 0, bool by_address = false);

  // Whether the device computes this kernel as it should: what `check` says, which is called once. Logs a warning
  // where it does not.
  bool trusts(const std::string& shader, const std::vector<uint32_t>& constants,
              const std::function<bool()>& check);

  size_t count() const;  // pipelines made so far

  const DevicePtr& device() const { return device_; }
  Tuning& tuning() { return tuning_; }  // of this device

 private:
  DevicePtr device_;
  Tuning tuning_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Kernel>> from_source_;
  using Key = std::pair<std::string, std::vector<uint32_t>>;  // shader and constants
  std::map<Key, std::unique_ptr<Kernel>> kernels_;
  std::mutex checks_mutex_;  // held while a check runs: another thread waits for its verdict
  std::map<Key, bool> trusted_;
};

// What whoever emitted a dispatch tells of it, so that others may become one with it; see graph/fusion.h.
struct Fusible {
  virtual ~Fusible() = default;
};

struct Dispatch {
  std::string label;  // the op it belongs to, for errors and profiles
  const Kernel* kernel = nullptr;
  std::vector<Binding> bindings;
  std::vector<std::byte> push;  // the shader's push constants, without addresses
  std::array<uint32_t, 3> groups{1, 1, 1};
  double flops = 0;  // multiplications and additions, for profiles; 0: not worth counting
  std::shared_ptr<const Fusible> fusible;  // empty: runs as it is
};

struct Copy {
  Buffer from, to;  // equal sizes
};

struct Fill {
  Buffer to;
  uint32_t word = 0;  // repeated
};

// A place where the device's work is cut for the host's. At `begin` the commands so far end before `work` begins, and the
// device goes on; at `end` it goes on when the same `work` has returned. It runs on a thread of the device's, in the order of
// the `begin`s, and may throw: the commands after its `end` are left out, and Recording::wait() throws the same.
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
