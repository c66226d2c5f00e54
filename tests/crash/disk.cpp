#include "disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/interposed.h"

namespace etr::crash {
namespace {

namespace fs = std::filesystem;

Disk* current = nullptr;

std::pair<std::string, std::string> split(const std::string& path) {
  const size_t slash = path.rfind('/');
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

Disk::Disk(std::string root, Fault fault) : root_(std::move(root)), fault_(fault) {
  numbers_[root_] = 0;
  current = this;
}

Disk::~Disk() { current = nullptr; }

Disk* Disk::below(const std::string& path) {
  const bool inside = current && (path + "/").starts_with(current->root_ + "/");
  return inside ? current : nullptr;
}

int Disk::next_call() {
  ++calls_;
  if (fault_.at == 0 || calls_ < fault_.at || (calls_ > fault_.at && !fault_.persists)) return 0;
  return fault_.error ? fault_.error : kShort;
}

void Disk::entered(const std::string& path, bool folder) {
  if (numbers_.contains(path)) return;
  const auto [parent, name] = split(path);
  numbers_[path] = nodes_;
  folders_.push_back(folder);
  changes_.push_back({Change::enter, number_of(parent), name, nodes_++});
}

void Disk::left(const std::string& path) {
  const auto [parent, name] = split(path);
  changes_.push_back({Change::leave, number_of(parent), name});
  numbers_.erase(path);
}

void Disk::renamed(const std::string& from, const std::string& to) {
  const auto [old_parent, old_name] = split(from);
  const auto [parent, name] = split(to);
  const int moved = static_cast<int>(changes_.size());
  changes_.push_back({Change::leave, number_of(old_parent), old_name});
  changes_.push_back({Change::enter, number_of(parent), name, number_of(from), moved});
  std::map<std::string, int> numbers;
  for (const auto& [path, number] : numbers_) {
    const bool inside = path == from || path.starts_with(from + "/");
    if (path == to && from != to) continue;  // replaced
    numbers[inside ? to + path.substr(from.size()) : path] = number;
  }
  numbers_ = std::move(numbers);
}

void Disk::written(const std::string& path, uint64_t offset, const void* bytes, size_t size) {
  changes_.push_back({Change::write, number_of(path), "", 0, -1, offset,
                      std::string(static_cast<const char*>(bytes), size)});
}

void Disk::resized(const std::string& path, uint64_t size) {
  changes_.push_back({Change::resize, number_of(path), "", 0, -1, size, ""});
}

void Disk::synced(const std::string& path) { changes_.push_back({Change::sync, number_of(path)}); }

bool Disk::is_flushed(size_t change, size_t count) const {
  for (size_t i = change + 1; i < count; ++i)
    if (changes_[i].kind == Change::sync && changes_[i].node == changes_[change].node) return true;
  return false;
}

template <typename Choose>
Tree Disk::state(size_t count, const Choose& choose, std::mt19937* random) const {
  std::vector<std::map<std::string, int>> entries(folders_.size());
  std::vector<std::string> contents(folders_.size());
  std::vector<Outcome> outcomes(count, Outcome::kept);
  for (size_t i = 0; i < count; ++i) {
    const Change& change = changes_[i];
    if (!is_flushed(i, count)) outcomes[i] = choose();
    // A rename is one change: both of its names, or neither.
    if (change.kind == Change::enter && change.moved >= 0)
      outcomes[i] = outcomes[static_cast<size_t>(change.moved)];
  }
  for (size_t i = 0; i < count; ++i) {
    const Change& change = changes_[i];
    if (outcomes[i] == Outcome::lost) continue;
    const auto node = static_cast<size_t>(change.node);
    std::string& content = contents[node];
    if (change.kind == Change::enter) entries[node][change.name] = change.entry;
    if (change.kind == Change::leave) entries[node].erase(change.name);
    if (change.kind == Change::resize) content.resize(change.offset);
    if (change.kind != Change::write) continue;
    std::string bytes = change.bytes;
    if (outcomes[i] == Outcome::zeros) bytes.assign(bytes.size(), '\0');
    if (outcomes[i] == Outcome::cut && random) bytes.resize((*random)() % (bytes.size() + 1));
    if (content.size() < change.offset + bytes.size()) content.resize(change.offset + bytes.size());
    content.replace(change.offset, bytes.size(), bytes);
  }
  Tree tree;
  const auto collect = [&](const auto& self, size_t folder, const std::string& prefix) -> void {
    for (const auto& [name, entry] : entries[folder]) {
      const auto number = static_cast<size_t>(entry);
      tree[prefix + name + (folders_[number] ? "/" : "")] = contents[number];
      if (folders_[number]) self(self, number, prefix + name + "/");
    }
  };
  collect(collect, 0, "");
  return tree;
}

Tree Disk::after_crash(size_t count, std::mt19937& random) const {
  return state(
      count, [&] { return static_cast<Outcome>(random() % 4); }, &random);
}

Tree Disk::after_crash(size_t count, bool rest) const {
  return state(
      count, [&] { return rest ? Outcome::kept : Outcome::lost; }, nullptr);
}

void put(const Tree& tree, const std::string& folder) {
  fs::create_directories(folder);
  for (const auto& [path, content] : tree) {
    if (path.ends_with('/'))
      fs::create_directories(fs::path(folder) / path);
    else
      std::ofstream(fs::path(folder) / path, std::ios::binary) << content;
  }
}

}  // namespace etr::crash

// The C library's functions. Each asks whether the call is of interest and whether it fails, makes
// the real call, and records what that has changed.
namespace {

using etr::crash::Disk;
using etr::test::mode_of;
using etr::test::path_at;
using etr::test::path_of;
using etr::test::real;

// Returns true, with errno, if the call fails.
bool fails(Disk* disk) {
  const int error = disk ? disk->next_call() : 0;
  if (error > 0) errno = error;
  return error > 0;
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
  static auto* const call = real<int(int, const char*, int, ...)>("openat");
  const std::string name = path_at(folder, path);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  Disk* const disk = writes ? Disk::below(name) : nullptr;
  if (fails(disk)) return -1;
  const int file = call(folder, path, flags, mode);
  if (disk && file >= 0) {
    disk->entered(name, false);
    if (flags & O_TRUNC) disk->resized(name, 0);
  }
  return file;
}

// `write` makes the call for a number of bytes.
template <typename Write>
ssize_t write_some(int file, const void* bytes, size_t size, int64_t offset, const Write& write) {
  const std::string path = path_of(file);
  Disk* const disk = Disk::below(path);
  const int error = disk ? disk->next_call() : 0;
  if (error > 0) {
    errno = error;
    return -1;
  }
  if (!disk) return write(size);
  struct stat info {};
  ::fstat(file, &info);
  const bool appends = ::fcntl(file, F_GETFL) & O_APPEND;
  const int64_t at = offset >= 0 ? offset : appends ? info.st_size : ::lseek(file, 0, SEEK_CUR);
  const ssize_t n = write(error == Disk::kShort ? (size + 1) / 2 : size);
  if (n > 0) disk->written(path, static_cast<uint64_t>(at), bytes, static_cast<size_t>(n));
  return n;
}

// Nothing is really flushed: this disk has no power to lose, and flushing would take most of the
// tests' time.
int flush(int file) {
  const std::string path = path_of(file);
  Disk* const disk = Disk::below(path);
  if (fails(disk)) return -1;
  struct stat info {};
  if (disk && disk->folder_error() && ::fstat(file, &info) == 0 && S_ISDIR(info.st_mode)) {
    errno = disk->folder_error();
    return -1;
  }
  if (disk) disk->synced(path);
  return 0;
}

// A removal by any of the functions for it.
template <typename Call>
int take_away(const std::string& path, const Call& call) {
  Disk* const disk = Disk::below(path);
  if (fails(disk)) return -1;
  const int status = call();
  if (disk && status == 0) disk->left(path);
  return status;
}

}  // namespace

#pragma GCC visibility push(default)  // so that shared libraries call them, too
extern "C" {

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

ssize_t write(int file, const void* bytes, size_t size) {
  static auto* const call = real<ssize_t(int, const void*, size_t)>("write");
  return write_some(file, bytes, size, -1, [&](size_t n) { return call(file, bytes, n); });
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  static auto* const call = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return write_some(file, bytes, size, offset,
                    [&](size_t n) { return call(file, bytes, n, offset); });
}

int ftruncate(int file, off_t size) noexcept {
  static auto* const call = real<int(int, off_t)>("ftruncate");
  const std::string path = path_of(file);
  Disk* const disk = Disk::below(path);
  if (fails(disk)) return -1;
  const int status = call(file, size);
  if (disk && status == 0) disk->resized(path, static_cast<uint64_t>(size));
  return status;
}

int truncate(const char* path, off_t size) noexcept {
  static auto* const call = real<int(const char*, off_t)>("truncate");
  Disk* const disk = Disk::below(path);
  if (fails(disk)) return -1;
  const int status = call(path, size);
  if (disk && status == 0) disk->resized(path, static_cast<uint64_t>(size));
  return status;
}

int fsync(int file) { return flush(file); }
int fdatasync(int file) { return flush(file); }

int close(int file) {
  static auto* const call = real<int(int)>("close");
  const bool writes = (::fcntl(file, F_GETFL) & O_ACCMODE) != O_RDONLY;
  Disk* const disk = writes ? Disk::below(path_of(file)) : nullptr;
  const bool failed = fails(disk);
  const int error = errno, status = call(file);  // closed in any case
  if (!failed) return status;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  static auto* const call = real<int(const char*, const char*)>("rename");
  Disk* const disk = Disk::below(from);
  if (fails(disk)) return -1;
  const int status = call(from, to);
  if (disk && status == 0) disk->renamed(from, to);
  return status;
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const call = real<int(const char*, mode_t)>("mkdir");
  Disk* const disk = Disk::below(path);
  if (fails(disk)) return -1;
  const int status = call(path, mode);
  if (disk && status == 0) disk->entered(path, true);
  return status;
}

int remove(const char* path) noexcept {
  static auto* const call = real<int(const char*)>("remove");
  return take_away(path, [&] { return call(path); });
}

int unlink(const char* path) noexcept {
  static auto* const call = real<int(const char*)>("unlink");
  return take_away(path, [&] { return call(path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static auto* const call = real<int(int, const char*, int)>("unlinkat");
  return take_away(path_at(folder, path), [&] { return call(folder, path, flags); });
}

int rmdir(const char* path) noexcept {
  static auto* const call = real<int(const char*)>("rmdir");
  return take_away(path, [&] { return call(path); });
}

}  // extern "C"
#pragma GCC visibility pop
