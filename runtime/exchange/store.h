// Where the ranks of a group that is about to form find each other.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace etr::exchange {

// Names and values that all ranks see. A value appears whole or not at all.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Where there is no such name yet: of several that try, one succeeds.
  virtual bool create(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;
  virtual void remove(const std::string& key) = 0;
};

// In a folder that all ranks see. The folder is made if it is missing, its parent is not. Error(io), Error(not_found).
std::unique_ptr<Store> file_store(const std::string& folder);

// One that a rank serves over TCP.
class TcpStore : public Store {
 public:
  // The address at which this machine reaches the server from, and peers reach this machine, therefore.
  virtual std::string own_address() const = 0;
};

// At "HOST:PORT". With `serve` this process serves the store as long as the object lives; if another one serves it there already, that
// one is used; if another program has the port, that is an error within two seconds. Waits for the server until the time-out. Error(io),
// Error(invalid_argument).
std::unique_ptr<TcpStore> tcp_store(const std::string& address, bool serve, double timeout_s);

}  // namespace etr::exchange
