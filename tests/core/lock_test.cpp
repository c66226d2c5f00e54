// Locks between processes: what a second one is told, and what remains of a process that dies.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "core/platform_files.h"
#include "core/platform_lock.h"
#include "support/child.h"
#include "support/data.h"

namespace etr::test {
namespace {

namespace fs = std::filesystem;
using platform::FileLock;

// Who has it; "" where it was free.
std::string holder_of(const std::string& path) {
  std::string holder;
  const auto lock = FileLock::take(path, holder);
  return lock ? "" : holder;
}

// Two ends of a pipe: a child says that it has come so far.
class Signal {
 public:
  Signal() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  ~Signal() {
    for (const int end : ends_) ::close(end);
  }
  void send() const { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }
  void wait() const {
    char byte;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
  }

 private:
  std::array<int, 2> ends_{};
};

TEST(FileLock, IsForOneAtATimeWithinAProcess) {
  TempDir dir;
  const std::string path = dir.path("lock");
  std::string holder;
  for (int i = 0; i < 2; ++i) {
    const auto lock = FileLock::take(path, holder);
    ASSERT_TRUE(lock);
    EXPECT_EQ(holder_of(path), "this process");
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path)) << "it is removed with the lock";
}

// Killed with the lock, it leaves the file and no lock; a process that it has forked does not keep
// it.
TEST(FileLock, DiesWithItsProcess) {
  TempDir dir;
  const std::string path = dir.path("lock");
  const Signal locked, end;
  const pid_t child = fork();
  if (child == 0) {
    std::string holder;
    const auto lock = FileLock::take(path, holder);
    if (!lock || fork() == 0) {  // outlives it
      locked.send();             // the descriptors of its parent's locks are closed by now
      alarm(60);
      end.wait();
      _exit(0);
    }
    while (true) ::pause();
  }
  locked.wait();
  EXPECT_EQ(holder_of(path).rfind(cat("process ", child, " on "), 0), 0u) << holder_of(path);
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(holder_of(path), "");
  end.send();
}

TEST(FileLock, AForkedChildDoesNotReleaseIt) {
  TempDir dir;
  const std::string path = dir.path("lock");
  std::string holder;
  auto lock = FileLock::take(path, holder);
  EXPECT_EQ(in_child([&] {
              const bool held = holder_of(path) != "";
              std::string none;
              const auto own = FileLock::take(dir.path("own"), none);  // by the same descriptor
              lock.reset();  // as where the child ends by exit()
              const bool kept = own && holder_of(dir.path("own")) == "this process";
              return held && kept && holder_of(path) != "" && fs::exists(path) ? 0 : 1;
            }),
            0);
  EXPECT_EQ(holder_of(path), "this process");
}

TEST(FileLock, LeavesAloneWhatIsNoFileOfItsOwn) {
  TempDir dir;
  std::ofstream(dir.path("mine")) << "mine";
  fs::create_symlink("mine", dir.path("link"));
  fs::create_directory(dir.path("folder"));
  for (const char* name : {"link", "folder", "none/lock"})
    EXPECT_THROW(holder_of(dir.path(name)), Error) << name;
  EXPECT_EQ(platform::read_file(dir.path("mine")), "mine");
  std::string holder;
  auto lock = FileLock::take(dir.path("lock"), holder);
  fs::rename(dir.path("mine"), dir.path("lock"));  // somebody has replaced it
  lock.reset();
  EXPECT_EQ(platform::read_file(dir.path("lock")), "mine");
}

#ifdef __x86_64__
// From here on a system call fails in this process.
bool take_away(uint32_t call, uint32_t error) {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Once for each folder: a run takes a lock for every checkpoint.
TEST(FileLock, WarnsWhereTheFileSystemHasNoLocks) {
  TempDir dir;
  fs::create_directory(dir.path("other"));
  EXPECT_EQ(in_child([&] {
              if (!take_away(SYS_flock, ENOLCK)) return 90;
              int warnings = 0;
              set_log_hook([&](LogLevel level, const char* line) {
                const bool about_locks =
                    std::string(line).find("has no locks") != std::string::npos;
                warnings += level == LogLevel::warning && about_locks;
              });
              std::string holder;
              for (const char* name : {"lock", "lock", "second", "other/lock"})
                if (!FileLock::take(dir.path(name), holder)) return 91;
              return warnings;
            }),
            2);
}

// The system would end the process by SIGXFSZ; half of the holder's name would be another's.
TEST(FileLock, IsTakenWhereItsHolderCannotBeWritten) {
  for (const rlim_t bytes : {0, 4}) {
    TempDir dir;
    EXPECT_EQ(in_child([&] {
                if (!limit_files(bytes)) return 90;
                std::string holder;
                const auto lock = FileLock::take(dir.path("lock"), holder);
                if (!lock) return 91;
                return holder_of(dir.path("lock")) == "another process" ? 0 : 1;
              }),
              0)
        << bytes;
  }
}

// What is logged is told to the program, which may do anything.
TEST(FileLock, IsNoObstacleToAForkWhileItLogs) {
  TempDir dir;
  EXPECT_EQ(
      in_child([&] {
        alarm(20);
        if (!take_away(SYS_ftruncate, EIO)) return 90;
        int forks = 0;
        set_log_hook([&](LogLevel, const char*) { forks += in_child([] { return 0; }) == 0; });
        std::string holder;
        if (!FileLock::take(dir.path("lock"), holder)) return 91;
        return forks;
      }),
      1);
}
#endif

}  // namespace
}  // namespace etr::test
