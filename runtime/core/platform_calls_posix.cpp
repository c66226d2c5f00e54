#include "core/platform_calls.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/eventfd.h>
#endif

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "core/error.h"
#include "core/platform_files.h"

namespace etr::platform {
namespace {

// While alive, makes writes beyond RLIMIT_FSIZE fail with EFBIG on this thread. Consumes the
// SIGXFSZ that the system also sends, and leaves the program's signal handlers alone.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~NoSizeSignal() {
    const int error = errno;
    if (too_large_ && !was_pending_) consume();
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

  ssize_t checked(ssize_t written) {
    too_large_ = too_large_ || (written < 0 && errno == EFBIG);
    return written;
  }

 private:
  void consume() const {
#ifdef __APPLE__  // has no sigtimedwait()
    sigset_t pending;
    int number = 0;
    if (::sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1)
      ::sigwait(&signal_, &number);
#else
    const timespec at_once{};
    while (::sigtimedwait(&signal_, nullptr, &at_once) < 0 && errno == EINTR) continue;
#endif
  }

  sigset_t signal_, before_;
  bool was_pending_ = false, too_large_ = false;
};

FileInfo info_from(const struct stat& info) {
  FileInfo out;
  const bool stream = S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode);
  out.kind = S_ISREG(info.st_mode) ? FileKind::regular
             : stream              ? FileKind::stream
                                   : FileKind::other;
  out.size = static_cast<uint64_t>(info.st_size);
#ifdef __APPLE__
  const timespec& changed = info.st_mtimespec;
#else
  const timespec& changed = info.st_mtim;
#endif
  out.changed_ns = int64_t{changed.tv_sec} * 1'000'000'000 + changed.tv_nsec;
  out.volume = static_cast<uint64_t>(info.st_dev);
  out.identity = info.st_ino;
  return out;
}

}  // namespace

int open_file(const std::string& path, OpenFor what) {
  switch (what) {
    case OpenFor::reading: return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    case OpenFor::replacing:
      return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_TRUNC, 0666);
    case OpenFor::appending:
      return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666);
    case OpenFor::reading_and_writing:
      return ::open(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
  }
  return -1;
}

int open_scratch_file(const std::string& directory) {
  std::string name = directory + "/scratch-XXXXXX";
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file >= 0) ::unlink(name.c_str());
  return file;
}

bool close_file(int file) { return ::close(file) == 0; }

int64_t read_some(int file, std::span<std::byte> out, int64_t offset) {
  while (true) {
    const ssize_t n = offset < 0 ? ::read(file, out.data(), out.size())
                                 : ::pread(file, out.data(), out.size(), offset);
    if (n >= 0 || errno != EINTR) return n;
  }
}

int64_t position_of(int file) { return ::lseek(file, 0, SEEK_CUR); }

bool write_all(int file, std::span<const std::byte> bytes, int64_t offset) {
  NoSizeSignal guard;
  while (!bytes.empty()) {
    const ssize_t n =
        guard.checked(offset < 0 ? ::write(file, bytes.data(), bytes.size())
                                 : ::pwrite(file, bytes.data(), bytes.size(), offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
    if (offset >= 0) offset += n;
  }
  return true;
}

bool resize_file(int file, uint64_t size) {
  NoSizeSignal guard;
  while (guard.checked(::ftruncate(file, static_cast<off_t>(size))) != 0)
    if (errno != EINTR) return false;
  return true;
}

bool flush_file(int file) {
#ifdef F_FULLFSYNC  // on macOS, fsync() leaves the bytes in the disk's own memory
  if (::fcntl(file, F_FULLFSYNC) == 0) return true;
#endif
  return ::fsync(file) == 0;
}

// Some network and FUSE file systems refuse, because they write the names themselves.
bool flush_directory(const std::string& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return false;
  const int status = ::fsync(directory), error = errno;
  ::close(directory);
  errno = error;
  return status == 0 || error == EINVAL || error == ENOTSUP;
}

// A pipe that has never had a writer counts as empty, not as ended.
bool wait_for_bytes(int file, int event) {
  pollfd waits[2] = {{file, POLLIN, 0}, {event, POLLIN, 0}};
  while (::poll(waits, 2, -1) < 0)
    if (errno != EINTR) return false;
  return true;
}

std::optional<FileInfo> info_of(int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return std::nullopt;
  return info_from(info);
}

std::optional<FileInfo> info_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return info_from(info);
}

#ifdef __linux__
Event::Event() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), signals_(descriptor_) {
  if (descriptor_ < 0) fail(Code::io, "cannot make an event: ", errno_text(errno));
}

Event::~Event() { ::close(descriptor_); }
#else
Event::Event() {
  int ends[2];
  if (::pipe(ends) != 0) fail(Code::io, "cannot make an event: ", errno_text(errno));
  for (const int end : ends) {
    ::fcntl(end, F_SETFD, FD_CLOEXEC);
    ::fcntl(end, F_SETFL, O_NONBLOCK);
  }
  descriptor_ = ends[0];
  signals_ = ends[1];
}

Event::~Event() {
  ::close(descriptor_);
  ::close(signals_);
}
#endif

void Event::signal() {
  const uint64_t one = 1;
  while (::write(signals_, &one, sizeof one) < 0 && errno == EINTR) continue;
}

}  // namespace etr::platform
