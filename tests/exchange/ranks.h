// Ranks as separate processes on one machine, over its loopback interface.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "exchange/world.h"
#include "support/temp_dir.h"

namespace etr::test {

// Forks a process for each rank. The destructor kills those that were not waited for.
class Ranks {
 public:
  // Returns an error, or "".
  using Body = std::function<std::string(const exchange::World&)>;

  // `world` is what all ranks share. If its rendezvous is "", it becomes a folder of this object.
  Ranks(int size, const Body& body, exchange::World world = {});
  ~Ranks();

  // Returns what a rank's body returned or threw, or else how its process ended.
  std::string outcome(int rank);

  pid_t process(int rank) const { return processes_[static_cast<size_t>(rank)]; }
  void signal(int rank, int number) const { ::kill(process(rank), number); }

  // Waits until a rank has said this word (see say()), and returns the text with it.
  std::string said(int rank, const std::string& word) const;
  std::string folder() const { return folder_.path(); }

 private:
  TempDir folder_;
  std::vector<pid_t> processes_;
};

// Called in a rank's body: tells the test that waits for this word.
void say(const exchange::World& world, const std::string& word, const std::string& text = "yes");

}  // namespace etr::test
