#include "system_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <string_view>
#include <thread>

#include "support/interposed.h"

namespace etr::failing {
namespace {

// The call does less than it was asked for, or does it late. No error of getaddrinfo(), either.
constexpr int kShort = -1001, kSlow = -1002;

struct State {
  std::mutex mutex;
  Calls kind = Calls::threads;
  std::string folder;  // with a slash at its end
  bool counts = false;
  int64_t at = 0, calls = 0;
  size_t error = 0;
  std::vector<size_t> error_counts;
  std::string failed_call;
};

State& state() {
  static State& the_state = *new State;
  return the_state;
}

std::atomic<int> threads_alive{0};

// Of an errno, or of an error of getaddrinfo, which are negative.
std::string name_of(int error) {
  const char* name = error > 0 ? strerrorname_np(error) : gai_strerror(error);
  return name ? name : std::to_string(error);
}

// Returns 0, one of the errors, kShort or kSlow. `what`: for messages.
int next_call(const char* name, const std::string& what, std::initializer_list<int> errors) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  ++s.calls;
  s.error_counts.push_back(errors.size());
  if (s.calls != s.at) return 0;
  const int error = errors.begin()[s.error % errors.size()];
  s.failed_call = std::string(name) + "(" + what + ") " +
                  (error == kShort  ? "is short"
                   : error == kSlow ? "is slow"
                                    : "gives " + name_of(error));
  return error;
}

bool counts(Calls kind) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  return s.counts && s.kind == kind;
}

using test::real;

// Whether a call comes from a library whose name contains this.
bool is_in(const void* caller, std::string_view library) {
  Dl_info info{};
  return dladdr(caller, &info) && info.dli_fname &&
         std::string_view(info.dli_fname).find(library) != std::string_view::npos;
}

// Whether a call comes from the library, or from one that works for it.
bool is_for_library(const void* caller) {
  Dl_info info{}, own{};
  static const bool has_library_objects = !dlsym(RTLD_DEFAULT, "etr_version");
  if (has_library_objects && dladdr(caller, &info) &&
      dladdr(reinterpret_cast<void*>(&counts), &own) && info.dli_fbase == own.dli_fbase)
    return true;
  for (const char* name : {"libechotrain", "libstdc++", "libcurl", "libssl", "libcrypto"})
    if (is_in(caller, name)) return true;
  return false;
}

// Below the folder, the path of interest; "" elsewhere.
std::string below(const std::string& path) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (!s.counts || s.kind != Calls::files) return "";
  return (path + "/").starts_with(s.folder) ? path : "";
}

std::string path_of(int file) { return counts(Calls::files) ? test::path_of(file) : ""; }

std::string path_at(int folder, const char* path) {
  return counts(Calls::files) ? test::path_at(folder, path) : "";
}

// The error of a call on a file, or 0.
int fault_of(const char* name, const std::string& path, std::initializer_list<int> errors) {
  const std::string of_interest = below(path);
  return of_interest.empty() ? 0 : next_call(name, of_interest, errors);
}

int failed(int error) {
  errno = error;
  return -1;
}

// Those of a call on a socket, or 0.
int fault_of_network(const char* name, const void* caller, std::initializer_list<int> errors,
                     const std::string& what = "") {
  if (!counts(Calls::network) || !is_for_library(caller)) return 0;
  return next_call(name, what, errors);
}

size_t shorter(size_t size, int error) { return error == kShort ? (size + 1) / 2 : size; }

struct Thread {
  void* (*body)(void*);
  void* argument;
};

void* run_thread(void* of) {
  const Thread thread = *static_cast<Thread*>(of);
  delete static_cast<Thread*>(of);
  struct Ended {
    ~Ended() { --threads_alive; }
  } ended;
  return thread.body(thread.argument);
}

size_t entries_of(const char* folder) {
  static auto* const open_folder = real<DIR*(const char*)>("opendir");
  static auto* const next = real<dirent*(DIR*)>("readdir");
  DIR* list = open_folder(folder);
  size_t count = 0;
  while (list && next(list)) ++count;
  if (list) closedir(list);
  return count;
}

}  // namespace

SystemCalls::SystemCalls(Calls kind, std::string folder) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  s.kind = kind;
  while (folder.ends_with('/')) folder.pop_back();
  s.folder = std::move(folder) + "/";
  s.counts = true;
}

SystemCalls::~SystemCalls() {
  const std::scoped_lock lock(state().mutex);
  state().counts = false;
  state().at = 0;
}

void SystemCalls::arm(int64_t call, size_t error) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  s.at = call;
  s.error = error;
  s.calls = 0;
  s.error_counts.clear();
  s.failed_call.clear();
}

void SystemCalls::disarm() { arm(0, 0); }

int64_t SystemCalls::calls() const {
  const std::scoped_lock lock(state().mutex);
  return state().calls;
}

size_t SystemCalls::errors_of(int64_t call) const {
  const std::scoped_lock lock(state().mutex);
  return state().error_counts.at(static_cast<size_t>(call - 1));
}

std::string SystemCalls::failed_call() const {
  const std::scoped_lock lock(state().mutex);
  return state().failed_call;
}

std::string SystemCalls::left_behind() const {
  return std::to_string(entries_of("/proc/self/fd")) + " descriptors, " +
         std::to_string(threads_alive) + " threads";
}

}  // namespace etr::failing

using namespace etr::failing;

#define CALLER __builtin_return_address(0)

#pragma GCC visibility push(default)  // so that shared libraries call them
extern "C" {

// ---- threads ------------------------------------------------------------------------------------

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  static auto* const call =
      real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  if (!is_for_library(CALLER)) return call(thread, attributes, body, argument);
  if (counts(Calls::threads))
    if (const int error = next_call("pthread_create", "", {EAGAIN})) return error;
  if (is_in(CALLER, "libcurl"))  // a thread that resolves a name
    if (const int error = fault_of_network("pthread_create", CALLER, {EAGAIN})) return error;
  auto* of = new Thread{body, argument};
  ++threads_alive;
  const int error = call(thread, attributes, run_thread, of);
  if (error) {
    --threads_alive;
    delete of;
  }
  return error;
}

// ---- files --------------------------------------------------------------------------------------

static int open_at(int folder, const char* path, int flags, mode_t mode) {
  static auto* const call = real<int(int, const char*, int, ...)>("openat");
  const bool reads = (flags & O_ACCMODE) == O_RDONLY;  // writing: tests/crash
  if (const int error = reads ? fault_of("open", path_at(folder, path), {EMFILE, EIO, ENOMEM}) : 0)
    return failed(error);
  return call(folder, path, flags, mode);
}

using etr::test::mode_of;

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_at(folder, path, flags, mode);
}

ssize_t read(int file, void* bytes, size_t size) {
  static auto* const call = real<ssize_t(int, void*, size_t)>("read");
  const int error = fault_of("read", path_of(file), {EIO, EINTR, kShort});
  return error > 0 ? failed(error) : call(file, bytes, shorter(size, error));
}

ssize_t pread(int file, void* bytes, size_t size, off_t offset) {
  static auto* const call = real<ssize_t(int, void*, size_t, off_t)>("pread");
  const int error = fault_of("pread", path_of(file), {EIO, EINTR, kShort});
  return error > 0 ? failed(error) : call(file, bytes, shorter(size, error), offset);
}

int fstat(int file, struct stat* info) noexcept {
  static auto* const call = real<int(int, struct stat*)>("fstat");
  const int error = fault_of("fstat", path_of(file), {EIO});
  return error ? failed(error) : call(file, info);
}

int stat(const char* path, struct stat* info) noexcept {
  static auto* const call = real<int(const char*, struct stat*)>("stat");
  const int error = fault_of("stat", path, {EIO, ENOMEM, EACCES});
  return error ? failed(error) : call(path, info);
}

int lstat(const char* path, struct stat* info) noexcept {
  static auto* const call = real<int(const char*, struct stat*)>("lstat");
  const int error = fault_of("lstat", path, {EIO, ENOMEM, EACCES});
  return error ? failed(error) : call(path, info);
}

DIR* opendir(const char* path) {
  static auto* const call = real<DIR*(const char*)>("opendir");
  const int error = fault_of("opendir", path, {EMFILE, EIO, ENOMEM});
  if (!error) return call(path);
  errno = error;
  return nullptr;
}

DIR* fdopendir(int folder) {
  static auto* const call = real<DIR*(int)>("fdopendir");
  const int error = fault_of("fdopendir", path_of(folder), {ENOMEM});
  if (!error) return call(folder);
  errno = error;
  return nullptr;
}

dirent* readdir(DIR* list) {
  static auto* const call = real<dirent*(DIR*)>("readdir");
  const int error = fault_of("readdir", path_of(dirfd(list)), {EIO});
  if (!error) return call(list);
  errno = error;
  return nullptr;
}

// ---- network ------------------------------------------------------------------------------------

int socket(int family, int type, int protocol) noexcept {
  static auto* const call = real<int(int, int, int)>("socket");
  const int error = fault_of_network("socket", CALLER, {EMFILE, ENOBUFS, ENOMEM});
  return error ? failed(error) : call(family, type, protocol);
}

int socketpair(int family, int type, int protocol, int pair[2]) noexcept {
  static auto* const call = real<int(int, int, int, int*)>("socketpair");
  const int error = fault_of_network("socketpair", CALLER, {EMFILE, ENOMEM});
  return error ? failed(error) : call(family, type, protocol, pair);
}

int connect(int socket, const sockaddr* address, socklen_t size) {
  static auto* const call = real<int(int, const sockaddr*, socklen_t)>("connect");
  const int error =
      fault_of_network("connect", CALLER, {ECONNREFUSED, ETIMEDOUT, ENETUNREACH, EADDRNOTAVAIL});
  return error ? failed(error) : call(socket, address, size);
}

int bind(int socket, const sockaddr* address, socklen_t size) noexcept {
  static auto* const call = real<int(int, const sockaddr*, socklen_t)>("bind");
  const int error = fault_of_network("bind", CALLER, {EADDRINUSE, EACCES});
  return error ? failed(error) : call(socket, address, size);
}

int listen(int socket, int backlog) noexcept {
  static auto* const call = real<int(int, int)>("listen");
  const int error = fault_of_network("listen", CALLER, {EADDRINUSE});
  return error ? failed(error) : call(socket, backlog);
}

int accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  static auto* const call = real<int(int, sockaddr*, socklen_t*, int)>("accept4");
  const int error = fault_of_network("accept4", CALLER, {EMFILE, ECONNABORTED, EINTR, ENOBUFS});
  return error ? failed(error) : call(socket, address, size, flags);
}

ssize_t send(int socket, const void* bytes, size_t size, int flags) {
  static auto* const call = real<ssize_t(int, const void*, size_t, int)>("send");
  const int error = fault_of_network("send", CALLER, {EPIPE, ECONNRESET, ENOMEM, EINTR, kShort});
  return error > 0 ? failed(error) : call(socket, bytes, shorter(size, error), flags);
}

ssize_t recv(int socket, void* bytes, size_t size, int flags) {
  static auto* const call = real<ssize_t(int, void*, size_t, int)>("recv");
  const int error =
      fault_of_network("recv", CALLER, {ECONNRESET, ETIMEDOUT, ENOMEM, EINTR, EAGAIN, kShort});
  return error > 0 ? failed(error) : call(socket, bytes, shorter(size, error), flags);
}

int poll(pollfd* waits, nfds_t count, int timeout) {
  static auto* const call = real<int(pollfd*, nfds_t, int)>("poll");
  const int error = fault_of_network("poll", CALLER, {ENOMEM, EINTR});
  return error ? failed(error) : call(waits, count, timeout);
}

int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  static auto* const call =
      real<int(const char*, const char*, const addrinfo*, addrinfo**)>("getaddrinfo");
  const int error =
      is_in(CALLER, "libcurl")
          ? fault_of_network("getaddrinfo", CALLER,
                             {EAI_AGAIN, EAI_FAIL, EAI_MEMORY, EAI_NONAME, EAI_SYSTEM, kSlow})
          : fault_of_network("getaddrinfo", CALLER, {EAI_AGAIN, EAI_FAIL, EAI_MEMORY, EAI_NONAME});
  if (error == kSlow) std::this_thread::sleep_for(std::chrono::seconds(kSlowLookupSeconds));
  if (error == EAI_SYSTEM) errno = EMFILE;
  if (error && error != kSlow) return error;
  const bool is_test_host = host && std::strcmp(host, kTestHost) == 0;
  return call(is_test_host ? "127.0.0.1" : host, service, hints, found);
}

int getsockopt(int socket, int level, int option, void* value, socklen_t* size) noexcept {
  static auto* const call = real<int(int, int, int, void*, socklen_t*)>("getsockopt");
  const int error =
      fault_of_network("getsockopt", CALLER, {ENOBUFS, ENOPROTOOPT}, std::to_string(option));
  return error ? failed(error) : call(socket, level, option, value, size);
}

int setsockopt(int socket, int level, int option, const void* value, socklen_t size) noexcept {
  static auto* const call = real<int(int, int, int, const void*, socklen_t)>("setsockopt");
  const int error =
      fault_of_network("setsockopt", CALLER, {ENOMEM, ENOPROTOOPT}, std::to_string(option));
  return error ? failed(error) : call(socket, level, option, value, size);
}

int getsockname(int socket, sockaddr* address, socklen_t* size) noexcept {
  static auto* const call = real<int(int, sockaddr*, socklen_t*)>("getsockname");
  const int error = fault_of_network("getsockname", CALLER, {ENOBUFS});
  return error ? failed(error) : call(socket, address, size);
}

int getpeername(int socket, sockaddr* address, socklen_t* size) noexcept {
  static auto* const call = real<int(int, sockaddr*, socklen_t*)>("getpeername");
  const int error = fault_of_network("getpeername", CALLER, {ENOBUFS, ENOTCONN});
  return error ? failed(error) : call(socket, address, size);
}

int fcntl(int file, int command, ...) {
  static auto* const call = real<int(int, int, ...)>("fcntl");
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);  // a pointer or a number, or unset and not read
  va_end(list);
  const int error = fault_of_network("fcntl", CALLER, {ENOMEM}, std::to_string(command));
  return error ? failed(error) : call(file, command, argument);
}

int eventfd(unsigned value, int flags) noexcept {
  static auto* const call = real<int(unsigned, int)>("eventfd");
  const int error = fault_of_network("eventfd", CALLER, {EMFILE, ENOMEM});
  return error ? failed(error) : call(value, flags);
}

int pipe(int pair[2]) noexcept {  // newer versions of libcurl call it in place of socketpair()
  static auto* const call = real<int(int*)>("pipe");
  const int error = fault_of_network("pipe", CALLER, {EMFILE});
  return error ? failed(error) : call(pair);
}

int pipe2(int pair[2], int flags) noexcept {
  static auto* const call = real<int(int*, int)>("pipe2");
  const int error = fault_of_network("pipe2", CALLER, {EMFILE});
  return error ? failed(error) : call(pair, flags);
}

// OpenSSL opens the file of certificates so.
static FILE* open_certificates(const char* name, const void* caller, const char* path,
                               const char* mode) {
  static auto* const call = real<FILE*(const char*, const char*)>("fopen64");
  const bool is_ours = is_in(caller, "libcrypto") || is_in(caller, "libcurl");
  const int error =
      is_ours ? fault_of_network(name, caller, {EMFILE, ENOMEM, EIO, EACCES}, path) : 0;
  if (!error) return call(path, mode);
  errno = error;
  return nullptr;
}

FILE* fopen(const char* path, const char* mode) {
  return open_certificates("fopen", CALLER, path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  return open_certificates("fopen64", CALLER, path, mode);
}

}  // extern "C"
#pragma GCC visibility pop
