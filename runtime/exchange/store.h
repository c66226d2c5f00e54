// A key-value store through which the ranks of a new group find each other.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace etr::exchange {

// Keys and values that all ranks see. Writes are atomic.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Sets a key that does not exist yet. If several ranks try, exactly one gets true.
  virtual bool create(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;
  virtual void remove(const std::string& key) = 0;
};

// A store in a folder that all ranks see. Creates the folder, but not its parent. Error(io),
// Error(not_found).
std::unique_ptr<Store> file_store(const std::string& folder);

// A store that one rank serves over TCP.
class TcpStore : public Store {
 public:
  // Returns the local address of the connection to the server. Peers can reach this machine there.
  virtual std::string own_address() const = 0;
  // Says why ranks on other machines cannot reach the store that this process was to serve, and
  // what to do. "" if nothing is known.
  virtual std::string obstacle() const = 0;
};

// A store at "HOST:PORT". With `serve`, this process serves it as long as the object lives. If
// another process serves a store there already, that store is used; if another program has the
// port, it throws Error(io) within two seconds. Waits for the server until the time-out. Error(io),
// Error(invalid_argument), RankLost for rank 0 if the server cannot be reached.
std::unique_ptr<TcpStore> tcp_store(const std::string& address, bool serve, double timeout_s);

}  // namespace etr::exchange
