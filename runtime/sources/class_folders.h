// Lists a folder of class folders: root/CLASS/NAME.EXT.
#pragma once

#include <string>
#include <vector>

namespace etr::sources {

struct ClassFile {
  std::string name;       // relative to the root: "cat/0001.png"
  std::string extension;  // without the dot
  int label = 0;
};

struct Skipped {
  std::string name, reason;
};

struct ClassFolders {
  std::vector<std::string> classes;  // sorted; the position is the label
  std::vector<ClassFile> files;      // sorted by class, then by name
  std::vector<Skipped> skipped;      // what lies there and is neither a class nor one of its files
};

// Hidden folders are no classes, hidden files no samples. Throws Error(io) where the root cannot be listed, Error(not_found) where it holds no file.
ClassFolders list_class_folders(const std::string& root);

}  // namespace etr::sources
