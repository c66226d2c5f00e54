// Lets ranks agree on an attempt to form a group.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "exchange/failure.h"
#include "exchange/store.h"

namespace etr::exchange {

// This rank will not try again to join the group.
class NeverJoins : public RankLost {
 public:
  using RankLost::RankLost;
};

// Ignores what earlier runs left in the store. If an attempt fails on one rank, it ends on all
// ranks, and all of them make the next one.
//
// Each rank writes a random word (join.RANK). Rank 0 waits for the words of all ranks, then writes
// a session: its name and the words. A rank takes part in a session that contains its own word. A
// rank that gives a session up marks it (SESSION.given_up) and makes up a new word. Rank 0 opens
// the next session when all ranks have new words.
class Meeting {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // `name` prefixes this group's keys in the store.
  Meeting(Store& store, std::string name, int rank, int size);

  // Waits for all ranks and returns the session's name. Throws RankLost, which names the ranks that
  // are missing at the deadline.
  std::string agree(Deadline deadline, double timeout_s);

  // Returns whether a rank gave this session up. Throws NeverJoins if that rank will not try again.
  bool given_up() const;
  void give_up();
  void give_up_for_good(const std::string& why);

  void mark(const std::string& what);  // sets a mark of this rank in this session
  std::vector<int> unmarked(const std::string& what) const;  // ranks without the mark

  // A value of this session, removed by forget().
  void set(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key) const;

  // Marks the group as formed on all ranks: a later failure does not start another attempt.
  void set_formed();
  bool formed() const;

  // Removes what this rank has written. `all`: every rank has left, so the shared keys go, too.
  void forget(bool all);

 private:
  std::string key(const std::string& what) const { return name_ + "." + what; }
  std::string join_key(int rank) const;
  void write(const std::string& key, const std::string& value);
  void open_session();
  bool enter_session();
  bool has_joined(int rank) const;
  std::vector<int> absent() const;
  std::string other_size(const std::vector<int>& ranks) const;

  Store& store_;
  const std::string name_;
  const int rank_, size_;
  std::string session_;             // "" before the first
  std::vector<std::string> words_;  // of the session's ranks
  std::string word_;                // this rank's
  std::vector<std::string> written_;
};

}  // namespace etr::exchange
