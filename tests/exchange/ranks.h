// Ranks as processes of their own, on one machine and its loopback interface.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "exchange/world.h"
#include "support/temp_dir.h"

namespace etr::test {

// Forks a process for each rank. One that is not waited for is killed with the object.
class Ranks {
 public:
  using Body = std::function<std::string(
      const exchange::World&)>;  // returns what went wrong, "" for nothing

  // `world` is what all have in common; "" as its rendezvous: a folder of this object's.
  Ranks(int size, const Body& body, exchange::World world = {});
  ~Ranks();

  // What a rank's body returned or threw; how its process ended, where that was otherwise.
  std::string outcome(int rank);

  pid_t process(int rank) const { return processes_[static_cast<size_t>(rank)]; }
  void signal(int rank, int number) const { ::kill(process(rank), number); }

  // Waits until a rank has said this word (below), and returns what it said of it.
  std::string said(int rank, const std::string& word) const;
  std::string folder() const { return folder_.path(); }

 private:
  TempDir folder_;
  std::vector<pid_t> processes_;
};

// A port on the loopback interface that nobody has.
int free_port();

// In a rank's body: what the test waits for.
void say(const exchange::World& world, const std::string& word, const std::string& text = "yes");

}  // namespace etr::test
