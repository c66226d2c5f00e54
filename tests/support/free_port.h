// Ports at which nobody listens.
#pragma once

#include <unistd.h>

#include <string>

#include "core/error.h"
#include "core/platform_socket.h"

namespace etr::test {

// Returns another port at each call, below those from which the kernel gives other sockets theirs.
inline int free_port() {
  static int next = 10000 + getpid() % 20000;
  while (true) try {
      platform::listen_at("127.0.0.1", std::to_string(++next));
      return next;
    } catch (const Error&) {
    }
}

}  // namespace etr::test
