// Network connections between machines: the operating system calls, kept in one place.
#pragma once

#include <string>

#include "core/platform_process.h"

namespace etr::platform {

// As socket() does, but the socket does not block, and child processes do not inherit it. POSIX
// only.
int open_socket(int family, int type, int protocol);

// Listens on an address of this machine; host "" means all addresses. Throws Error(state) if the
// port is taken, Error(io) otherwise.
Descriptor listen_at(const std::string& host, const std::string& port);

// Accepts a pending connection without waiting. Returns descriptor -1 if there is none.
Descriptor accept_from(const Descriptor& listener);

// Throws Error(io) if no connection can be made before the deadline.
Descriptor connect_to(const std::string& host, const std::string& port, Deadline deadline);

// The local address of a connection: "10.0.0.7".
std::string own_address(const Descriptor& connection);

// Waits until a descriptor is readable or the deadline passes. Returns the indices of the readable
// ones.
std::vector<size_t> wait_readable(std::span<const int> descriptors, Deadline deadline);

}  // namespace etr::platform
