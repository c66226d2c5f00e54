// Decides which ranks continue after a loss, and how newcomers join a run.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exchange/store.h"

namespace etr::exchange {

// A run has generations of groups, the first being 0. Each later generation is claimed in the
// store: one rank writes the list of its members, a key that can be created only once
// (Store::create()). Ranks on the list go on; the others learn that the run goes on without them.
// So if two parts of a group each think the other dead, at most one goes on: the first to claim. A
// part that is not a majority of the group waits for the time-out before it claims, which leaves
// the other part time to do so.
//
// A newcomer enters its id in the first free place of a list. When the first rank admits newcomers,
// it calls those on the list and takes the ones that answer.
class Succession {
 public:
  // `name` is the prefix of the groups' keys in the store.
  Succession(std::unique_ptr<Store> store, std::string name, double timeout_s);

  // A random id of this process, which it keeps.
  const std::string& id() const { return id_; }

  // Every rank calls this when the first generation has formed. `members`: the ids in rank order.
  void begin(std::vector<std::string> members);

  // A place in the next generation, whose group has yet to form.
  struct Place {
    std::string group;  // its name
    int rank = 0, size = 0;
  };

  // Agrees on the next generation after the loss of these ranks. If this rank is itself among them,
  // it takes no rank for lost. Two ranks separate only if each takes the other for lost; if just
  // one does, both are in the next generation. Throws RankLost if the run goes on without this
  // rank, or if fewer than `least` ranks remain.
  Place succeed(const std::vector<int>& lost, int least);

  // First rank: calls the processes that wait to join, and returns the ids of those that answer.
  std::vector<std::string> newcomers();
  // First rank: admits these processes to the next generation.
  void admit(const std::vector<std::string>& newcomers);
  // Other ranks: wait until the first one has admitted them to the next generation.
  Place follow();

  // Newcomer: waits for a run that admits it, and returns its place. Error(io) at the time-out,
  // Error(state) if the run ends first.
  Place join(double timeout_s);

  // First rank: ends the run, so that nobody can join it.
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
  std::string run_;  // a random word, since the store may hold keys of other runs
  uint64_t generation_ = 0;
  uint64_t next_place_ = 0;           // the next place to read in the list of newcomers
  std::vector<std::string> members_;  // of the current generation
  uint64_t called_ = 0;               // newcomer: the generation that it was called for; 0: none
};

}  // namespace etr::exchange
