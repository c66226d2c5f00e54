// The protocol between a worker and a shard of the parameter server, over a group of two in which
// the shard is rank 0.
//
// The worker sends requests and the shard answers them, one at a time. An answer may have to wait
// for other workers. Meanwhile the shard answers `again` now and then, and the worker repeats its
// request or gives it up. So each side knows that the other is alive, and a waiting worker can be
// stopped.
//
// Shards do not talk to each other. The first shard decides for all of them, and the workers pass
// its decisions on: which workers are present (by the tickets that it gives out), which one
// provides the initial weights, whose turn it is, and when the run is over.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "exchange/group.h"

namespace etr::server {

enum class Kind : uint32_t {
  // Requests of a worker to the first shard only.
  //
  // Asks whether there are weights to train. waits: this worker has none to provide, and waits for
  // one that has.
  ready = 1,
  // Answered when the consistency rules allow the worker to go on.
  gate,

  // To each shard, to the first one first.
  //
  // number: the worker number asked for, or -1; to other shards, the number that the first one has
  // given. ticket: 0; to other shards, the first one's ticket. count: the number of shards that the
  // worker expects. numbers: the number of workers that are to come. words: bytes of the worker's
  // terms, which follow.
  hello,
  // count: parameters of the model. words: the number of its sparse tables, whose specs follow. The
  // servers' specs follow the answer.
  check,
  // Asks for the slice's weights. The first shard answers when the consistency rules allow it.
  fetch,
  // The worker has finished. ends: all others are to finish, too. over: the first shard has said
  // that the run is over.
  leave,

  // From the worker that provides the initial weights, to the first shard last. ticket: the one in
  // the answer `yours`.
  //
  // words: as in `check`; specs follow.
  tables,
  // count: the table's number. Rows follow: `words` ids and `numbers` numbers, half of them values
  // and half optimizer state.
  put,
  // count: parameters of the model. The slice's weights and state follow.
  begin,

  // To any shard.
  //
  // rate. The slice's gradients follow, and those of rows if there are tables.
  push,
  // rate: the share of the distance by which both move. The slice's weights follow.
  average,
  // Asks for the slice's weights and state.
  state,
  // The worker is still alive.
  here,
  // Asks for the values of rows. words: the number of words that follow and name the rows (rows.h).
  rows,
  // Asks for a piece of a table's rows. count: the table's number. words: the first row, in the
  // order in which the shard made them. The answer is followed by `words` ids, their values, and
  // `numbers` numbers of their state.
  take,

  // Answers of a shard.
  //
  // The request is done. Numbers may follow.
  done = 100,
  // Not yet: ask again.
  again,
  // To `ready`: this worker is to provide the initial weights; ticket: the number of the attempt.
  yours,
  // To `ready`: the run has ended, and there will be no weights.
  over,
  // count: bytes of the reason, which follows.
  refused,
};

struct Message {
  Kind kind = Kind::done;
  int32_t number = -1;  // the worker's
  uint64_t count = 0;
  uint64_t decayed = 0;             // in `begin`: leading parameters under weight decay
  uint64_t reserved = 0;
  uint64_t ticket = 0;              // of a worker, or of an attempt to begin
  uint64_t words = 0, numbers = 0;  // counts of what follows
  float rate = 0;
  uint32_t version = 4;
  // Booleans. Answers have all but `waits`; `leave` requests have `ends` and `over`.
  uint16_t ends = 0;      // a worker has said that all are to end
  uint16_t in_order = 0;  // the first shard counts pushes, so it must get each one last
  uint16_t over = 0;      // to `leave`: that was the last worker
  uint16_t waits = 0;     // see `ready`
};
static_assert(sizeof(Message) == 72, "it travels as it lies in memory");

constexpr int kShardRank = 0, kWorkerRank = 1;
enum Tag : uint32_t {
  kRequestTag = 1,
  kAnswerTag = 2,
  kNumbersTag = 3,
  kTextTag = 4,
  kWordsTag = 5
};
// A message with larger sizes is damaged.
constexpr uint64_t kMostText = 4096;
constexpr uint64_t kMostTables = 1 << 16;
constexpr uint64_t kMostNumbers = uint64_t{1} << 34;
constexpr uint64_t kPiece = 1 << 20;  // numbers in a piece of rows

// Returns how many rows of this width make a piece.
inline uint64_t rows_in_piece(uint32_t width) {
  return std::max<uint64_t>(kPiece / std::max(width, 1u), 1);
}

inline void send(exchange::Group& group, int to, uint32_t tag, const Message& message) {
  group.send(std::as_bytes(std::span(&message, 1)), to, tag);
}

inline Message receive(exchange::Group& group, int from, uint32_t tag) {
  Message message;
  group.receive(std::as_writable_bytes(std::span(&message, 1)), from, tag);
  return message;
}

inline void send_numbers(exchange::Group& group, int to, std::span<const float> numbers) {
  if (!numbers.empty()) group.send(std::as_bytes(numbers), to, kNumbersTag);
}

inline void receive_numbers(exchange::Group& group, int from, std::span<float> numbers) {
  if (!numbers.empty()) group.receive(std::as_writable_bytes(numbers), from, kNumbersTag);
}

// Ids, or specs of tables.
template <typename T>
void send_words(exchange::Group& group, int to, std::span<const T> words) {
  if (!words.empty()) group.send(std::as_bytes(words), to, kWordsTag);
}

template <typename T>
void receive_words(exchange::Group& group, int from, std::span<T> words) {
  if (!words.empty()) group.receive(std::as_writable_bytes(words), from, kWordsTag);
}

inline void send_text(exchange::Group& group, int to, const std::string& text) {
  if (!text.empty()) group.send(std::as_bytes(std::span(text.data(), text.size())), to, kTextTag);
}

inline std::string receive_text(exchange::Group& group, int from, uint64_t size) {
  std::string text(std::min(size, kMostText), '\0');
  if (!text.empty())
    group.receive(std::as_writable_bytes(std::span(text.data(), text.size())), from, kTextTag);
  return text;
}

// The part of a parameter vector that one shard holds.
struct Slice {
  uint64_t begin = 0, count = 0;
};

inline Slice slice_of(uint64_t count, int shard, int shards) {
  const auto at = [&](int k) {
    return count / static_cast<uint64_t>(shards) * static_cast<uint64_t>(k) +
           count % static_cast<uint64_t>(shards) * static_cast<uint64_t>(k) /
               static_cast<uint64_t>(shards);
  };
  return {at(shard), at(shard + 1) - at(shard)};
}

}  // namespace etr::server
