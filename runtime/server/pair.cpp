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
  Message message;
  do {
    message = server::receive(group_, kShardRank, kAnswerTag);
    count(sizeof message);
  } while (message.kind == Kind::wait);
  if (message.ends) told_to_end_ = true;
  if (message.kind != Kind::refused) return message;
  std::string why(std::min(message.count, kMostText), '\0');
  group_.receive(std::as_writable_bytes(std::span(why.data(), why.size())), kShardRank, kTextTag);
  fail(Code::state, "parameter server: shard ", shard_, " of ", shards_, " refuses: ", why);
}

Message Pair::ask(const Message& message, std::span<const float> numbers, const RowParts& rows) {
  send(group_, kShardRank, kRequestTag, message);
  send_numbers(group_, kShardRank, numbers);
  send_words(group_, kShardRank, rows.words);
  send_numbers(group_, kShardRank, rows.numbers);
  count(sizeof message + numbers.size_bytes() + rows.words.size_bytes() +
        rows.numbers.size_bytes());
  return answer();
}

void Pair::receive(std::span<float> numbers) {
  receive_numbers(group_, kShardRank, numbers);
  count(numbers.size_bytes());
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
  message.count = static_cast<uint64_t>(shards_);
  return named([&] { return ask(message).number; });
}

bool Pair::ready(uint64_t count, bool waits) {
  Message message = request(Kind::ready);
  message.waits = waits;
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

void Pair::push(std::span<const float> gradient, float rate, std::span<const Rows> rows) {
  const std::vector<uint32_t> words = words_for(rows, shard_, shards_);
  const std::vector<float> numbers = values_for(rows, shard_, shards_);
  Message message = request(Kind::push);
  message.rate = rate;
  message.words = words.size();
  message.numbers = numbers.size();
  named([&] { acknowledged_ = ask(message, gradient, {words, numbers}).applied; });
}

void Pair::declare(std::span<const TableSpec> tables) {
  Message message = request(Kind::tables);
  message.count = tables.size();
  named([&] {
    send(group_, kShardRank, kRequestTag, message);
    send_words(group_, kShardRank, tables);
    count(sizeof message + tables.size_bytes());
    answer();
  });
}

void Pair::fetch_rows(std::span<Rows> tables) {
  const std::vector<uint32_t> words = words_for(tables, shard_, shards_);
  Message message = request(Kind::rows);
  message.words = words.size();
  std::vector<float> numbers(values_for(tables, shard_, shards_).size());
  named([&] {
    ask(message, {}, {words, {}});
    receive(numbers);
  });
  take_values(tables, numbers, shard_, shards_);
}

void Pair::put_rows(uint64_t table, const Rows& rows) {
  Rows own = part_for(rows, shard_, shards_);
  own.state.resize(own.values.size());
  own.values.insert(own.values.end(), own.state.begin(), own.state.end());
  Message message = request(Kind::put);
  message.count = table;
  message.words = own.ids.size();
  message.numbers = own.values.size();
  named([&] { ask(message, {}, {own.ids, own.values}); });
}

Rows Pair::take_rows(uint64_t table, uint64_t begin, uint32_t width) {
  Message message = request(Kind::take);
  message.count = table;
  message.words = begin;
  Rows rows;
  named([&] {
    const Message given = ask(message);
    rows.ids.resize(given.words);
    rows.values.resize(given.words * width);
    rows.state.resize(given.numbers);
    receive_words(group_, kShardRank, std::span(rows.ids));
    count(rows.ids.size() * sizeof(uint32_t));
    receive(rows.values);
    receive(rows.state);
  });
  return rows;
}

void Pair::fetch(std::span<float> weights) {
  named([&] {
    ask(request(Kind::fetch));
    receive(weights);
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
    receive(centre);
  });
}

void Pair::state(std::span<float> weights, std::span<float> state) {
  std::vector<float> numbers(weights.size() + state.size());
  named([&] {
    ask(request(Kind::state));
    receive(numbers);
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
