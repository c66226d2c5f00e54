#include "server/pair.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"

namespace etr::server {

Pair::Pair(exchange::Group group, int shard, int shards)
    : group_(std::move(group)), shard_(shard), shards_(shards) {}

// Of the pair's two ranks nobody knows but this room: errors name the shard.
template <typename Body>
auto Pair::named(Body&& body) {
  try {
    return body();
  } catch (const exchange::RankLost& lost) {
    throw exchange::RankLost(cat("parameter server: shard ", shard_, " of ", shards_,
                                 " is lost, or has given this worker up: ", lost.what()),
                             {shard_});
  }
}

Message Pair::answer() {
  Message message = receive(group_, kShardRank, kAnswerTag);
  while (message.kind == Kind::wait) message = receive(group_, kShardRank, kAnswerTag);
  if (message.ends) told_to_end_ = true;
  if (message.kind != Kind::refused) return message;
  std::string why(std::min(message.count, kMostText), '\0');
  group_.receive(std::as_writable_bytes(std::span(why.data(), why.size())), kShardRank, kTextTag);
  fail(Code::state, "parameter server: shard ", shard_, " of ", shards_, " refuses: ", why);
}

Message Pair::ask(const Message& message, std::span<const float> numbers) {
  send(group_, kShardRank, kRequestTag, message);
  send_numbers(group_, kShardRank, numbers);
  return answer();
}

namespace {

Message request(Kind kind) {
  Message message;
  message.kind = kind;
  return message;
}

}  // namespace

int Pair::hello(int wanted) {
  Message message = request(Kind::hello);
  message.number = wanted;
  return named([&] { return ask(message).number; });
}

bool Pair::ready(uint64_t count) {
  Message message = request(Kind::ready);
  message.count = count;
  return named([&] { return ask(message).kind != Kind::yours; });
}

void Pair::begin(uint64_t count, uint64_t decayed, std::span<const float> weights,
                 std::span<const float> state) {
  Message message = request(Kind::begin);
  message.count = count;
  message.decayed = decayed;
  std::vector<float> numbers(weights.begin(), weights.end());
  numbers.insert(numbers.end(), state.begin(), state.end());
  numbers.resize(2 * weights.size());
  named([&] { ask(message, numbers); });
}

void Pair::push(std::span<const float> gradient, float rate) {
  Message message = request(Kind::push);
  message.rate = rate;
  named([&] { acknowledged_ = ask(message, gradient).applied; });
}

void Pair::fetch(std::span<float> weights) {
  named([&] {
    ask(request(Kind::fetch));
    receive_numbers(group_, kShardRank, weights);
  });
}

void Pair::gate() {
  named([&] { ask(request(Kind::gate)); });
}

void Pair::average(std::span<const float> weights, float rate, std::span<float> centre) {
  Message message = request(Kind::average);
  message.rate = rate;
  named([&] {
    acknowledged_ = ask(message, weights).applied;
    receive_numbers(group_, kShardRank, centre);
  });
}

void Pair::state(std::span<float> weights, std::span<float> state) {
  std::vector<float> numbers(weights.size() + state.size());
  named([&] {
    ask(request(Kind::state));
    receive_numbers(group_, kShardRank, numbers);
  });
  const auto half = numbers.begin() + static_cast<ptrdiff_t>(weights.size());
  std::copy(numbers.begin(), half, weights.begin());
  std::copy(half, numbers.end(), state.begin());
}

void Pair::here() {
  named([&] { ask(request(Kind::here)); });
}

void Pair::leave(bool all_end) {
  Message message = request(Kind::leave);
  message.ends = all_end;
  named([&] { ask(message); });
}

}  // namespace etr::server
