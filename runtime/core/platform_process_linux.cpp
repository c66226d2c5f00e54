#include "core/platform_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/platform_poll.h"

extern char** environ;

// What a group whose ranks are processes needs of its helper. Other systems refuse it
// (platform_process_refused.cpp).
namespace etr::platform {
namespace {

constexpr int kFirstOwn = 16;  // our descriptors are above those passed to a child

std::string reason(int number = errno) { return std::strerror(number); }

// Duplicates a descriptor to a number that does not collide with a child's, and closes the
// original.
Descriptor moved_up(int number, const char* what) {
  const Descriptor low(number);
  if (number < 0) fail(Code::io, what, " could not be made: ", reason());
  const int high = ::fcntl(number, F_DUPFD_CLOEXEC, kFirstOwn);
  if (high < 0) fail(Code::io, what, " could not be made: ", reason());
  return Descriptor(high);
}

// Returns 0 or an error number. A signal would undo what was allocated (EINTR), and a profiler's
// might do so each time, so this thread takes none meanwhile. Stopping the process interrupts, too.
int allocate(int file, uint64_t begin, uint64_t size) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = EINTR;
  while (error == EINTR)
    error =
        ::fallocate(file, 0, static_cast<off_t>(begin), static_cast<off_t>(size)) == 0 ? 0 : errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

std::byte* map_shared(int file, uint64_t begin, uint64_t size) {
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(begin));
  if (memory == MAP_FAILED)
    fail(Code::out_of_memory, "no room for ", size, " bytes of shared memory: ", reason());
  return static_cast<std::byte*>(memory);
}

Descriptor open_process(int64_t id) {
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(id), 0)));
}

}  // namespace

SharedMemory::SharedMemory()
    : file_(moved_up(::memfd_create("echotrain", MFD_CLOEXEC), "shared memory")),
      owner_(::getpid()) {}
SharedMemory::SharedMemory(Descriptor of_other) : file_(std::move(of_other)) {}
SharedMemory::~SharedMemory() {
  if (memory_) ::munmap(memory_, size_);
}

std::byte* SharedMemory::bytes(uint64_t size) {
  if (size <= size_) return memory_;
  // Grows by at least half, so that increasing sizes do not remap each time.
  const uint64_t wanted = (std::max(size, size_ + size_ / 2) + kPage - 1) / kPage * kPage;
  std::byte* const memory = map_shared(file_.number(), 0, wanted);
  if (memory_) ::munmap(memory_, size_);
  memory_ = memory;
  size_ = wanted;
  return memory_;
}

std::byte* SharedMemory::map(uint64_t begin, uint64_t size) const {
  // Allocate now: a failed allocation at the first write would kill the process.
  if (const int error = allocate(file_.number(), begin, size); error != 0)
    fail(Code::out_of_memory, "no ", size, " bytes of shared memory: ", reason(error));
  return map_shared(file_.number(), begin, size);
}

void SharedMemory::unmap(std::byte* piece, uint64_t begin, uint64_t size) const {
  ::munmap(piece, size);
  if (::getpid() == owner_)
    ::fallocate(file_.number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(begin), static_cast<off_t>(size));
}

void Channel::make(Channel& here, Descriptor& there) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    fail(Code::io, "a connection to another process could not be made: ", reason());
  Descriptor second(ends[1]);
  here.end_ = moved_up(ends[0], "a connection to another process");
  there = moved_up(second.release(), "a connection to another process");
}

Child::Child(const std::string& program, const std::vector<std::string>& arguments,
             std::span<const int> descriptors) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (size_t i = 0; i < descriptors.size(); ++i)
    posix_spawn_file_actions_adddup2(&files, descriptors[i], 3 + static_cast<int>(i));
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);  // own group: no terminal signals
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t id = 0;
  const int error = ::posix_spawn(&id, program.c_str(), &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    fail(error == ENOENT ? Code::not_found : Code::io, "'", program,
         "' could not be started: ", reason(error));
  id_ = id;
  owner_ = ::getpid();
  process_ = open_process(id);
}

bool Child::wait(Deadline deadline) {
  if (id_ == 0) return true;
  if (process_.number() < 0) return false;  // no pidfd support; the channel reports the end
  pollfd waits{process_.number(), POLLIN, 0};
  while (::poll(&waits, 1, milliseconds_until(deadline)) < 0 && errno == EINTR) continue;
  if (!waits.revents) return false;
  reap();
  return true;
}

// Waits for this id only: other children belong to the program. If the program has reaped this one
// itself, waitpid() fails, which is fine.
void Child::reap() {
  while (::waitpid(static_cast<pid_t>(id_), nullptr, 0) < 0 && errno == EINTR) continue;
  id_ = 0;
}

Child::~Child() {
  if (id_ == 0 || owner_ != ::getpid()) return;
  if (process_.number() >= 0)
    ::syscall(SYS_pidfd_send_signal, process_.number(), SIGKILL, nullptr, 0);
  else
    ::kill(static_cast<pid_t>(id_), SIGKILL);
  reap();
}

Descriptor watch_process(int64_t id) { return open_process(id); }

void close_others(int first) {
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
  for (int i = first; i < 65536; ++i) ::close(i);
}

}  // namespace etr::platform
