#include "server/door.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "exchange/failure.h"

namespace etr::server {
namespace {

constexpr auto kLook = std::chrono::milliseconds(10);  // how often the store is asked
constexpr double kComing = 10;  // seconds within which a worker that has knocked comes in

std::string new_word() {
  std::random_device random;
  std::ostringstream out;
  for (int i = 0; i < 4; ++i) out << std::hex << random();
  return out.str();
}

}  // namespace

Door::Door(exchange::World world, int shard, bool serves)
    : world_(std::move(world)), shard_(shard), store_(exchange::open_store(world_, serves)) {
  world_.size = 2;
}

std::string Door::key(const std::string& what) const {
  return cat(world_.name, ".shard", shard_, ".", what);
}

std::optional<std::string> Door::answer() {
  const auto word = store_->get(key("knock"));
  if (!word) return std::nullopt;
  std::optional<std::string> pair;
  if (answered_.insert(*word)
          .second) {  // otherwise it has not looked yet, or knocked once more before it did
    pair = cat("shard", shard_, ".pair", answered_.size(), ".", word->substr(0, 8));
    store_->set(key(*word), *pair);
  }
  store_->remove(key("knock"));
  return pair;
}

exchange::Group Door::open(const std::string& pair, int rank) const {
  exchange::World world = world_;
  world.name = pair;
  world.rank = rank;
  if (rank == 0) world.timeout_s = std::min(world.timeout_s, kComing);
  exchange::Group group = exchange::open_group(world);
  group.set_timeout(world_.timeout_s);
  return group;
}

std::string Door::knock(const std::function<void()>& stopped) {
  const std::string word = new_word();
  const auto deadline = deadline_after(world_.timeout_s);
  while (std::chrono::steady_clock::now() < deadline) {
    if (const auto pair = store_->get(key(word))) {
      store_->remove(key(word));
      if (store_->get(key("knock")) == word) store_->remove(key("knock"));
      return *pair;
    }
    if (!store_->get(key("knock"))) store_->set(key("knock"), word);
    if (stopped) stopped();
    std::this_thread::sleep_for(kLook);
  }
  throw exchange::RankLost(
      cat("parameter server: shard ", shard_, " did not answer at '", world_.rendezvous,
          "' within ", world_.timeout_s,
          " s: start it ('echotrain serve'), and check that it has the same rendezvous"),
      {shard_});
}

}  // namespace etr::server
