#include <algorithm>
#include <list>
#include <map>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/platform_files.h"
#include "core/platform_socket.h"
#include "core/start_thread.h"
#include "exchange/failure.h"
#include "exchange/store.h"

namespace etr::exchange {

namespace {

using platform::Channel;
using platform::Deadline;
using platform::Descriptor;
using platform::Frame;
using Clock = std::chrono::steady_clock;

enum Kind : uint32_t { kHello = 1, kSet, kGet, kRemove, kDone, kValue, kNone, kCreate };

constexpr const char* kGreeting = "echotrain store 1";
constexpr size_t kMaxClients = 8192;
constexpr uint64_t kMaxStrange = 64;                   // bytes of a frame before the greeting
constexpr uint64_t kMaxFrame = uint64_t{1} << 20;      // bytes of a frame after it
constexpr uint64_t kMaxValues = uint64_t{256} << 20;   // bytes of all values
constexpr auto kMaxSilence = std::chrono::seconds(5);  // before the greeting
constexpr double kMaxAnswer = 10;                      // seconds

// Drops clients that do not greet, because ports are scanned.
class Server {
 public:
  explicit Server(Descriptor listener)
      : listener_(std::move(listener)),
        thread_(start_thread("a thread that serves ranks that look for each other",
                             "the number of groups", [this] { run(); })) {}
  ~Server() {
    stop_.signal();
    thread_.join();
  }

 private:
  struct Client {
    explicit Client(Descriptor connection) : channel(std::move(connection), kMaxStrange) {}
    Channel channel;
    bool greeted = false;
    Clock::time_point came = Clock::now();
  };

  // Without memory it cannot go on. Its clients see that their connections are closed.
  void run() {
    try {
      serve();
    } catch (const std::exception& error) {
      clients_.clear();
      try_log_line(LogLevel::error,
                   {"the rendezvous that this rank serves has ended: ", error.what()});
    }
  }

  void serve() {
    while (true) {
      std::vector<int> waits{stop_.descriptor(),
                             clients_.size() < kMaxClients ? listener_.number() : -1};
      for (const Client& client : clients_) waits.push_back(client.channel.descriptor());
      const auto ready = platform::wait_readable(waits, Clock::now() + std::chrono::seconds(1));
      if (!ready.empty() && ready[0] == 0) return;
      std::erase_if(clients_, [&, at = size_t{2}](Client& client) mutable {
        const bool heard = std::binary_search(ready.begin(), ready.end(), at++);
        if (heard && !attend(client)) return true;
        return !client.greeted && Clock::now() - client.came > kMaxSilence;
      });
      if (std::binary_search(ready.begin(), ready.end(), size_t{1})) admit();
    }
  }

  void admit() {
    if (Descriptor connection = platform::accept_from(listener_); connection.number() >= 0)
      clients_.emplace_back(std::move(connection));
  }

  // Answers a client's requests. Returns false if it has gone or breaks the protocol.
  bool attend(Client& client) {
    Frame frame;
    while (true) {
      switch (client.channel.receive(frame, Clock::now())) {
        case Channel::Outcome::late: return true;
        case Channel::Outcome::closed: return false;
        case Channel::Outcome::frame:
          if (!answer(client, frame)) return false;
      }
    }
  }

  bool answer(Client& client, const Frame& frame) {
    if (!client.greeted) {
      if (frame.kind != kHello || frame.payload != kGreeting) return false;
      client.greeted = true;
      client.channel.set_limit(kMaxFrame);
      return client.channel.send(kDone, kGreeting);
    }
    switch (frame.kind) {
      case kSet: return set(frame.payload) && client.channel.send(kDone, "");
      case kCreate:
        if (values_.count(frame.payload.substr(0, frame.payload.find('\0'))))
          return client.channel.send(kNone, "");
        return set(frame.payload) && client.channel.send(kDone, "");
      case kRemove: remove(frame.payload); return client.channel.send(kDone, "");
      case kGet: {
        const auto found = values_.find(frame.payload);
        return found == values_.end() ? client.channel.send(kNone, "")
                                      : client.channel.send(kValue, found->second);
      }
      default: return false;
    }
  }

  bool set(const std::string& text) {
    const size_t end = text.find('\0');
    if (end == std::string::npos) return false;
    const std::string key = text.substr(0, end);
    const uint64_t bytes = bytes_ - bytes_of(key) + text.size();
    if (bytes > kMaxValues) return false;
    values_[key] = text.substr(end + 1);
    bytes_ = bytes;
    return true;
  }

  void remove(const std::string& key) {
    bytes_ -= bytes_of(key);
    values_.erase(key);
  }

  uint64_t bytes_of(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? 0 : key.size() + 1 + found->second.size();
  }

  const Descriptor listener_;
  platform::Event stop_;
  std::list<Client> clients_;
  std::map<std::string, std::string> values_;
  uint64_t bytes_ = 0;
  std::thread thread_;  // last: it uses all other members
};

// On Debian and Ubuntu, /etc/hosts maps a machine's own name, which launchers give, to 127.0.1.1.
// An address or a name such as localhost is meant to be reached from this machine only.
bool is_loopback_by_mistake(const std::string& host, const std::string& address) {
  const bool is_loopback = address.starts_with("127.") || address == "::1";
  const bool is_address = host.find(':') != std::string::npos ||
                          host.find_first_not_of("0123456789.") == std::string::npos;
  return is_loopback && !is_address && host.find("localhost") == std::string::npos;
}

class Client : public TcpStore {
 public:
  Client(const std::string& host, const std::string& port, bool serve, double timeout_s)
      : place_(host + ":" + port), patience_(clock_duration(std::min(timeout_s, kMaxAnswer))) {
    if (serve) try_to_serve(host, port);
    if (is_taken_)
      greet_other(host, port, std::min(timeout_s, kMaxAnswer));
    else
      greet(host, port, timeout_s);
    if (serve && is_loopback_by_mistake(host, own_address_))
      obstacle_ = cat("'", host,
                      "' is a loopback address on this machine (/etc/hosts), which other machines "
                      "cannot reach: give this machine's address in parallel.rendezvous, or in the "
                      "launcher's MASTER_ADDR");
    if (server_ && !obstacle_.empty())
      log_line(LogLevel::info, cat("the rendezvous tcp://", place_, ": ", obstacle_));
  }

  void set(const std::string& key, const std::string& value) override {
    ask(kSet, key + '\0' + value);
  }

  bool create(const std::string& key, const std::string& value) override {
    return ask(kCreate, key + '\0' + value).kind == kDone;
  }

  std::optional<std::string> get(const std::string& key) override {
    Frame answer = ask(kGet, key);
    if (answer.kind != kValue) return std::nullopt;
    return std::move(answer.payload);
  }

  void remove(const std::string& key) override {
    try {
      ask(kRemove, key);
    } catch (const Error&) {
      // Rank 0 has gone, and all values with it.
    }
  }

  std::string own_address() const override { return own_address_; }
  std::string obstacle() const override { return obstacle_; }

 private:
  // Greets the process that already has the port. It may be a rank of this group or of another one.
  // If it does not greet, no store will ever answer there.
  void greet_other(const std::string& host, const std::string& port, double timeout_s) {
    try {
      greet(host, port, timeout_s);
    } catch (const Error&) {
      fail(Code::io, "rank 0 cannot serve the rendezvous tcp://", place_,
           ": this port is used by another program, which is not an EchoTrain store. Name "
           "another port, or end that program ('ss -ltnp' lists who listens)");
    }
  }

  void greet(const std::string& host, const std::string& port, double timeout_s) {
    Descriptor connection = connect(host, port, deadline_after(timeout_s));
    own_address_ = platform::own_address(connection);
    channel_ = std::make_unique<Channel>(std::move(connection), kMaxFrame);
    if (ask(kHello, kGreeting).payload != kGreeting)
      fail(Code::io, "the program that listens at ", place_,
           " is not an EchoTrain store: name another port");
  }

  Descriptor connect(const std::string& host, const std::string& port, Deadline deadline) const {
    try {
      return platform::connect_to(host, port, deadline);
    } catch (const Error& error) {
      throw RankLost(cat("rank 0 does not serve the rendezvous: ", error.what(), why_not_), {0});
    }
  }

  // If the port is taken, the greeting will show whether a store listens there.
  void try_to_serve(const std::string& host, const std::string& port) {
    try {
      server_ = std::make_unique<Server>(platform::listen_at(host, port));
    } catch (const Error& error) {
      if (error.code() == Code::out_of_memory) throw;  // no thread
      is_taken_ = error.code() == Code::state;
      why_not_ = cat(" (", error.what(), ")");
    }
  }

  Frame ask(uint32_t kind, const std::string& payload) {
    Frame answer;
    if (channel_ && channel_->send(kind, payload) &&
        channel_->receive(answer, Clock::now() + patience_) == Channel::Outcome::frame)
      return answer;
    // A late answer would be taken for that to the next question, and each would wait anew.
    channel_.reset();
    throw RankLost(cat("the store of rank 0 at ", place_, " does not answer", why_not_), {0});
  }

  const std::string place_;
  Clock::duration patience_;
  bool is_taken_ = false;  // the port that this process was to serve
  std::string why_not_, own_address_, obstacle_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
};

}  // namespace

std::unique_ptr<TcpStore> tcp_store(const std::string& address, bool serve, double timeout_s) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size())
    fail(Code::invalid_argument, "the rendezvous at '", address,
         "': tcp:// is followed by a host, a colon and a port");
  const std::string port = address.substr(colon + 1);
  if (port.find_first_not_of("0123456789") == std::string::npos &&
      (port.size() > 5 || std::stoi(port) > 65535))
    fail(Code::invalid_argument, "the rendezvous at '", address, "': ports end at 65535");
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return std::make_unique<Client>(host, port, serve, timeout_s);
}

}  // namespace etr::exchange
