#include "core/platform_process.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/platform_poll.h"

namespace etr::platform {
namespace {

constexpr auto kMaxStall = std::chrono::seconds(10);

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}
Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}
int Descriptor::release() { return std::exchange(number_, -1); }

bool Channel::send(uint32_t kind, std::string_view payload) {
  const uint32_t head[2] = {kind, static_cast<uint32_t>(payload.size())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof head);
  bytes += payload;
  const std::lock_guard lock(sending_);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t sent = ::send(end_.number(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent > 0) at += static_cast<size_t>(sent);
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    if (wait(POLLOUT, std::chrono::steady_clock::now() + kMaxStall, -1) != Outcome::frame)
      return false;
  }
  return true;
}

Channel::Outcome Channel::wait(short events, Deadline deadline, int watched) const {
  while (true) {
    pollfd waits[2] = {{end_.number(), events, 0}, {watched, POLLIN, 0}};
    const int timeout = milliseconds_until(deadline);
    const int ready = ::poll(waits, 2, timeout);
    if (ready < 0 && errno != EINTR) return Outcome::closed;
    if (waits[0].revents) return Outcome::frame;  // before `watched`, so that a last frame is read
    if (waits[1].revents) return Outcome::closed;
    if (ready == 0 && std::chrono::steady_clock::now() >= deadline) return Outcome::late;
  }
}

Channel::Outcome Channel::receive(Frame& frame, Deadline deadline, int watched) {
  uint32_t head[2] = {0, 0};
  while (true) {
    if (received_.size() >= sizeof head) {
      std::memcpy(head, received_.data(), sizeof head);
      if (head[1] > limit_) return Outcome::closed;
      if (received_.size() >= sizeof head + head[1]) break;
    }
    char bytes[65536];
    const ssize_t got = ::recv(end_.number(), bytes, sizeof bytes, 0);
    if (got > 0) received_.append(bytes, static_cast<size_t>(got));
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    if (got == 0 || errno != EAGAIN) return Outcome::closed;
    const Outcome outcome = wait(POLLIN, deadline, watched);
    if (outcome != Outcome::frame) return outcome;
  }
  frame.kind = head[0];
  frame.payload = received_.substr(sizeof head, head[1]);
  received_.erase(0, sizeof head + head[1]);
  return Outcome::frame;
}

std::string code_directory() {
  Dl_info info{};
  if (!::dladdr(reinterpret_cast<void*>(&code_directory), &info) || !info.dli_fname) return "";
  char* const real = ::realpath(info.dli_fname, nullptr);
  const std::string path = real ? real : info.dli_fname;
  ::free(real);
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

}  // namespace etr::platform
