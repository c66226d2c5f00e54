#include <utility>

#include "core/platform_process.h"
#include "core/platform_windows.h"

// There are no connections: see platform_process_refused.cpp and platform_socket_windows.cpp.
namespace etr::platform {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}
Descriptor::~Descriptor() = default;
int Descriptor::release() { return std::exchange(number_, -1); }

bool Channel::send(uint32_t, std::string_view) { return false; }
Channel::Outcome Channel::receive(Frame&, Deadline, int) { return Outcome::closed; }

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
