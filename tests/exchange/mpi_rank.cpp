// exchange_mpi_rank ENGINE EXPECTED_SIZE MODE FILE: one rank of the tests that mpirun starts
// (mpi_test.cpp). Writes what it found to FILE.RANK.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "exchange/conformance.h"
#include "exchange/world.h"
#include "support/eventually.h"

namespace etr::test {
namespace {

using exchange::Group;
using exchange::World;

std::string run(const std::string& mode, const World& world) {
  Group group = exchange::open_group(world);
  if (mode == "every") return every_operation(group);
  group.barrier();
  const bool victim = group.rank() == 1;
  group.set_timeout(3);
  if (mode == "late" && victim) std::this_thread::sleep_for(std::chrono::seconds(7));
  if (mode == "freeze" && victim) raise(SIGSTOP);
  if (mode == "kill" && victim) raise(SIGKILL);
  if (mode == "abort" && victim) group.abort("no more");
  if (mode == "leave" && victim) return "left";
  while (true) group.barrier();
}

}  // namespace
}  // namespace etr::test

int main(int, char** argv) {
  using namespace etr;
  auto world =
      exchange::world_from([](const char* name) -> const char* { return std::getenv(name); });
  if (!world) world.emplace();
  world->engine = argv[1];
  world->size = std::atoi(argv[2]);
  world->engines = ETR_ENGINES;
  world->timeout_s = 20;
  alarm(60);
  if (argv[3] == std::string("leave_and_end")) {
    exchange::open_group(*world).barrier();
    return 0;
  }
  std::string outcome;
  try {
    outcome = test::run(argv[3], *world);
  } catch (const exchange::RankLost& lost) {
    outcome = exchange::ranks_text(lost.missing());
  } catch (const std::exception& error) {
    outcome = error.what();
  }
  const std::string path = cat(argv[4], ".", world->rank);
  std::ofstream(path + "~") << outcome;
  std::rename((path + "~").c_str(), path.c_str());
  // After a failure mpirun ends all ranks when the first one ends. So this rank waits until all
  // have written what they found.
  test::eventually([&] { return std::filesystem::exists(cat(argv[4], ".over")); });
  return 0;
}
