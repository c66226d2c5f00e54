#include <cerrno>
#include <utility>

#include "core/error.h"
#include "core/platform_process.h"
#include "core/platform_windows.h"

// Only what a single process needs: ranks in several processes need the helper's descriptors and
// shared memory, which are written for Linux.
namespace etr::platform {
namespace {

[[noreturn]] void fail_processes() {
  fail(Code::unsupported,
       "several processes are not supported on Windows: use several devices of one process "
       "(parallel.devices)");
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}
Descriptor::~Descriptor() = default;
int Descriptor::release() { return std::exchange(number_, -1); }

SharedMemory::SharedMemory() { fail_processes(); }
SharedMemory::SharedMemory(Descriptor) { fail_processes(); }
SharedMemory::~SharedMemory() = default;
std::byte* SharedMemory::bytes(uint64_t) { fail_processes(); }
std::byte* SharedMemory::map(uint64_t, uint64_t) const { fail_processes(); }
void SharedMemory::unmap(std::byte*, uint64_t, uint64_t) const {}

void Channel::make(Channel&, Descriptor&) { fail_processes(); }
bool Channel::send(uint32_t, std::string_view) { return false; }
Channel::Outcome Channel::receive(Frame&, Deadline, int) { return Outcome::closed; }

Child::Child(const std::string&, const std::vector<std::string>&, std::span<const int>) {
  fail_processes();
}
Child::~Child() = default;
bool Child::wait(Deadline) { return true; }

Descriptor watch_process(int64_t) { fail_processes(); }
void close_others(int) {}

std::string code_directory() {
  HMODULE module = nullptr;
  ::GetModuleHandleExW(
      GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
      reinterpret_cast<LPCWSTR>(&code_directory), &module);
  wchar_t path[32768];
  const DWORD size = module ? ::GetModuleFileNameW(module, path, 32768) : 0;
  const std::string file = narrow({path, size});
  const size_t slash = file.find_last_of("\\/");
  return slash == std::string::npos ? "" : file.substr(0, slash);
}

}  // namespace etr::platform
