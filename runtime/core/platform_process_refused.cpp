#include "core/error.h"
#include "core/platform_process.h"

// In place of platform_process_linux.cpp on other systems: a single process needs none of this.
namespace etr::platform {
namespace {

[[noreturn]] void fail_processes() {
  fail(Code::unsupported,
       "several processes are supported on Linux only: use several devices of one process "
       "(parallel.devices)");
}

}  // namespace

SharedMemory::SharedMemory() { fail_processes(); }
SharedMemory::SharedMemory(Descriptor) { fail_processes(); }
SharedMemory::~SharedMemory() = default;
std::byte* SharedMemory::bytes(uint64_t) { fail_processes(); }
std::byte* SharedMemory::map(uint64_t, uint64_t) const { fail_processes(); }
void SharedMemory::unmap(std::byte*, uint64_t, uint64_t) const {}

void Channel::make(Channel&, Descriptor&) { fail_processes(); }

Child::Child(const std::string&, const std::vector<std::string>&, std::span<const int>) {
  fail_processes();
}
Child::~Child() = default;
bool Child::wait(Deadline) { return true; }

Descriptor watch_process(int64_t) { fail_processes(); }
void close_others(int) {}

}  // namespace etr::platform
