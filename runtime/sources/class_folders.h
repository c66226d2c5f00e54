// Lists a folder of class folders: root/CLASS/NAME.EXT.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace etr::sources {

struct ClassFile {
  std::string name;       // relative to the root: "cat/0001.png"
  std::string extension;  // without the dot, lower-case
  int label = 0;
};

struct Skipped {
  std::string name, reason;
  bool hidden = false;  // its name begins with a dot
};

struct ClassFolders {
  std::vector<std::string> classes;  // sorted; the position is the label
  std::vector<ClassFile> files;      // sorted by class, then by name
  std::vector<Skipped> skipped;      // what lies there and is neither a class nor one of its files
};

// Hidden folders are no classes, hidden files no samples. Files count that have one of `extensions`, given in lower case and
// compared without regard to case; where there are none, all that have any. A class folder without a sample keeps its number and
// is listed in `skipped`. Throws Error(io) where a folder cannot be listed, Error(not_found) where there is no sample.
ClassFolders list_class_folders(const std::string& root,
                                std::span<const std::string> extensions = {});

}  // namespace etr::sources
