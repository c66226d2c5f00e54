#include "core/platform_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "core/error.h"
#include "core/platform_poll.h"

namespace etr::platform {
namespace {

constexpr int kBacklog = 1024;
constexpr auto kBetweenTries = std::chrono::milliseconds(20);

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) fail(Code::io, "'", host, "', port '", port, "': ", ::gai_strerror(error));
  return {found, &::freeaddrinfo};
}

#ifdef __APPLE__  // does not make them so in one call
int made_private(int socket) {
  if (socket < 0) return socket;
  const int on = 1;
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  ::fcntl(socket, F_SETFL, O_NONBLOCK);
  ::setsockopt(socket, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);  // as MSG_NOSIGNAL
  return socket;
}
#endif

Descriptor socket_for(const addrinfo& address) {
  return Descriptor(open_socket(address.ai_family, address.ai_socktype, address.ai_protocol));
}

void send_at_once(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Returns whether the connection was made; if not, sets errno.
bool connected(const Descriptor& socket, const addrinfo& address, Deadline deadline) {
  if (::connect(socket.number(), address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd waits{socket.number(), POLLOUT, 0};
  while (::poll(&waits, 1, milliseconds_until(deadline)) < 0 && errno == EINTR) continue;
  int error = waits.revents ? 0 : ETIMEDOUT;
  socklen_t size = sizeof error;
  if (waits.revents && ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
    error = errno;
  errno = error;
  return error == 0;
}

// Whether the kernel has chosen the port that was asked for as the socket's own one. Where nobody
// listens there yet, such a socket is connected to itself, and keeps the server from listening.
bool is_own_peer(const Descriptor& connection) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  return ::getsockname(connection.number(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(connection.number(), reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

}  // namespace

int open_socket(int family, int type, int protocol) {
#ifdef __APPLE__
  return made_private(::socket(family, type, protocol));
#else
  return ::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
#endif
}

Descriptor listen_at(const std::string& host, const std::string& port) {
  const Addresses addresses = look_up(host, port, AI_PASSIVE);
  int error = 0;
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
    Descriptor socket = socket_for(*a);
    const int on = 1;
    ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.number(), a->ai_addr, a->ai_addrlen) == 0 &&
        ::listen(socket.number(), kBacklog) == 0)
      return socket;
    error = errno;
  }
  fail(error == EADDRINUSE ? Code::state : Code::io, "cannot listen at ", host, ":", port, ": ",
       std::strerror(error));
}

Descriptor accept_from(const Descriptor& listener) {
#ifdef __APPLE__
  Descriptor out(made_private(::accept(listener.number(), nullptr, nullptr)));
#else
  Descriptor out(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
#endif
  if (out.number() >= 0) send_at_once(out.number());
  return out;
}

// Retries, because the server may not have started and its name may not be known yet.
Descriptor connect_to(const std::string& host, const std::string& port, Deadline deadline) {
  std::string why = "no address";
  do {
    try {
      const Addresses addresses = look_up(host, port, 0);
      for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
        Descriptor socket = socket_for(*a);
        if (!connected(socket, *a, deadline)) {
          why = std::strerror(errno);
        } else if (is_own_peer(socket)) {
          why = "nobody listens there";
        } else {
          send_at_once(socket.number());
          return socket;
        }
      }
    } catch (const Error& error) {
      why = error.what();
    }
    std::this_thread::sleep_for(kBetweenTries);
  } while (std::chrono::steady_clock::now() < deadline);
  fail(Code::io, "cannot connect to ", host, ":", port, ": ", why);
}

std::string own_address(const Descriptor& connection) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = "";
  ::getsockname(connection.number(), reinterpret_cast<sockaddr*>(&address), &size);
  ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, nullptr, 0,
                NI_NUMERICHOST);
  return host;
}

std::vector<size_t> wait_readable(std::span<const int> descriptors, Deadline deadline) {
  std::vector<pollfd> waits;
  for (const int descriptor : descriptors) waits.push_back({descriptor, POLLIN, 0});
  while (::poll(waits.data(), waits.size(), milliseconds_until(deadline)) < 0 && errno == EINTR)
    continue;
  std::vector<size_t> out;
  for (size_t i = 0; i < waits.size(); ++i)
    if (waits[i].revents) out.push_back(i);
  return out;
}

}  // namespace etr::platform
