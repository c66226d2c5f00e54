#include "core/error.h"
#include "core/platform_socket.h"

// See platform_process_windows.cpp.
namespace etr::platform {
namespace {

[[noreturn]] void fail_here() {
  fail(Code::unsupported, "ranks on several machines are not supported on Windows");
}

}  // namespace

Descriptor listen_at(const std::string&, const std::string&) { fail_here(); }
Descriptor accept_from(const Descriptor&) { fail_here(); }
Descriptor connect_to(const std::string&, const std::string&, Deadline) { fail_here(); }
std::string own_address(const Descriptor&) { fail_here(); }
std::vector<size_t> wait_readable(std::span<const int>, Deadline) { fail_here(); }

}  // namespace etr::platform
