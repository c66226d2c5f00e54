#include "server/door.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/platform.h"
#include "exchange/failure.h"
#include "exchange/word.h"

namespace etr::server {
namespace {

constexpr auto kStorePoll = std::chrono::milliseconds(10);  // how often the store is polled
constexpr double kComing = 10;  // seconds in which a worker that has knocked must form the pair

constexpr double kAnswering = 10;      // seconds in which the holder of a claim must answer
constexpr unsigned kLooksAtClaim = 8;  // answer() calls for each look at the claim

}  // namespace

Door::Door(exchange::World world, int shard, bool serves)
    : world_(std::move(world)), shard_(shard), store_(exchange::open_store(world_, serves)) {
  world_.size = 2;
}

Door::~Door() {
  try {
    if (!claim_.empty() && store_->get(key("claim")) == claim_) store_->remove(key("claim"));
  } catch (const std::exception& gone) {
    try_log_line(LogLevel::debug, {"parameter server: a shard's claim stays: ", gone.what()});
  }
}

void Door::claim() {
  const std::string own = cat(exchange::new_word(), " ", platform::process_name());
  while (!store_->create(key("claim"), own)) {
    const auto other = store_->get(key("claim"));
    if (!other) continue;
    if (is_held(*other))
      fail(Code::state, "parameter server: shard ", shard_, " at '", world_.rendezvous,
           "' is served by ", other->substr(other->find(' ') + 1),
           " already: start each shard once, with its own --shard, or end that process, or give "
           "this run another rendezvous");
    // Removes the dead process's claim, unless another process has claimed the place by now.
    if (store_->get(key("claim")) == other) store_->remove(key("claim"));
  }
  claim_ = own;
}

// Returns whether the claim's holder answers. Nobody answers for a claim that an earlier run left.
bool Door::is_held(const std::string& claim) {
  store_->remove(key("claim_held"));
  const auto deadline = deadline_after(std::min(world_.timeout_s, kAnswering));
  while (std::chrono::steady_clock::now() < deadline && store_->get(key("claim")) == claim) {
    store_->set(key("claim_asked"), "1");
    if (store_->get(key("claim_held"))) return true;
    std::this_thread::sleep_for(kStorePoll);
  }
  return false;
}

void Door::keep_claim() {
  if (claim_.empty() || looks_++ % kLooksAtClaim != 0) return;
  const auto now = store_->get(key("claim"));
  if (!now) {  // deleted; if another process creates its claim first, the next look finds that
    store_->create(key("claim"), claim_);
  } else if (*now != claim_) {
    claim_.clear();
    is_displaced_ = true;
    fail(Code::state, "parameter server: shard ", shard_, " at '", world_.rendezvous,
         "' is no longer this process's: ", now->substr(now->find(' ') + 1),
         " has it, and began while this one did not answer. Start each shard once");
  }
  if (!store_->get(key("claim_asked"))) return;
  store_->remove(key("claim_asked"));
  store_->set(key("claim_held"), "1");
}

std::string Door::key(const std::string& what) const {
  return cat(world_.name, ".shard", shard_, ".", what);
}

std::optional<std::string> Door::answer() {
  keep_claim();
  const auto word = store_->get(key("knock"));
  if (!word) return std::nullopt;
  std::optional<std::string> pair;
  // A word that was answered before: the worker has not looked yet, or knocked again before it did.
  if (answered_.insert(*word).second) {
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

std::string Door::knock() {
  const std::string word = exchange::new_word();
  const auto deadline = deadline_after(world_.timeout_s);
  while (std::chrono::steady_clock::now() < deadline) {
    if (const auto pair = store_->get(key(word))) {
      store_->remove(key(word));
      if (store_->get(key("knock")) == word) store_->remove(key("knock"));
      return *pair;
    }
    if (!store_->get(key("knock"))) store_->set(key("knock"), word);
    std::this_thread::sleep_for(kStorePoll);
  }
  throw exchange::RankLost(
      cat("parameter server: shard ", shard_, " did not answer at '", world_.rendezvous,
          "' within ", world_.timeout_s,
          " s: start it ('echotrain parameter-server'), and check that it has the same rendezvous"),
      {shard_});
}

}  // namespace etr::server
