// A disk that fails and crashes. The test program's own open(), write(), rename() and so on take
// the place of the C library's. Below one folder they count the calls, make one of them fail, and
// record what changes files. From the record come the states in which a crash may leave the folder.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace etr::crash {

// What happens at the call with the number `at`, counted from 1; 0: nothing.
struct Fault {
  int64_t at = 0;
  int error = 0;          // errno; 0: a write is cut short, which is no error
  bool persists = false;  // all later calls fail, too, as on a full disk
  int of_folders = 0;     // errno of every flush of a folder; 0: they succeed
};

// One change of the disk, by number of file or folder, so that it does not depend on names.
struct Change {
  enum Kind { enter, leave, write, resize, sync } kind;
  int node = 0;      // enter, leave: the folder; otherwise what is changed
  std::string name;  // enter, leave: of the entry
  int entry = 0;     // enter: the file or folder that gets the name
  int moved = -1;    // enter: the change `leave` that belongs to the same rename; -1: none
  uint64_t offset = 0;
  std::string bytes;
};

// What a folder holds: relative paths and contents; the path of a folder ends with a slash.
using Tree = std::map<std::string, std::string>;

// Records while it lives. One at a time, and one thread.
class Disk {
 public:
  explicit Disk(std::string root, Fault fault = {});
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  int64_t calls() const { return calls_; }
  size_t changes() const { return changes_.size(); }

  // The state after a crash that followed the first `count` changes. What was flushed is there. Of
  // the rest, each change is there or not as `random` decides; a write may be there in part, or
  // as zeros. Without `random`: all of the rest, or nothing of it.
  Tree after_crash(size_t count, std::mt19937& random) const;
  Tree after_crash(size_t count, bool rest) const;

  // For the functions that replace the C library's. Returns 0, an errno, or kShort.
  static constexpr int kShort = -1;
  static Disk* below(const std::string& path);  // nullptr if the path is of no interest
  int next_call();
  int folder_error() const { return fault_.of_folders; }
  void entered(const std::string& path, bool folder);  // created, if it is new
  void left(const std::string& path);
  void renamed(const std::string& from, const std::string& to);
  void written(const std::string& path, uint64_t offset, const void* bytes, size_t size);
  void resized(const std::string& path, uint64_t size);
  void synced(const std::string& path);

 private:
  enum class Outcome { lost, kept, cut, zeros };

  int number_of(const std::string& path) const { return numbers_.at(path); }
  template <typename Choose>
  Tree state(size_t count, const Choose& choose, std::mt19937* random) const;
  bool is_flushed(size_t change, size_t count) const;

  std::string root_;
  Fault fault_;
  int64_t calls_ = 0;
  int nodes_ = 1;                       // the root is number 0
  std::map<std::string, int> numbers_;  // by path
  std::vector<bool> folders_{true};     // by number
  std::vector<Change> changes_;
};

// Makes `folder`, which must not exist, hold the tree.
void put(const Tree& tree, const std::string& folder);

}  // namespace etr::crash
