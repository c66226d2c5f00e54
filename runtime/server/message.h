// What a worker and a shard of the parameter server say to each other, over a group of two: the shard is its rank 0.
//
// The worker asks and the shard answers, one after the other. An answer may have to wait for other workers; until then the shard
// says `again` from time to time, and the worker asks again, or does not: so both know that the other is alive, and the worker
// may change its mind.
//
// Shards do not talk to each other. The first one decides for all, and workers tell the others: who is here (the tickets that it
// gives out), who says what to begin with, whose turn it is, and when all is over.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "exchange/group.h"

namespace etr::server {

enum class Kind : uint32_t {
  // A worker's, to the first shard alone.
  //
  // Is there something to train? waits: it has nothing to begin with, and waits for who has.
  ready = 1,
  // When the consistency allows it to go on: nothing.
  gate,

  // To each of them, to the first one first.
  //
  // number: the one that it would like to have, or -1, and to the others the one that it has; ticket: 0, and to the others that of
  // the first; count: the shards that it knows of; numbers: workers that are to come; words: bytes of its terms, which follow.
  hello,
  // count: parameters of its model; words: of the model's tables with rows of their own; their specs follow. So do, after the answer,
  // those of the servers.
  check,
  // The slice's weights; of the first shard when the consistency allows.
  fetch,
  // Has finished. ends: and so are all to do; over: the first shard has said so.
  leave,

  // Of who begins, to the first shard last; ticket: what the first one gave with `yours`.
  //
  // words: as of `check`; specs follow.
  tables,
  // count: a table; its rows follow: words, numbers: values, and as many of their state.
  put,
  // count: parameters of the model; the slice's weights and state follow.
  begin,

  // To any of them.
  //
  // rate; the slice's gradients follow, and where there are tables those of rows.
  push,
  // rate: how strongly; the slice's weights follow.
  average,
  // The slice's weights and state.
  state,
  // Still alive.
  here,
  // words: ids of rows; these follow.
  rows,
  // count: a table; words: the first of the rows wanted, in the order in which the shard has made them. Words, values and `numbers` of
  // their state follow the answer.
  take,

  // A shard's.
  //
  // What was asked for is done; numbers may follow.
  done = 100,
  // Not yet: ask again.
  again,
  // To `ready`: this worker is to say what to begin with; ticket: of that.
  yours,
  // To `ready`: there will be nothing.
  over,
  // count: bytes of the reason, which follows.
  refused,
};

struct Message {
  Kind kind = Kind::done;
  int32_t number = -1;  // of the worker
  uint64_t count = 0;
  uint64_t decayed = 0;             // of `begin`: leading parameters under weight decay
  uint64_t applied = 0;             // of an answer: this worker's pushes so far
  uint64_t ticket = 0;              // of a worker, or of a beginning
  uint64_t words = 0, numbers = 0;  // that follow
  float rate = 0;
  uint32_t version = 4;
  // Whether; of answers:
  uint16_t ends = 0;      // a worker has said that all are to end
  uint16_t in_order = 0;  // the first shard counts pushes, and is to have each when the others have
  uint16_t over = 0;      // to `leave`: that was the last worker
  uint16_t waits = 0;     // of `ready`
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
// What is larger is damaged.
constexpr uint64_t kMostText = 4096;
constexpr uint64_t kMostTables = 1 << 16;
constexpr uint64_t kMostNumbers = uint64_t{1} << 34;
constexpr uint64_t kPiece = 1 << 20;  // numbers of the rows that travel at once

// Rows of this width in a piece.
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

// The part of `count` parameters that shard `shard` of `shards` holds.
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
