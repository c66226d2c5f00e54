#include "exchange/engines/gloo/relay_store.h"

#include "exchange/helper_protocol.h"

namespace etr::exchange {

void RelayStore::set(const std::string& key, const std::vector<char>& value) {
  std::string payload = key + '\0';
  payload.append(value.begin(), value.end());
  channel_.send(static_cast<uint32_t>(FrameKind::set), payload);
}

std::vector<char> RelayStore::get(const std::string& key) {
  std::unique_lock lock(mutex_);
  if (!known_.contains(key)) {
    asked_ = key;
    channel_.send(static_cast<uint32_t>(FrameKind::get), key);
    answered_.wait(lock, [&] { return known_.contains(key); });
  }
  return known_.at(key);
}

void RelayStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) get(key);
}

void RelayStore::answer(const std::string& value) {
  const std::lock_guard lock(mutex_);
  known_[asked_].assign(value.begin(), value.end());
  answered_.notify_all();
}

}  // namespace etr::exchange
