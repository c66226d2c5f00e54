#include "train/folder_claim.h"

#include <utility>

#include "core/error.h"
#include "core/platform_files.h"

namespace etr::train {
namespace {

namespace fs = std::filesystem;

// One more is needed each time that another process has removed the folders again.
constexpr int kAttempts = 100;

}  // namespace

FolderClaim::FolderClaim(const std::string& folder, std::string owner, std::string another)
    : owner_(std::move(owner)), another_(std::move(another)) {
  for (int attempt = 1; !lock_; ++attempt) try {
      claim(folder);
    } catch (const Error& error) {
      if (error.code() != Code::not_found || attempt == kAttempts) throw;
    }
}

// Error(not_found) if a run that ends removes the folder meanwhile.
void FolderClaim::claim(const std::string& folder) {
  make_folders(folder);
  std::string holder;
  try {
    for (const fs::path& made : made_)  // what is flushed within them would be lost with them
      platform::sync_directory_of(made.string());
    lock_ = platform::FileLock::take((fs::path(folder) / platform::kFolderLock).string(), holder);
    if (!lock_)
      fail(Code::state, "another ", owner_, " writes into '", folder, "' (", holder,
           "): wait until it ends, or stop it", owner_ == "run" ? " and close its trainer" : "",
           ", or ", another_);
  } catch (...) {
    remove_empty_folders();
    throw;
  }
}

FolderClaim::~FolderClaim() {
  lock_.reset();
  remove_empty_folders();
}

void FolderClaim::make_folders(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, error); path = path.parent_path())
    if (path.has_filename()) missing.push_back(path);  // skips "runs/", since "runs" follows
  error.clear();
  for (auto path = missing.rbegin(); path != missing.rend() && !error; ++path)
    if (fs::create_directory(*path, error)) made_.push_back(*path);
  std::error_code unknown;
  const fs::file_status made = fs::status(folder, unknown);
  if (fs::is_directory(made)) return;
  remove_empty_folders();
  // A parent that existed when the folder was to be made may be gone by now.
  const bool removed = error == std::errc::no_such_file_or_directory ||
                       ((!error || error == std::errc::file_exists) && !fs::exists(made));
  fail(removed ? Code::not_found : Code::io, "cannot create the ", owner_, "'s folder '", folder,
       "': ",
       error     ? error.message()
       : removed ? "another process has removed it"
                 : "it is a file",
       "; ", another_);
}

void FolderClaim::remove_empty_folders() {
  std::error_code error;
  for (auto path = made_.rbegin(); path != made_.rend(); ++path)
    if (!fs::remove(*path, error)) break;
  made_.clear();
}

}  // namespace etr::train
