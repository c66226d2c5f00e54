// A run's right to write into its folder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/platform_lock.h"

namespace etr::train {

// Makes the folder and locks it against other runs, in this process and in others. Those that only read take no claim.
class FolderClaim {
 public:
  // Error(state) that names the folder and the run that has it; Error(io) or Error(not_found) where it cannot be made. Errors call
  // what writes there `owner`, and say how to name another folder by `another`.
  explicit FolderClaim(const std::string& folder, std::string owner = "run",
                       std::string another =
                           "let output.dir name another folder (on the command "
                           "line: --set output.dir=FOLDER)");
  ~FolderClaim();  // and removes the folders that it has made, where they are still empty
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  void claim(const std::string& folder);
  void make_folders(const std::string& folder);
  void remove_empty_folders();

  const std::string owner_, another_;
  std::vector<std::filesystem::path> made_;  // from the outermost
  std::unique_ptr<platform::FileLock> lock_;
};

}  // namespace etr::train
