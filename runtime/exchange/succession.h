// Who goes on when ranks of a group are lost, and who joins a run.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exchange/store.h"

namespace etr::exchange {

// The groups of a run are its generations, 0 at first. Each later one is claimed in the store: somebody writes the list of its
// members, which can be written once (Store::create()). Whoever is on the list goes on, and all others learn that the run goes on
// without them. So of two parts of a group that think each other dead one goes on at most: the one that claims first, and a part
// that is no majority of the group leaves the other one the time-out for that.
//
// A newcomer enters a word in the first free place of a list; the first rank calls those on it when it admits them, and takes
// those that answer.
class Succession {
 public:
  // `name`: of the groups in the store.
  Succession(std::unique_ptr<Store> store, std::string name, double timeout_s);

  // This process's own name, which it keeps.
  const std::string& id() const { return id_; }

  // The first generation stands: the names of its ranks, in order. A call of all of them.
  void begin(std::vector<std::string> members);

  // A place in the next generation, whose group is yet to form.
  struct Place {
    std::string group;  // its name
    int rank = 0, size = 0;
  };

  // After the loss of these ranks; where this one is among them, that is of any. A rank that has only mistaken this one's leaving, or
  // whose leaving this one has mistaken, comes along: two part only where each has lost the other. RankLost where the run goes on
  // without this rank, or where fewer than `least` are left.
  Place succeed(const std::vector<int>& lost, int least);

  // The first rank's: who waits to join, and answers now.
  std::vector<std::string> newcomers();
  // It takes them into the next generation ...
  void admit(const std::vector<std::string>& newcomers);
  // ... and the other ranks of this one follow.
  Place follow();

  // A newcomer's place; waits for a run, and until that admits it. Error(io) at the time-out.
  Place join(double timeout_s);

  // The first rank's: the run is over, and nobody can join it.
  void end() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  std::string key(const std::string& what) const { return name_ + "." + run_ + "." + what; }
  std::string run_key() const { return name_ + ".run"; }
  std::string claim_key(uint64_t generation) const;
  std::string ready_key(uint64_t generation, const std::string& member) const;
  std::string here_key(uint64_t generation, const std::string& member) const;
  void claim(const std::vector<std::string>& members);
  std::optional<Place> claimed(uint64_t generation);
  std::vector<bool> present(const std::vector<bool>& lost);
  bool is_majority(const std::vector<std::string>& part) const;
  std::optional<Place> answer_call(Clock::time_point deadline);
  void enter_list();

  const std::unique_ptr<Store> store_;
  const std::string name_, id_;
  const Clock::duration timeout_;
  std::string run_;  // a word of its own: the store may hold what is left of others
  uint64_t generation_ = 0;
  uint64_t next_place_ = 0;           // of the list of newcomers
  std::vector<std::string> members_;  // of the generation
};

}  // namespace etr::exchange
