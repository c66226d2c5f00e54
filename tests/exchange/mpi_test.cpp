// Groups on Open MPI and on MPICH, each started by its own launcher.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

struct Mpi {
  const char* name;
  const char* launcher;
};

const Mpi kMpis[] = {
    {"openmpi",
     "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
     "OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "
     "OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 mpirun.openmpi"},
    {"mpich", "env UCX_TLS=self,sm,posix,tcp UCX_NET_DEVICES=lo mpirun.mpich"},
};

class MpiGroups : public testing::TestWithParam<Mpi> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(cat(ETR_ENGINES, "/libechotrain-mpi-", GetParam().name, ".so")))
      GTEST_SKIP() << "this build has no engine for " << GetParam().name;
  }

  // Starts `size` ranks that expect a group of `expected`; size 0: one rank without a launcher.
  // Returns what each rank in `of` found, or the log if it wrote nothing.
  std::vector<std::string> run(const std::string& mode, int size, int expected,
                               std::vector<int> of = {0, 1, 2}) {
    const std::string file = file_of(mode);
    const std::string launch = size > 0 ? cat(GetParam().launcher, " -n ", size, " ") : "";
    const std::string command =
        cat("exec timeout -k 1 40 ", launch, ETR_MPI_RANK, " mpi-", GetParam().name, " ", expected,
            " ", mode, " ", file, " > ", file, ".log 2>&1");
    const pid_t launcher = fork();
    if (launcher == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(1);
    }
    bool ended = false;
    const auto over = [&] {
      return ended = ended || waitpid(launcher, nullptr, WNOHANG) == launcher;
    };
    std::vector<std::string> out;
    for (const int rank : of) {
      const std::string path = cat(file, ".", rank);
      eventually([&] { return over() || std::filesystem::exists(path); });
      out.push_back(std::filesystem::exists(path) ? contents(path) : contents(file + ".log"));
    }
    std::ofstream(file + ".over") << "yes";
    if (mode == "freeze") ::kill(launcher, SIGTERM);
    EXPECT_TRUE(eventually(over));
    return out;
  }

  std::string file_of(const std::string& mode) const { return folder_.path(mode); }

  // Returns the number of processes with this text in their command line.
  static int processes_with(const std::string& text) {
    int out = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc"))
      out += contents(entry.path().string() + "/cmdline").find(text) != std::string::npos;
    return out;
  }

  static std::string contents(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TempDir folder_;
};

using Texts = std::vector<std::string>;

TEST_P(MpiGroups, DoEveryOperation) { EXPECT_EQ(run("every", 3, 3), (Texts{"", "", ""})); }

TEST_P(MpiGroups, NameARankThatIsLate) {
  EXPECT_EQ(run("late", 3, 3, {0, 2}), (Texts{"rank 1", "rank 1"}));
}

TEST_P(MpiGroups, NameARankThatIsFrozen) {
  EXPECT_EQ(run("freeze", 3, 3, {0, 2}), (Texts{"rank 1", "rank 1"}));
}

// Some ranks may have found nothing, because MPI or its launcher ended them first.
void expect_named(const Texts& found, const Texts& expected) {
  bool any = false;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    EXPECT_TRUE(found[rank].empty() || found[rank] == expected[rank])
        << rank << ": " << found[rank];
    any = any || found[rank] == "rank 1";
  }
  EXPECT_TRUE(any) << "nobody names rank 1";
}

TEST_P(MpiGroups, NameARankThatEndsTheGroup) {
  expect_named(run("abort", 3, 3), {"rank 1", "rank 1", "rank 1"});
}

TEST_P(MpiGroups, NameARankThatLeaves) {
  expect_named(run("leave", 3, 3), {"rank 1", "left", "rank 1"});
}

// Both launchers end all ranks when one dies: nothing hangs, and no process is left.
TEST_P(MpiGroups, EndWithARankThatDies) {
  run("kill", 3, 3, {});
  EXPECT_TRUE(eventually([&] { return processes_with(file_of("kill")) == 0; }));
}

// The group must end before MPI does. To launchers a rank that ends without MPI_Finalize has
// failed, and they end the others.
TEST_P(MpiGroups, EndWithTheProgram) {
  for (int times = 0; times < 3; ++times) {
    const std::string file = file_of(cat("end", times));
    // Leaks of the MPI library are not ours to report.
    const std::string command =
        cat("ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 timeout -k 1 40 ", GetParam().launcher,
            " -n 3 ", ETR_MPI_RANK, " mpi-", GetParam().name, " 3 leave_and_end ", file, " > ",
            file, ".log 2>&1");
    EXPECT_EQ(std::system(command.c_str()), 0) << contents(file + ".log");
    EXPECT_EQ(contents(file + ".log"), "");
  }
}

TEST_P(MpiGroups, RefuseAWorldOfAnotherSize) {
  const Texts found = run("every", 0, 3, {0});  // without a launcher: a world of one
  EXPECT_NE(found[0].find("MPI says that this is rank 0 of 1, and rank 0 of 3 was expected: start "
                          "the program with the mpirun"),
            std::string::npos)
      << found[0];
}

INSTANTIATE_TEST_SUITE_P(All, MpiGroups, testing::ValuesIn(kMpis),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace etr::test
