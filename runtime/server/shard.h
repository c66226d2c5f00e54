// One slice of the parameters: what updates it, and which workers may go on.
//
// Dean et al., "Large Scale Distributed Deep Networks", 2012 (Downpour SGD, Adagrad on the shards, warm start); Li et al., "Scaling
// Distributed Machine Learning with the Parameter Server", 2014 (consistency); Zhang, Choromanska and LeCun, "Deep Learning with
// Elastic Averaging SGD", 2015.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/table.h"

namespace etr::server {

struct ShardOptions {
  // Adagrad: s += g^2, w -= rate g / (sqrt(s) + epsilon). Otherwise SGD: s = momentum s + g, w -= rate s.
  bool adagrad = true;
  float epsilon = 1e-10f;
  float momentum = 0;
  float weight_decay = 0;  // g += weight_decay w, of the parameters under decay

  // How many pushes a worker may be ahead of the slowest; none: as many as it likes. 0 is sequential: nobody sees weights before
  // all have pushed as often as it has.
  std::optional<uint64_t> delay;
  uint64_t warm_start = 0;  // so many pushes come from one worker alone, while the others wait
};

// Thread safe. Workers are known by a ticket, which nobody had before, and have a number, from 0 on, that no other has who is here.
class Shard {
 public:
  explicit Shard(const ShardOptions& options)
      : options_(options), tables_({options.adagrad, options.epsilon}) {}

  using Ticket = uint64_t;

  // `number`: the one that the worker would like to have; it gets the lowest one that is free where that is taken, or negative.
  Ticket join(int number);
  int number(Ticket ticket) const;
  void leave(Ticket ticket, bool finished);

  void end_all();  // all workers are to come to their end
  bool ends() const { return ends_; }

  // What is there to train. The first who asks while there is nothing gets `yours`, and is to begin(); when it is gone, another.
  // `can_begin`: otherwise it waits for another one, which has a checkpoint.
  enum class Beginning { there, yours, not_yet };
  Beginning wait_beginning(Ticket ticket, double seconds, bool can_begin = true);
  bool has_beginner() const;  // a worker that may begin, or has yet to say so

  // The slice's weights and state, which is empty for a new run. `decayed`: leading ones under weight decay.
  void begin(std::span<const float> weights, std::span<const float> state, uint64_t decayed);
  uint64_t size() const;  // 0 before

  // Tables of which workers take and push single rows; see Tables for all of these. Before begin(): what a beginner that was lost has
  // put is dropped.
  void declare_tables(std::span<const TableSpec> specs, int shard, int shards);
  size_t table_count() const;
  void put_rows(uint64_t table, const Rows& rows);
  void read_rows(std::span<const uint32_t> words, std::vector<float>& to) const;
  Rows piece_of_rows(uint64_t table, uint64_t begin) const;

  // The worker takes part from now on: others may have to wait for it. Its clock is that of the slowest.
  void start(Ticket ticket);

  // Both parts of an update are applied, or, with Error(invalid_argument), neither: where the gradient has another length, or the rows
  // are malformed. Gives how many of this worker's were applied.
  uint64_t push(Ticket ticket, std::span<const float> gradient, float rate,
                const RowParts& rows = {});

  // Whether the worker may go on, after at most `seconds`.
  bool wait_turn(Ticket ticket, double seconds);

  void copy_weights(std::vector<float>& to) const;
  void copy_state(std::vector<float>& to) const;

  // Elastic averaging: `weights` are a worker's, and become what the centre was; the centre moves towards them, by `rate` of the
  // distance.
  uint64_t average(Ticket ticket, std::span<float> weights, float rate);

  struct Status {
    uint64_t workers = 0;        // who are here
    uint64_t joined = 0;         // since the beginning
    uint64_t finished = 0;       // of those who left, the ones that had come to their end
    bool last_finished = false;  // so had the last of them
    uint64_t applied = 0;        // pushes
    uint64_t rows = 0;           // of tables, that take memory
  };
  Status status() const;

 private:
  struct Worker {
    int number = 0;
    bool can_begin = true;  // where it has yet to say so, too
    bool started = false;
    uint64_t clock = 0;    // its pushes, from where it started on
    uint64_t applied = 0;  // its pushes
  };

  int free_number(int wanted) const;
  bool may_go_on(Ticket ticket) const;
  Ticket first_started() const;
  uint64_t slowest() const;
  uint64_t count_push(Ticket ticket);
  void apply_adagrad(std::span<const float> gradient, float rate);
  void apply_sgd(std::span<const float> gradient, float rate);
  float decay_at(size_t i) const { return i < decayed_ ? options_.weight_decay : 0; }

  const ShardOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Ticket, Worker> workers_;
  Ticket next_ = 1;
  std::optional<Ticket> beginner_;
  bool begun_ = false;
  std::vector<float> weights_, state_;
  Tables tables_;
  uint64_t decayed_ = 0;
  std::atomic<bool> ends_{false};
  Status status_;
};

}  // namespace etr::server
