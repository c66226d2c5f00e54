// What a worker and a shard of the parameter server say to each other, over a group of two: the shard is its rank 0.
//
// The worker asks and the shard answers, one after the other. An answer may have to wait for other workers; until then the shard
// says `wait` from time to time, so that both know that the other is alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "exchange/group.h"

namespace etr::server {

enum class Kind : uint32_t {
  // A worker's.
  hello =
      1,    // number: the one that it would like to have, or -1; count: the shards that it knows of
  ready,    // count: parameters of its model. Is there something to train?
  begin,    // count: as before; the slice's weights and state follow
  push,     // rate; the slice's gradients follow, and where there are tables those of rows
  fetch,    // when the consistency allows: the slice's weights
  gate,     // when it allows: nothing
  average,  // rate: how strongly; the slice's weights follow
  state,    // the slice's weights and state
  here,     // still alive
  leave,    // has finished; ends: and so are all to do
  tables,   // count: of the model's tables with rows of their own; their specs follow
  rows,     // words: ids of rows; these follow
  put,  // before `begin`, count: a table; its rows follow: words, numbers: values, and as many of their state
  take,  // count: a table; words: the first of the rows wanted, in the order in which the shard has made them. Words, values
         // and `numbers` of their state follow the answer

  // A shard's.
  done = 100,  // what was asked for is done; numbers may follow
  wait,        // not yet; another answer will come
  yours,       // to `ready`: this worker is to say what to begin with
  refused,     // count: bytes of the reason, which follows
};

struct Message {
  Kind kind = Kind::done;
  int32_t number = -1;  // of the worker
  uint64_t count = 0;
  uint64_t decayed =
      0;  // of `begin`: how many parameters, from the first on, are under weight decay
  uint64_t applied = 0;             // of an answer: this worker's pushes so far
  uint64_t words = 0, numbers = 0;  // of rows, that follow
  float rate = 0;
  uint32_t ends = 0;  // of an answer: a worker has said that all are to end
  uint32_t version = 3;
  uint32_t waits = 0;  // of `ready`: it has nothing to begin with, and waits for who has
};

constexpr int kShardRank = 0, kWorkerRank = 1;
enum Tag : uint32_t {
  kRequestTag = 1,
  kAnswerTag = 2,
  kNumbersTag = 3,
  kTextTag = 4,
  kWordsTag = 5
};
constexpr uint64_t kMostText = 4096;

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
