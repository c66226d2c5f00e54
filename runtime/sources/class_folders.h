// Lists a folder of class folders: root/CLASS/NAME.EXT.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace etr::sources {

struct ClassFile {
  std::string name;       // relative to the root: "cat/0001.png"
  std::string extension;  // without the dot, in lower case
  int label = 0;
};

struct Skipped {
  std::string name, reason;
  bool hidden = false;  // its name begins with a dot
};

struct ClassFolders {
  std::vector<std::string> classes;  // sorted; the index is the label
  std::vector<ClassFile> files;      // sorted by class, then by name
  std::vector<Skipped> skipped;      // entries that are neither a class nor a sample
};

// Ignores hidden folders and files. Samples are the files with one of `extensions`, given in lower
// case and compared case-insensitively, or, if there are none, all files with an extension. A class
// folder without a sample keeps its number and is listed in `skipped`. Throws Error(io) if a folder
// cannot be listed, and Error(not_found) if there is no sample.
ClassFolders list_class_folders(const std::string& root,
                                std::span<const std::string> extensions = {});

}  // namespace etr::sources
