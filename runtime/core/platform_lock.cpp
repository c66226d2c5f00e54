#include "core/platform_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "core/platform.h"

namespace etr::platform {
namespace {

// The open files of all locks. A lock by flock() ends when its last descriptor is closed, so a child of fork() closes its
// copies. Nothing forks while the mutex is held.
struct LockFiles {
  std::mutex mutex;
  std::vector<int> files;

  static LockFiles& all() {
    static auto* files = new LockFiles;  // for ever: locks may be static objects
    return *files;
  }

 private:
  LockFiles() {
    ::pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                     [] {
                       for (const int file : all().files) ::close(file);
                       all().files.clear();
                       all().mutex.unlock();
                     });
  }
};

// Without following a link: the file is written to, and removed.
int open_regular(const std::string& path) {
  const int file =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (file < 0) fail(Code::io, "cannot create '", path, "': ", errno_text(errno));
  struct stat info {};
  if (::fstat(file, &info) == 0 && S_ISREG(info.st_mode)) return file;
  ::close(file);
  fail(Code::io, "cannot lock '", path, "': it is no regular file");
}

bool is_at(int file, const std::string& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

enum class Locked { yes, by_another, without_locks };

// `reason`: why there are no locks.
Locked lock(int file, std::string& reason) {
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return Locked::by_another;
    reason = errno_text(errno);
    return Locked::without_locks;
  }
  return Locked::yes;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unnamed host";
}

// What the holder has written; it may be about to.
std::string holder_of(int file) {
  std::array<char, 300> text{};
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  const std::string holder(text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const std::string here = cat("process ", process_id(), " on ", host_name());
  if (holder.empty()) return "another process";
  return holder == here ? "this process" : holder;
}

void write_holder(int file) {
  const std::string text = cat("process ", process_id(), " on ", host_name());
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, text.data(), text.size(), 0) < 0)
    log_line(LogLevel::debug, cat("a lock does not say who holds it: ", errno_text(errno)));
}

}  // namespace

FileLock::FileLock(std::string path, int file) : path_(std::move(path)), file_(file) {}

std::unique_ptr<FileLock> FileLock::take(const std::string& path, std::string& holder) {
  std::string reason;
  auto lock = try_once(path, holder, reason);
  while (!lock && holder.empty()) lock = try_once(path, holder, reason);
  if (!reason.empty())
    log_line(LogLevel::warning, cat("the file system of '", path, "' has no locks (", reason,
                                    "): nothing keeps others from using it too"));
  return lock;
}

// nullptr without a holder: whoever had the lock has removed the file before this one could be locked.
std::unique_ptr<FileLock> FileLock::try_once(const std::string& path, std::string& holder,
                                             std::string& reason) {
  const std::scoped_lock no_fork(LockFiles::all().mutex);
  const int file = open_regular(path);
  const Locked locked = lock(file, reason);
  holder = locked == Locked::by_another ? holder_of(file) : "";
  if (locked == Locked::by_another || (locked == Locked::yes && !is_at(file, path))) {
    ::close(file);
    return nullptr;
  }
  write_holder(file);
  LockFiles::all().files.push_back(file);
  return std::unique_ptr<FileLock>(new FileLock(path, file));
}

FileLock::~FileLock() {
  const std::scoped_lock no_fork(LockFiles::all().mutex);
  if (std::erase(LockFiles::all().files, file_) == 0) return;  // in a child of fork()
  if (is_at(file_, path_)) ::unlink(path_.c_str());
  ::close(file_);
}

}  // namespace etr::platform
