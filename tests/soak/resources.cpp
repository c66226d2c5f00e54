#include "soak/resources.h"

#include <dirent.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

namespace soak {
namespace {

constexpr double kMegabyte = 1e6;

// A number that cannot be had would look flat.
[[noreturn]] void cannot_read(const std::string& what) {
  throw std::runtime_error("cannot read " + what);
}

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;
Folder open_folder(const char* path) {
  Folder folder(opendir(path), closedir);
  if (!folder) cannot_read(path);
  return folder;
}

// A number of /proc/self/status, in the unit that it has there.
double status(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key + ":", 0) == 0) return std::stod(line.substr(key.size() + 1));
  cannot_read(key + " in /proc/self/status");
}

double heap_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd);
}

double mappings() {
  std::ifstream in("/proc/self/maps");
  return static_cast<double>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
}

double entries(const char* path) {
  const Folder folder = open_folder(path);
  double count = 0;
  while (readdir(folder.get())) ++count;
  return count - 3;  // ".", ".." and the descriptor that reads
}

double children() {
  if (!std::ifstream("/proc/thread-self/children")) cannot_read("/proc/thread-self/children");
  const Folder threads = open_folder("/proc/self/task");
  double count = 0;
  while (const dirent* thread = readdir(threads.get())) {
    std::ifstream in(std::string("/proc/self/task/") + thread->d_name + "/children");
    count += static_cast<double>(std::distance(std::istream_iterator<std::string>(in),
                                               std::istream_iterator<std::string>()));
  }
  return count;
}

}  // namespace

// Fragments of the heap and caches of the driver's compiler make resident memory uneven, and it
// grows for minutes, so what is in use has the small margin. Threads of oneTBB end some time after
// their work.
const std::vector<Kind>& kinds() {
  constexpr double kLong = 600;
  static const std::vector<Kind> all = {
      {"heap in use", "MB", 0.02, 1, 0}, {"resident", "MB", 0.06, 12, kLong},
      {"mappings", "", 0.1, 60, kLong},  {"threads", "", 0, 4, 0},
      {"descriptors", "", 0, 0, 0},      {"children", "", 0, 0, 0},
  };
  return all;
}

Amounts amounts() {
  return {heap_in_use() / kMegabyte, status("VmRSS") * 1024 / kMegabyte, mappings(),
          status("Threads"),         entries("/proc/self/fd"),           children()};
}

}  // namespace soak
