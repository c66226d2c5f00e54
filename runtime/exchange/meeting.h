// How ranks agree on one attempt to form a group.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "exchange/store.h"

namespace etr::exchange {

// What earlier runs left in the store does no harm, and an attempt that fails on one rank ends on all, who then make the next.
//
// Each rank writes a word that it has just made up (join.RANK). Rank 0 waits for all and writes a session: its name, and the
// words. A rank takes part in a session that has its own word. Whoever gives a session up says so (SESSION.given_up) and makes up
// a new word; rank 0 opens the next session when all have new ones.
class Meeting {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // `name`: what of the store's names is this group's. `stopped` is asked while waiting, and throws to end that.
  Meeting(Store& store, std::string name, int rank, int size, std::function<void()> stopped);

  // Waits for all ranks: the session's name. Throws RankLost that names who is missing at the deadline.
  std::string agree(Deadline deadline, double timeout_s);

  bool given_up() const;  // this session, by some rank; throws where that rank will not try again
  void give_up();
  void give_up_for_good(const std::string& why);

  void mark(const std::string& what);                        // of this rank in this session
  std::vector<int> unmarked(const std::string& what) const;  // ranks that have not

  // Of this session; forgotten with the meeting.
  void set(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key) const;

  // The group stands, on all ranks: whatever fails from now on is no reason for another attempt.
  void set_formed();
  bool formed() const;

  // Removes what this rank has written; `all`: also what others need no more, when all have left.
  void forget(bool all);

 private:
  std::string key(const std::string& what) const { return name_ + "." + what; }
  std::string join_key(int rank) const;
  void write(const std::string& key, const std::string& value);
  void open_session();
  bool enter_session();
  bool has_joined(int rank) const;
  std::vector<int> absent() const;

  Store& store_;
  const std::string name_;
  const int rank_, size_;
  const std::function<void()> stopped_;
  std::string session_;             // "" before the first
  std::vector<std::string> words_;  // of the session's ranks
  std::string word_;                // this rank's
  std::vector<std::string> written_;
};

}  // namespace etr::exchange
