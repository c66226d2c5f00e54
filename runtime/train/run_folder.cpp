#include "train/run_folder.h"

#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"

namespace etr::train {
namespace {

namespace fs = std::filesystem;

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail(Code::io, "cannot remove '", path.string(), "': ", error.message());
}

}  // namespace

RunFolder::RunFolder(std::string directory, Start start, bool tensorboard)
    : directory_(std::move(directory)),
      metrics_path_(directory_ + "/metrics.jsonl"),
      start_(start),
      tensorboard_(tensorboard),
      store_(directory_ + "/checkpoints") {
  if (start_ == Start::evaluate || start_ == Start::resume) return;
  if (start_ == Start::fresh) check_unused();
  make_folder();
}

RunFolder::~RunFolder() {
  std::error_code error;  // another process may have put something there by now
  if (!metrics_)
    for (const std::string& folder : made_) fs::remove(folder, error);
}

void RunFolder::make_folder() {
  std::error_code error;
  for (fs::path folder = fs::path(directory_).lexically_normal();
       !folder.empty() && !fs::exists(folder, error); folder = folder.parent_path())
    if (folder.has_filename()) made_.push_back(folder.string());
  fs::create_directories(directory_, error);
  if (!error) return;
  for (const std::string& folder : std::exchange(made_, {})) {
    std::error_code ignored;
    fs::remove(folder, ignored);
  }
  fail(Code::io, "cannot create the run's folder '", directory_, "': ", error.message(),
       "; output.dir names another one");
}

void RunFolder::check_unused() const {
  std::error_code error;
  const auto step = store_.newest_step();
  const bool rows = fs::file_size(metrics_path_, error) > 0 && !error;
  if (!step && !rows) return;
  fail(Code::state, "'", directory_, "' holds an earlier run",
       step ? cat(" (its newest checkpoint is of step ", *step, ")") : " (metrics.jsonl)",
       ": resume it (--resume), overwrite it (--overwrite), or let output.dir name another folder "
       "(--set output.dir=FOLDER)");
}

void RunFolder::begin() {
  if (metrics_) return;
  if (start_ == Start::fresh) check_unused();  // another process may have been faster
  if (start_ == Start::overwrite) remove_earlier_run();
  auto metrics = std::make_unique<JsonLines>(metrics_path_);
  if (tensorboard_) events_ = std::make_unique<EventFile>(directory_);
  metrics_ = std::move(metrics);
  log_line(LogLevel::info, cat("the run writes into '", directory_, "'"));
}

// Event files of other programs in the folder have longer names.
void RunFolder::remove_earlier_run() const {
  store_.clear();
  std::vector<fs::path> files{metrics_path_};
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error))
    if (EventFile::is_name(it->path().filename().string())) files.push_back(it->path());
  for (const fs::path& path : files) remove_file(path);
}

void RunFolder::write_row(const Json& row) {
  begin();
  metrics_->write(row);
}

void RunFolder::write_scalars(uint64_t step,
                              const std::vector<std::pair<std::string, double>>& scalars) {
  begin();
  if (events_) events_->write(step, scalars);
}

std::string RunFolder::write_checkpoint(uint64_t step, const checkpoint::Files& files) {
  begin();
  return store_.save(step, files);
}

std::optional<checkpoint::Loaded> RunFolder::newest() const {
  if (start_ == Start::overwrite && !metrics_) return std::nullopt;
  return store_.load_latest();
}

}  // namespace etr::train
