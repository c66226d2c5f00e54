// Connections between machines: the operating system's calls for them, in one place.
#pragma once

#include <string>

#include "core/platform_process.h"

namespace etr::platform {

// Waits for connections at an address of this machine; "" as host: at all. Error(state) where the port is taken, otherwise Error(io).
Descriptor listen_at(const std::string& host, const std::string& port);

// A connection that has come, -1 where there is none (any more). Does not wait.
Descriptor accept_from(const Descriptor& listener);

// Error(io) where it cannot be made before the deadline.
Descriptor connect_to(const std::string& host, const std::string& port, Deadline deadline);

// This machine's address at its end of a connection: "10.0.0.7".
std::string own_address(const Descriptor& connection);

// Waits until at least one of them can be read, or until the deadline: which can, by their places.
std::vector<size_t> wait_readable(std::span<const int> descriptors, Deadline deadline);

}  // namespace etr::platform
