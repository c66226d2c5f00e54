#include "core/error.h"
#include "core/platform_socket.h"

// See platform_process_refused.cpp.
namespace etr::platform {
namespace {

[[noreturn]] void fail_sockets() {
  fail(Code::unsupported, "ranks on several machines are not supported on Windows");
}

}  // namespace

Descriptor listen_at(const std::string&, const std::string&) { fail_sockets(); }
Descriptor accept_from(const Descriptor&) { fail_sockets(); }
Descriptor connect_to(const std::string&, const std::string&, Deadline) { fail_sockets(); }
std::string own_address(const Descriptor&) { fail_sockets(); }
std::vector<size_t> wait_readable(std::span<const int>, Deadline) { fail_sockets(); }

}  // namespace etr::platform
