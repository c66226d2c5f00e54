#include "server/pair.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace etr::server {

Pair::Pair(exchange::Group group, int shard, int shards, std::function<bool()> stopped)
    : group_(std::move(group)), shard_(shard), shards_(shards), stopped_(std::move(stopped)) {}

// The ranks of a pair mean nothing to others, so errors name the shard.
template <typename Body>
auto Pair::named(Body&& body) {
  try {
    return body();
  } catch (const exchange::RankLost& lost) {
    throw exchange::RankLost(cat("parameter server: shard ", shard_, " of ", shards_,
                                 " is lost, or considers this worker lost: ", lost.what()),
                             {shard_});
  }
}

void Pair::send(const Message& message) {
  server::send(group_, kShardRank, kRequestTag, message);
  count(sizeof message);
}

Message Pair::answer() {
  const Message message = server::receive(group_, kShardRank, kAnswerTag);
  count(sizeof message);
  if (message.ends) told_to_end_ = true;
  in_order_ = message.in_order != 0;
  if (message.kind != Kind::refused) return message;
  fail(Code::state, "parameter server: shard ", shard_, " of ", shards_,
       " refuses: ", receive_text(group_, kShardRank, message.count));
}

Message Pair::ask(const Message& message, std::span<const float> numbers, const RowParts& rows) {
  send(message);
  send_numbers(group_, kShardRank, numbers);
  send_words(group_, kShardRank, rows.words);
  send_numbers(group_, kShardRank, rows.numbers);
  count(numbers.size_bytes() + rows.words.size_bytes() + rows.numbers.size_bytes());
  Message given = answer();
  while (given.kind == Kind::again) {
    if (stopped_ && stopped_())
      fail(Code::cancelled, "a wait for other workers of the parameter server was stopped");
    send(message);
    given = answer();
  }
  return given;
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

Pair::Name Pair::hello(const Name& name) {
  Message message = request(Kind::hello);
  message.number = name.number;
  message.ticket = name.ticket;
  message.count = static_cast<uint64_t>(shards_);
  message.numbers = name.workers;
  const std::string terms = name.terms.substr(0, kMostText);
  message.words = terms.size();
  return named([&] {
    send(message);
    send_text(group_, kShardRank, terms);
    count(terms.size());
    const Message given = answer();
    return Name{given.number, given.ticket, name.workers, name.terms};
  });
}

Pair::Ready Pair::ready(bool waits) {
  Message message = request(Kind::ready);
  message.waits = waits;
  return named([&]() -> Ready {
    const Message given = ask(message);
    switch (given.kind) {
      case Kind::yours: return {Ready::Is::yours, given.ticket};
      case Kind::over: return {Ready::Is::over};
      default: return {};
    }
  });
}

std::vector<TableSpec> Pair::check(uint64_t count_of_model, std::span<const TableSpec> tables) {
  Message message = request(Kind::check);
  message.count = count_of_model;
  message.words = tables.size();
  std::vector<TableSpec> out(tables.size());
  named([&] {
    send(message);
    send_words(group_, kShardRank, tables);
    answer();
    receive_words(group_, kShardRank, std::span(out));
    count(2 * tables.size_bytes());
  });
  return out;
}

void Pair::begin(uint64_t attempt, uint64_t count, uint64_t decayed, std::span<const float> weights,
                 std::span<const float> state) {
  Message message = request(Kind::begin);
  message.ticket = attempt;
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
  named([&] { ask(message, gradient, {words, numbers}); });
}

void Pair::declare(uint64_t attempt, std::span<const TableSpec> tables) {
  Message message = request(Kind::tables);
  message.ticket = attempt;
  message.words = tables.size();
  named([&] {
    send(message);
    send_words(group_, kShardRank, tables);
    count(tables.size_bytes());
    answer();
  });
}

void Pair::fetch_rows(std::span<Rows> tables) {
  const std::vector<uint32_t> words = words_for(tables, shard_, shards_);
  Message message = request(Kind::rows);
  message.words = words.size();
  std::vector<float> numbers(count_values(tables, shard_, shards_));
  named([&] {
    ask(message, {}, {words, {}});
    receive(numbers);
  });
  take_values(tables, numbers, shard_, shards_);
}

void Pair::put_rows(uint64_t attempt, uint64_t table, const Rows& rows) {
  Rows own = part_for(rows, shard_, shards_);
  own.state.resize(own.values.size());
  own.values.insert(own.values.end(), own.state.begin(), own.state.end());
  Message message = request(Kind::put);
  message.ticket = attempt;
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
    if (given.words > rows_in_piece(width) ||
        (given.numbers > 0 && given.numbers != given.words * width))
      fail(Code::corrupt_data, "parameter server: shard ", shard_, " of ", shards_, " gives ",
           given.words, " rows of ", width, " numbers with ", given.numbers,
           " numbers of state: run the same version of EchoTrain on all machines");
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
    ask(message, weights);
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

bool Pair::leave(bool all_end, bool over) {
  Message message = request(Kind::leave);
  message.ends = all_end;
  message.over = over;
  return named([&] { return ask(message).over != 0; });
}

}  // namespace etr::server
