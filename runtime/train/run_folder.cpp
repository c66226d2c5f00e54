#include "train/run_folder.h"

#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/platform_files.h"

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
      metrics_path_(fs::path(directory_) / "metrics.jsonl"),
      start_(start),
      tensorboard_(tensorboard),
      store_(directory_ + "/checkpoints") {
  if (!writes()) return;
  claim_.emplace(directory_);
  store_.check_usable();
  if (start_ == Start::new_run) check_unused();
  if (start_ == Start::overwrite) check_removable();
}

uint64_t RunFolder::metrics_bytes() const noexcept {
  std::error_code error;
  const uint64_t bytes = fs::file_size(metrics_path_, error);
  return error ? 0 : bytes;
}

void RunFolder::check_unused() const {
  const auto step = store_.newest_step();
  if (!step && metrics_bytes() == 0) return;
  fail(
      Code::state, "'", directory_, "' holds an earlier run",
      step ? cat(" (its newest checkpoint is of step ", *step, ")") : " (metrics.jsonl)",
      ": let output.dir name another folder, or resume or overwrite this run (on the command line: "
      "--set output.dir=FOLDER, --resume, --overwrite)");
}

void RunFolder::check_removable() const {
  store_.check_clearable();
  if (!JsonLines::may_be(metrics_path_.string()))
    fail(Code::state, "'", metrics_path_.string(),
         "' was not written by a run, and only what a run has written is overwritten. "
         "Move it away, or let output.dir name another folder (on the command line: --set "
         "output.dir=FOLDER)");
}

void RunFolder::check_in_place() const {
  if (!metrics_ || metrics_->is_in_place()) return;
  fail(Code::state, "the run's folder '", directory_,
       "' was removed, renamed or replaced while the run wrote into it: '", metrics_path_.string(),
       "' is no longer the file that holds its rows. Put the folder back and resume the "
       "run, or start again");
}

void RunFolder::begin() {
  check_in_place();
  if (metrics_) return;
  if (!begun_ && start_ == Start::new_run) check_unused();  // again, for file systems without locks
  if (!begun_ && start_ == Start::overwrite) remove_earlier_run();
  if (cut_after_) cut_rows_after(metrics_path_.string(), *cut_after_);
  auto metrics = std::make_unique<JsonLines>(metrics_path_.string());
  if (tensorboard_ && !events_) events_ = std::make_unique<EventFile>(directory_);
  if (cut_after_ && events_) events_->restart(cut_after_->step + 1);
  metrics_ = std::move(metrics);
  cut_after_.reset();
  if (!begun_) log_line(LogLevel::info, cat("the run writes into '", directory_, "'"));
  begun_ = true;
}

void RunFolder::go_on_after(uint64_t step, bool evaluated) {
  cut_after_ = {step, evaluated};
  metrics_.reset();
}

// Keeps event files of other programs, which have longer names.
void RunFolder::remove_earlier_run() const {
  check_removable();
  store_.clear();
  std::vector<fs::path> files{metrics_path_};
  std::error_code error;
  for (const auto& [name, type] : platform::list_folder(directory_, error))
    if (EventFile::is_name(name) && type == fs::file_type::regular)
      files.push_back(fs::path(directory_) / name);
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
  metrics_->sync();  // rows before a checkpoint must last as long as it does
  return store_.save(step, files);
}

std::optional<checkpoint::Loaded> RunFolder::newest() const {
  if (start_ == Start::overwrite && !begun_) return std::nullopt;
  return store_.load_latest();
}

}  // namespace etr::train
