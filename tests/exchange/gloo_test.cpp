// Groups of processes on Gloo.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>

#include "core/json.h"
#include "core/platform_process.h"
#include "core/platform_socket.h"
#include "exchange/conformance.h"
#include "exchange/ranks.h"
#include "exchange/store.h"
#include "support/error_text.h"
#include "support/eventually.h"
#include "support/free_port.h"

static std::atomic<int> interruptions{0};  // of the next calls of fallocate()

// Takes the place of the C library's.
extern "C" int fallocate(int file, int mode, off_t begin, off_t size) {
  if (interruptions == 0) return static_cast<int>(syscall(SYS_fallocate, file, mode, begin, size));
  --interruptions;
  errno = EINTR;
  return -1;
}

namespace etr::test {
namespace {

using exchange::Group;
using exchange::open_group;
using exchange::RankLost;
using exchange::World;

TEST(Gloo, DoesEveryOperation) {
  for (const int size : {2, 3}) {
    Ranks ranks(size, [](const World& world) {
      Group group = open_group(world);
      return every_operation(group);
    });
    for (int r = 0; r < size; ++r) EXPECT_EQ(ranks.outcome(r), "");
  }
}

World at_port(int port) {
  World world;
  world.rendezvous = cat("tcp://127.0.0.1:", port);
  return world;
}

std::string sum_of_ranks(const World& world) {
  Group group = open_group(world);
  std::vector<int64_t> sum{world.rank};
  group.all_reduce(std::span(sum));
  return sum[0] == world.size * (world.size - 1) / 2 ? "" : "a wrong sum";
}

TEST(Gloo, RanksMeetOverTcp) {
  Ranks ranks(3, sum_of_ranks, at_port(free_port()));
  for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.outcome(r), "");
}

TEST(Gloo, WhatOthersLeftInTheFolderDoesNoHarm) {
  TempDir folder;
  World world;
  world.rendezvous = "file:" + folder.path();
  // As of a killed run of seven ranks. Rank 0 reads it, because rank 1 comes later.
  std::ofstream(folder.path("world.join.1")) << "word 7";
  for (const int killed : {true, true, false}) {
    Ranks ranks(
        2,
        [&](const World& mine) -> std::string {
          if (mine.rank == 1)
            eventually([&] { return std::filesystem::exists(folder.path("world.join.0")); });
          if (!killed) return sum_of_ranks(mine);
          Group group = open_group(mine);
          raise(SIGKILL);
          return "";
        },
        world);
    for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.outcome(r), killed ? "ended by signal 9" : "");
  }
}

TEST(Gloo, LeavesNothingInTheFolder) {
  TempDir folder;
  World world;
  world.rendezvous = "file:" + folder.path();
  {
    Ranks ranks(3, sum_of_ranks, world);
    for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.outcome(r), "");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Gloo, NamesRanksThatDoNotJoin) {
  World world;
  world.timeout_s = 5;
  Ranks ranks(
      4,
      [](const World& mine) { return mine.rank == 0 || mine.rank == 2 ? "" : sum_of_ranks(mine); },
      world);
  EXPECT_EQ(ranks.outcome(1), "ranks 0 and 2 did not come to the group 'world' of 4 within 5 s");
  EXPECT_EQ(ranks.outcome(3), "ranks 0 and 2 did not come to the group 'world' of 4 within 5 s");
}

TEST(Gloo, RanksThatWereToldDifferentSizesLearnOfIt) {
  World world;
  world.timeout_s = 5;
  Ranks ranks(
      2,
      [](World mine) {
        mine.size += mine.rank;
        return sum_of_ranks(mine);
      },
      world);
  EXPECT_EQ(ranks.outcome(0),
            "rank 1 did not come to the group 'world' of 2 within 5 s. The rendezvous has an entry "
            "of rank 1 for a group of 3: unless an earlier run left it, start all ranks with the "
            "same size");
  const std::string other = ranks.outcome(1);
  EXPECT_NE(other.find("an entry of rank 0 for a group of 2"), std::string::npos) << other;
}

TEST(Gloo, RanksThatCallDifferentThingsLearnOfIt) {
  Ranks ranks(2, [](const World& mine) -> std::string {
    Group group = open_group(mine);
    group.set_timeout(1);
    std::vector<float> values(mine.rank == 0 ? 1000 : 500'000);
    const std::string sizes = error_text([&] { group.all_reduce(std::span(values)); });
    return sizes.empty() ? "nobody saw it" : "";
  });
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.outcome(r), "");
}

TEST(Gloo, ALostHelperIsNoSignalToTheProgram) {
  Ranks ranks(2, [](const World& mine) -> std::string {
    Group group = open_group(mine);
    if (mine.rank == 1) {
      std::ifstream children(cat("/proc/self/task/", getpid(), "/children"));
      pid_t helper = 0;
      children >> helper;
      ::kill(helper, SIGKILL);
    }
    std::vector<float> values(1'000'000);
    const std::string why = error_text([&] {
      while (true) group.all_reduce(std::span(values));
    });
    return why.find("rank 1") != std::string::npos ? "" : why;
  });
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.outcome(r), "");  // not ended by SIGPIPE
}

// Rank 0 waits for the frozen rank once, not again for each group that it shares with it.
TEST(Gloo, ARankThatFreezesWhileAPartFormsDoesNotKeepTheOthers) {
  World world;
  const auto limit = std::chrono::seconds(14);
  Ranks ranks(
      2,
      [&](const World& mine) -> std::string {
        const std::string ended = mine.rendezvous.substr(sizeof "file:" - 1) + "/ended";
        std::chrono::steady_clock::time_point began;
        std::string why;
        {
          Group group = open_group(mine);
          const Group second = group.duplicate(), third = group.duplicate();
          if (mine.rank == 1) {  // takes part in the call's first exchange, and in no other
            std::array<std::byte, 8> part{};
            std::array<std::byte, 16> all{};
            group.all_gather(part, all);
            eventually([&] { return std::filesystem::exists(ended); });
            return "";
          }
          group.set_timeout(1);
          began = std::chrono::steady_clock::now();
          why = error_text([&] { group.duplicate(); });
        }
        const bool late = std::chrono::steady_clock::now() - began > limit;
        std::ofstream(ended) << "1";
        return late ? "it came late" : why.find("rank 1") == std::string::npos ? why : "";
      },
      world);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.outcome(r), "");
}

TEST(Gloo, AChildHasNoPartInItsParentsGroup) {
  Ranks ranks(2, [](const World& mine) -> std::string {
    Group group = open_group(mine);
    if (const pid_t child = fork(); child == 0) {
      const std::string why = error_text([&] { group.barrier(); });
      { const Group gone = std::move(group); }
      _exit(why.find("not by children that it forked") == std::string::npos);
    } else {
      int status = 0;
      waitpid(child, &status, 0);
      if (status != 0) return "the child took part";
    }
    group.barrier();
    return "";
  });
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.outcome(r), "");
}

TEST(Gloo, NamesRankZeroWhereItDoesNotServe) {
  World world = at_port(free_port());
  world.timeout_s = 0.5;
  Ranks ranks(
      2, [](const World& mine) { return mine.rank == 0 ? "" : sum_of_ranks(mine); }, world);
  EXPECT_EQ(
      ranks.outcome(1).find("rank 0 does not serve the rendezvous: cannot connect to 127.0.0.1"),
      0u);
}

// Resolvers take 0x7f000001 for a name of 127.0.0.1, without looking into /etc/hosts.
TEST(Gloo, SaysThatAHostNameIsALoopbackAddress) {
  World world = at_port(free_port());
  world.timeout_s = 5;
  const auto alone = [](const World& mine) { return mine.rank == 1 ? "" : sum_of_ranks(mine); };
  const char* const missing = "rank 1 did not come to the group 'world' of 2 within 5 s";
  Ranks meant(2, alone, world);
  EXPECT_EQ(meant.outcome(0), missing);
  world.rendezvous = cat("tcp://0x7f000001:", free_port());
  Ranks mistaken(2, alone, world);
  EXPECT_EQ(mistaken.outcome(0).find(cat(missing, ". '0x7f000001' is a loopback address")), 0u)
      << mistaken.outcome(0);
}

// The program that has the port does not answer. The error must not wait for the time-out.
TEST(Gloo, SaysAtOnceThatAPortIsTaken) {
  const int port = free_port();
  const platform::Descriptor other = platform::listen_at("127.0.0.1", std::to_string(port));
  World world = at_port(port);
  world.engines = ETR_ENGINES;
  world.size = 2;
  world.timeout_s = 600;
  const std::string why = error_text([&] { open_group(world); });
  EXPECT_NE(why.find("this port is used by another program"), std::string::npos) << why;
}

TEST(Gloo, UsesTheStoreThatIsServedThereAlready) {
  const std::string address = cat("127.0.0.1:", free_port());
  const auto first = exchange::tcp_store(address, /*serve=*/true, 10);
  const auto second = exchange::tcp_store(address, /*serve=*/true, 10);
  first->set("word", "told");
  EXPECT_EQ(second->get("word"), "told");
}

// Otherwise ranks with a mistyped path would wait for each other in different folders.
TEST(Gloo, MakesTheFolderOfTheRendezvousAndNoOther) {
  TempDir folder;
  std::filesystem::create_directory(folder.path("shared"));
  EXPECT_NO_THROW(exchange::file_store(folder.path("shared/meet")));
  EXPECT_NO_THROW(exchange::file_store(folder.path("shared/meet/")));
  const std::string why = error_text([&] { exchange::file_store(folder.path("shred/deep/meet")); });
  EXPECT_NE(why.find("' does, and has no folder 'shred' (did you mean 'shared'?)"),
            std::string::npos)
      << why;
  EXPECT_FALSE(std::filesystem::exists(folder.path("shred")));
}

TEST(Gloo, SaysWhyTheRendezvousCannotBeWritten) {
  TempDir folder;
  const auto store = exchange::file_store(folder.path("meet"));
  std::filesystem::create_directories(folder.path("meet/key/inside"));
  const std::string why = error_text([&] { store->set("key", "value"); });
  EXPECT_NE(why.find("cannot be written: Is a directory"), std::string::npos) << why;
}

TEST(Gloo, AHelperThatCannotStartIsNoReasonToTryAgain) {
  TempDir folder;
  std::ofstream(folder.path("echotrain-gloo")) << "#!/bin/sh\nexit 127\n";
  std::filesystem::permissions(folder.path("echotrain-gloo"), std::filesystem::perms::owner_all);
  Ranks ranks(2, [&](World mine) {
    mine.engines = folder.path();
    return sum_of_ranks(mine);
  });
  for (int r = 0; r < 2; ++r) {
    const std::string why = ranks.outcome(r);
    EXPECT_NE(why.find("ended as soon as it was started"), std::string::npos) << why;
  }
}

// So that the others can go on without it.
TEST(Gloo, WhoseHelperCannotStartIsLostToTheOthers) {
  TempDir folder;
  std::ofstream(folder.path("echotrain-gloo")) << "#!/bin/sh\nexit 127\n";
  std::filesystem::permissions(folder.path("echotrain-gloo"), std::filesystem::perms::owner_all);
  Ranks ranks(3, [&](World mine) -> std::string {
    if (mine.rank == 1) mine.engines = folder.path();
    try {
      return sum_of_ranks(mine);
    } catch (const exchange::RankLost& lost) {
      return cat("lost ", exchange::ranks_text(lost.missing()), ": ", lost.what());
    }
  });
  for (const int r : {0, 2}) {
    const std::string why = ranks.outcome(r);
    EXPECT_EQ(why.find("lost rank 1: rank 1 cannot join the group: the helper"), 0u) << why;
  }
  EXPECT_EQ(ranks.outcome(1).find("lost"), std::string::npos) << ranks.outcome(1);
}

// A child of fork() has its parent's descriptors, which must not keep the helper alive.
TEST(Gloo, AChildDoesNotHideThatItsParentDied) {
  Ranks ranks(2, [](const World& mine) -> std::string {
    Group group = open_group(mine);
    if (mine.rank == 1) {
      if (const pid_t child = fork(); child == 0)
        pause();
      else
        say(mine, "child", std::to_string(child));
      raise(SIGKILL);
    }
    return error_text([&] { group.barrier(); }).substr(0, 14);
  });
  EXPECT_EQ(ranks.outcome(0), "rank 1 is lost");
  ::kill(std::stoi(ranks.said(1, "child")), SIGKILL);
}

// As on kernels where a pending signal interrupts it.
TEST(Gloo, SharedMemoryIsAllocatedHoweverOftenThatIsInterrupted) {
  const platform::SharedMemory memory;
  interruptions = 3;
  std::byte* const piece = memory.map(0, 8192);
  piece[8191] = std::byte{1};
  EXPECT_EQ(interruptions, 0);
  memory.unmap(piece, 0, 8192);
}

TEST(Gloo, SaysWhatItCannotUse) {
  World world;
  world.size = 2;
  world.engines = ETR_ENGINES;
  const std::string forgotten = error_text([&] { open_group(world); });
  for (const char* way : {"file:FOLDER", "tcp://HOST:PORT", "a launcher"})
    EXPECT_NE(forgotten.find(way), std::string::npos) << forgotten;
  for (const char* rendezvous : {"/tmp", "file:"}) {
    world.rendezvous = rendezvous;
    const std::string error = error_text([&] { open_group(world); });
    EXPECT_NE(error.find("neither file:FOLDER nor tcp://HOST:PORT"), std::string::npos) << error;
  }
  world.engines = "/nowhere";
  world.rendezvous = "file:/tmp";
  EXPECT_NE(error_text([&] { open_group(world); }).find("Install Gloo (libgloo-dev)"),
            std::string::npos);
  world.rank = 2;
  EXPECT_NE(error_text([&] { open_group(world); }).find("rank 2 of a group of 2"),
            std::string::npos);
  Ranks ranks(2, [](World mine) {
    mine.interface = "nosuch0";
    return error_text([&] { open_group(mine); });
  });
  for (int r = 0; r < 2; ++r)
    EXPECT_NE(ranks.outcome(r).find("Gloo cannot listen on the interface 'nosuch0':"),
              std::string::npos);
}

// Returns the entries of a process's folder in /proc. The process may end meanwhile.
std::vector<std::filesystem::path> entries(const std::string& process, const char* folder) {
  std::vector<std::filesystem::path> out;
  std::error_code gone;
  std::filesystem::directory_iterator at(cat("/proc/", process, folder), gone), end;
  for (; !gone && at != end; at.increment(gone)) out.push_back(at->path());
  return out;
}

void add_family(const std::string& process, std::set<std::string>& family) {
  if (!family.insert(process).second) return;
  for (const auto& thread : entries(process, "/task")) {
    std::ifstream children(thread / "children");
    for (std::string child; children >> child;) add_family(child, family);
  }
}

// Returns the sockets of this program, its ranks and their helpers, as /proc/net/tcp numbers them.
// Other tests may listen at the same time.
std::set<std::string> own_sockets() {
  std::set<std::string> family, out;
  add_family(std::to_string(getpid()), family);
  std::error_code gone;
  for (const std::string& process : family)
    for (const auto& file : entries(process, "/fd")) {
      const std::string target = std::filesystem::read_symlink(file, gone).string();
      if (target.starts_with("socket:[")) out.insert(target.substr(8, target.size() - 9));
    }
  return out;
}

// Returns the ports of the loopback interface on which these sockets listen.
std::vector<int> listening_ports() {
  const std::set<std::string> own = own_sockets();
  std::vector<int> out;
  std::ifstream in("/proc/net/tcp");
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    const std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
    if (word.size() > 9 && word[3] == "0A" && word[1].starts_with("0100007F:") &&
        own.count(word[9]))
      out.push_back(std::stoi(word[1].substr(9), nullptr, 16));
  }
  return out;
}

// Connects to ports again and again until it is destroyed. In turn it sends garbage, resets the
// connection, and stays silent.
class Scanner {
 public:
  // `only`: the port; 0: all new ones.
  explicit Scanner(int only = 0)
      : only_(only), before_(listening_ports()), thread_([this] { scan(); }) {}
  ~Scanner() {
    stop_ = true;
    thread_.join();
    for (const int socket : silent_) close(socket);
  }
  int met() const { return met_; }

 private:
  void scan() {
    while (!stop_)
      for (const int port : listening_ports())
        if (only_ ? port == only_
                  : std::find(before_.begin(), before_.end(), port) == before_.end())
          touch(port);
  }

  void touch(int port) {
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      const int kind = met_++ % 3;
      const linger reset{1, 0};
      const std::string garbage(200, '\xA5');
      if (kind == 0) send(client, garbage.data(), garbage.size(), MSG_NOSIGNAL);
      if (kind == 1) setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      if (kind == 2 && silent_.size() < 200) return silent_.push_back(client);
    }
    close(client);
  }

  const int only_;
  const std::vector<int> before_;
  std::vector<int> silent_;
  std::atomic<bool> stop_{false};
  std::atomic<int> met_{0};
  std::thread thread_;
};

// While a group forms, Gloo accepts any connection, and its process ends if it receives nonsense.
// The program survives: the ranks try again until a group forms between two visits of the scanner.
TEST(Gloo, SurvivesAPortScanWhileItForms) {
  TempDir folder;
  const std::string enough = folder.path("enough");
  Ranks ranks(3, [&](const World& mine) -> std::string {
    std::vector<int32_t> stop{0};
    for (int i = 0; stop[0] == 0; ++i) {
      World world = mine;
      world.name = cat("group", i);
      Group group = open_group(world);
      stop[0] = std::filesystem::exists(enough);
      group.broadcast(std::as_writable_bytes(std::span(stop)), 0);
    }
    return "";
  });
  {
    Scanner scanner;
    EXPECT_TRUE(eventually([&] { return scanner.met() > 20; }));
  }
  std::ofstream{enough};
  for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.outcome(r), "");
}

TEST(Gloo, ListensNowhereWhileItWorks) {
  const size_t before = listening_ports().size();
  Ranks ranks(2, [](const World& mine) -> std::string {
    Group group = open_group(mine);
    say(mine, "here");
    for (int i = 0; i < 200; ++i) group.barrier();
    group.receive({}, 1 - mine.rank, 1);  // until the test is over
    return "";
  });
  ranks.said(0, "here");
  ranks.said(1, "here");
  EXPECT_TRUE(eventually([&] { return listening_ports().size() <= before; }));
}

TEST(Gloo, SurvivesAPortScanOfItsStore) {
  TempDir folder;
  const std::string enough = folder.path("enough");
  const int port = free_port();
  Ranks ranks(
      3,
      [&](const World& mine) -> std::string {
        // Meanwhile the others wait for this rank and are scanned.
        if (mine.rank == 2 && !eventually([&] { return std::filesystem::exists(enough); }))
          return "no scan";
        return sum_of_ranks(mine);
      },
      at_port(port));
  {
    Scanner scanner(port);
    EXPECT_TRUE(eventually([&] { return scanner.met() > 30; }));
    std::ofstream{enough};
    for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.outcome(r), "");
  }
}

}  // namespace
}  // namespace etr::test
