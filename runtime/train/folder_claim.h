// A run's exclusive right to write into its folder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/platform_lock.h"

namespace etr::train {

// Makes the folder and locks it against other runs, in this and other processes. Readers need no
// claim.
class FolderClaim {
 public:
  // Error(state) names the folder and the run that has it; Error(io) or Error(not_found) if it
  // cannot be made. Error messages call the writer `owner`, and `another` says how to choose
  // another folder.
  explicit FolderClaim(const std::string& folder, std::string owner = "run",
                       std::string another =
                           "let output.dir name another folder (on the command "
                           "line: --set output.dir=FOLDER)");
  ~FolderClaim();  // also removes the folders that it made, if they are still empty
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  void claim(const std::string& folder);
  void make_folders(const std::string& folder);
  void remove_empty_folders();

  const std::string owner_, another_;
  std::vector<std::filesystem::path> made_;  // from the outermost on
  std::unique_ptr<platform::FileLock> lock_;
};

}  // namespace etr::train
